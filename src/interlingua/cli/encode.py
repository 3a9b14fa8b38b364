"""`interlingua encode`: texts to vectors, in files that other software reads; or the encoder itself as ONNX."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import passage_options, precision_option, ray_option, read_passages
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.index.export import Chunk

logger = logging.getLogger(__name__)

NAMES = ("encode",)
NOT_WRITTEN = {".npz", ".pt", ".pkl", ".h5", ".csv", ".tsv", ".json", ".jsonl", ".txt", ".gz", ".safetensors"}
"""Suffixes of files that are not written; a new folder with such a name would be a mistake."""

DESCRIPTION = """\
Turn texts into vectors, and take them elsewhere.

  interlingua encode MODEL lines.txt --out vectors.npy       a text a line: float32 [texts, dim]
  interlingua encode MODEL handbook/ --out vectors.parquet   passages: id, lang, vector, text, title, metadata
  interlingua encode MODEL handbook/ --out vectors           passages: a folder with vectors.npy and ids.jsonl
  interlingua encode idx --out vectors.parquet               what an index holds, without encoding anything
  interlingua encode MODEL handbook/ --out parts --ray=auto  on a Ray cluster: a folder of Parquet files
  interlingua encode MODEL --onnx encoder                    the encoder: model.onnx, tokenizer.json, onnx.json
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("encode", help="turn texts into vectors", description=DESCRIPTION)
    parser.add_argument("model", help="a model folder or name, or an index")
    parser.add_argument(
        "texts",
        nargs="*",
        metavar="FILE",
        help="for a .npy: a text file, one text a line, .gz too, - or nothing for standard input; else "
        "files, folders and collections of passages, as for `interlingua index`",
    )
    parser.add_argument(
        "--role",
        choices=["query", "passage"],
        default="passage",
        help="which encoder reads lines of text, or is exported",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--out", metavar="FILE|DIR", help="where the vectors go: FILE.npy, FILE.parquet or a folder")
    to.add_argument("--onnx", metavar="DIR", help="write the encoder itself, for ONNX runtimes, into this folder")
    precision_option(parser)
    ray_option(parser)
    passage_options(parser, "; of lines of text and with --onnx, the language whose calibration is applied")
    parser.moved = {"--as": "--role"}
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Encode and save."""
    if arguments.onnx is not None:
        if arguments.texts or arguments.ray is not None:
            raise BadInput("--onnx: writes the encoder and reads no texts. Leave out the files and --ray.")
        if arguments.precision is not None:
            raise BadInput("--onnx: the weights are written in float32. Leave out --precision.")
        _read_no_passages(arguments, "--onnx reads no passages")
        onnx(arguments)
    elif arguments.out.endswith(".npy") and arguments.ray is None:
        _read_no_passages(
            arguments, f"{arguments.out} takes lines of text. For passages, write FILE.parquet or a folder"
        )
        lines(arguments)
    elif Path(arguments.out).suffix.lower() in NOT_WRITTEN and not Path(arguments.out).is_dir():
        raise BadInput(f"--out {arguments.out}: vectors are written as FILE.npy (of lines), FILE.parquet or a folder.")
    else:
        passages(arguments)


def _read_no_passages(arguments: argparse.Namespace, reason: str) -> None:
    """Raise BadInput for options of passages where none are read."""
    for name in ("columns", "url_base", "chunk", "chunk_chars", "overlap", "workers", "on_bad_row"):
        if getattr(arguments, name) not in (None, "", []):
            raise BadInput(f"--{name.replace('_', '-')}: {reason}. Leave it out.")


def lines(arguments: argparse.Namespace) -> None:
    """A text a line, a row a text."""
    import numpy as np

    from interlingua.array_folder import write_array
    from interlingua.data.passages import is_collection
    from interlingua.data.readers.rows import BadRow, json_object
    from interlingua.files import atomic_write, existing, read_lines
    from interlingua.index.store import is_index
    from interlingua.models.dual import DualEncoder
    from interlingua.models.protocols import encode_as
    from interlingua.text.languages import normalise_code

    if len(arguments.texts) > 1:
        raise BadInput(
            "a .npy holds the lines of one file. For passages of several, write --out FILE.parquet or a folder."
        )
    if is_index(arguments.model):
        raise BadInput(
            f"{arguments.model}: is an index, and a .npy takes lines of text. Write --out FILE.parquet or a folder, or "
            "name a model."
        )
    if not arguments.texts:
        _check_model(arguments.model)
    elif not os.path.exists(arguments.texts[0]) and is_collection(arguments.texts[0]):
        raise BadInput(
            f"{arguments.texts[0]}: is a collection, and a .npy takes lines of text. Write FILE.parquet or a folder."
        )
    source = existing(arguments.texts[0] if arguments.texts else "-")
    texts = [line for _, line in read_lines(source)]
    if not texts:
        raise BadInput(f"{source}: is empty. Give one text a line.")
    with suppress(BadRow):
        json_object(texts[0])
        raise BadInput(
            f"{source}: holds rows of jsonl, and a .npy takes lines of text. Write FILE.parquet or a folder."
        )
    model = DualEncoder.load(arguments.model, precision=arguments.precision)
    encode = encode_as(model, arguments.role)
    language = {"lang": normalise_code(arguments.lang)} if arguments.lang else {}
    vectors = np.asarray(encode(texts, show_progress_bar=not arguments.quiet, **language), dtype=np.float32)
    with atomic_write(arguments.out, "wb") as stream:
        write_array(stream, vectors)
    logger.info(f"{arguments.out}: {vectors.shape[0]:,} vectors of {vectors.shape[1]} dimensions")


def passages(arguments: argparse.Namespace) -> None:
    """Passages with their vectors: of files, or of an index."""
    from interlingua.index.export import write_npy, write_parquet

    parquet = arguments.out.endswith(".parquet")
    if arguments.role == "query":
        raise BadInput("--role query: passages are encoded as passages. For lines of text, write --out FILE.npy.")
    if arguments.ray is not None:
        from interlingua.index.ray import encode_on_ray

        if not arguments.texts or parquet or arguments.out.endswith(".npy"):
            raise BadInput("--ray: encodes files of passages into a folder. Name the files, and a folder with --out.")
        parts = encode_on_ray(
            arguments.model,
            read_passages(arguments, arguments.texts, None),
            arguments.out,
            address=arguments.ray,
            precision=arguments.precision,
        )
        logger.info(f"{arguments.out}: {len(parts):,} Parquet files of vectors")
        return
    batches = chunks(arguments)
    count = (write_parquet if parquet else write_npy)(arguments.out, batches)
    logger.info(f"{arguments.out}: {count:,} passages with their vectors")


def chunks(arguments: argparse.Namespace) -> Iterable[Chunk]:
    """Passages and vectors, some thousand at a time."""
    from interlingua.index import open_index
    from interlingua.index.export import encoded
    from interlingua.index.store import CHUNK, is_index
    from interlingua.models.dual import DualEncoder
    from interlingua.progress import track

    place = arguments.model
    if is_index(place):
        if arguments.texts:
            raise BadInput(
                f"{place}: is an index, whose own vectors are written. Leave out the files, or name a model."
            )
        if arguments.precision or arguments.lang:
            raise BadInput(f"{place}: is an index, whose own vectors are written. Leave out --precision and --lang.")
        _read_no_passages(arguments, f"{place} is an index, whose own passages are written")
        return open_index(place).vectors()
    if not arguments.texts:
        _check_model(place)
        raise BadInput(f"{place}: is not an index, so there must be files of passages to encode.")
    model = DualEncoder.load(place, precision=arguments.precision)
    batches = encoded(model, read_passages(arguments, arguments.texts, None))
    return track(batches, f"encode passages ({CHUNK:,} each)")


def _check_model(name: str) -> None:
    """Raise BadInput for files in the place of the model."""
    path = Path(name)
    if path.is_file() or (path.is_dir() and not any(path.glob("*.json"))):
        raise BadInput(f"{name}: is no model. Give the model first: interlingua encode default {name} --out …")


def onnx(arguments: argparse.Namespace) -> None:
    """The encoder of a role."""
    from interlingua.models.dual import DualEncoder
    from interlingua.models.onnx import export_onnx

    encoder = DualEncoder.load(arguments.model, device="cpu").encoder(arguments.role)
    file = export_onnx(encoder, arguments.onnx, role=arguments.role, lang=arguments.lang or None)
    logger.info(
        f"{file}: the {arguments.role} encoder, {encoder.dim} dimensions; the tokenizer and onnx.json lie beside it"
    )
