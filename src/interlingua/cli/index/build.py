"""`interlingua index`: make passages searchable."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import INDEX, counted, passage_options, precision_option, ray_option, read_passages
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.data.records import Passage
    from interlingua.index import Index

logger = logging.getLogger(__name__)

NAMES = ("index",)
WEIGHTS = ("modules.json", "*.safetensors", "pytorch_model*.bin", "model/modules.json")
MODEL_FILES = (*WEIGHTS, "config.json")
"""Of a model, and in the folder of a training, which is not to be read as passages."""
MOVED = {f"--{verb}": verb for verb in ("add", "replace", "delete", "compact", "info", "tokens")}

DESCRIPTION = """\
Make passages searchable.

  interlingua index handbook/ faq.csv --out idx       with the bundled model: jsonl, csv, tsv, Parquet, text,
                                                      Markdown, HTML, PDF, DOCX, PPTX, EPUB, and folders of them
  interlingua index MODEL handbook/ --out idx         with your model
  interlingua index faq.csv --columns text=answer --out milvus:file.db/faq

A build that was stopped goes on where it was when the same command is given again. Then: interlingua search,
serve, sync, add, replace, delete, compact, tokens, info.
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("index", help="make passages searchable", description=DESCRIPTION)
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="FILE",
        help="files, folders and collections of passages; the first may be a model folder or name",
    )
    parser.add_argument("--out", "--store", required=True, metavar="IDX", help=INDEX)
    parser.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    precision_option(parser)
    ray_option(parser)
    passage_options(parser)
    parser.moved = MOVED
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Build an index."""
    from interlingua.data.files import SourceNames

    names = SourceNames()
    first, *rest = arguments.inputs
    if not rest and holds_model(Path(first), WEIGHTS):
        raise BadInput(f"{first}: holds a model. Give the files to index after it: interlingua index {first} FILE …")
    name, sources = ("default", arguments.inputs) if not rest or is_passages(first) else (first, rest)
    passages = read_passages(arguments, sources, names)
    options: dict[str, Any] = {"overwrite": arguments.overwrite, "names": names}
    try:
        index = _built(name, passages, arguments, options)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped. The same command goes on with what is encoded.") from None
    logger.info(
        f"{arguments.out}: {counted(index)}. "
        f'Try: interlingua search {quote(arguments.out)} "your question" (the model is {name})'
    )


def _built(name: str, passages: Iterator[Passage], arguments: argparse.Namespace, options: dict[str, Any]) -> Index:
    if arguments.ray is not None:
        from interlingua.index.ray import build_index_on_ray

        return build_index_on_ray(
            name, passages, arguments.out, address=arguments.ray, precision=arguments.precision, **options
        )
    from interlingua.index import build_index
    from interlingua.index.metadata import load_to_encode, of_one_vector

    encoder = of_one_vector(load_to_encode(name, arguments.precision), name)
    return build_index(encoder, passages, arguments.out, model_path=name, **options)


def is_passages(name: str) -> bool:
    """Whether a first argument is passages already, so that no model was named."""
    from interlingua.data.passages import is_collection
    from interlingua.files import is_input

    path = Path(name)
    if holds_model(path):
        return False
    return is_input(name) or is_collection(name) or (path.is_dir() and any(path.iterdir()))


def holds_model(path: Path, patterns: Sequence[str] = MODEL_FILES) -> bool:
    """Whether a path is a folder with one of these files."""
    return path.is_dir() and any(any(path.glob(pattern)) for pattern in patterns)
