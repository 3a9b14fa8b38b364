"""Options that several verbs have, each declared once, and what they stand for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.data.files.walk import Report, Scope, SourceNames
    from interlingua.data.records import Passage
    from interlingua.index import Index
    from interlingua.index.filters import Filter

INDEX = "an index: its folder, milvus://host:port/name, or milvus:file.db/name for Milvus Lite"


def number(text: str) -> float:
    """The value of an option. Nothing compares with one that is not a number ("nan"): ValueError, as for a word."""
    value = float(text)
    if value != value:
        raise ValueError(text)
    return value


def given(arguments: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of the options that the command line has, whose default is None, as they are written: "--epoch-size"."""
    written = (name for name in names if getattr(arguments, name) is not None)
    return [f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}" for name in written]


def fill_in(arguments: argparse.Namespace, defaults: Mapping[str, Any]) -> None:
    """Give the options that the command line does not have their defaults."""
    for name, default in defaults.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)


def index_argument(parser: argparse.ArgumentParser) -> None:
    """The index that a verb is about."""
    parser.add_argument("index", metavar="IDX", help=INDEX)


def model_option(parser: argparse.ArgumentParser) -> None:
    """--model, of verbs that encode with the model of an index."""
    parser.add_argument(
        "--model",
        metavar="PATH",
        help="the model that made the index, where it is not at the place the index remembers",
    )


def precision_option(parser: argparse.ArgumentParser) -> None:
    """--precision, of verbs that encode."""
    parser.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "int8", "auto"],
        help="number format of a transformer's weights on a processor; auto: the fastest here (that of the index, else "
        "float32)",
    )


def durability_option(parser: argparse.ArgumentParser) -> None:
    """--durability, of verbs that write to an index."""
    parser.add_argument(
        "--durability",
        choices=["full", "process"],
        default="full",
        help="full: a change is done when a power cut cannot undo it; process: it does not wait for the disk (full)",
    )


def bad_rows_option(parser: argparse._ActionsContainer) -> None:
    """--on-bad-row, of verbs that read files; None where it is not given."""
    parser.add_argument(
        "--on-bad-row",
        choices=["error", "skip"],
        help="error: stop at a row or file that cannot be read; skip: count and list them",
    )


def ray_option(parser: argparse.ArgumentParser) -> None:
    """--ray, of verbs that encode many passages."""
    parser.add_argument(
        "--ray",
        nargs="?",
        const="",
        metavar="ADDRESS",
        help="encode on a Ray cluster (auto, host:6379), or on this machine alone (local); without an address on the "
        "cluster of this machine, else on it alone",
    )


def passage_options(parser: argparse.ArgumentParser, also: str = "") -> None:
    """Add the options for reading files of passages; `read_passages` follows them. `also`: what --lang is else."""
    group = parser.add_argument_group("how passages are read")
    group.add_argument("--lang", default="", help="language of passages that do not name theirs (else detected)" + also)
    group.add_argument(
        "--columns",
        action=Repeated,
        form="(.+:)?(text|title|id|lang|url)=",
        metavar="[FILE:]text=COLUMN",
        help="which columns of tables are text, title, id, lang and url, where they have other names; with FILE: those "
        "of one table",
    )
    group.add_argument(
        "--url-base",
        default="",
        metavar="URL",
        help="results link to this address and the path of a document below its folder",
    )
    group.add_argument(
        "--chunk",
        choices=["sentences", "headings", "characters"],
        help="what is cut is made of whole sentences, of whole sections, or of as much as fits (sentences)",
    )
    group.add_argument("--chunk-chars", type=int, metavar="N", help="characters of a passage that is cut (800)")
    group.add_argument("--overlap", type=int, metavar="N", help="sentences that a passage has of the one before (1)")
    group.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that read many documents ahead (one a processor, up to 8 and OMP_NUM_THREADS); 0 for none",
    )
    bad_rows_option(group)


def sources_of_an_index(parser: argparse.ArgumentParser) -> None:
    """The index and the files of a verb that writes passages, and how it reads and encodes them."""
    index_argument(parser)
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, folders and collections of passages")
    model_option(parser)
    precision_option(parser)
    durability_option(parser)
    passage_options(parser)


def dry_run_option(parser: argparse.ArgumentParser) -> None:
    """--dry-run, of verbs that delete more than what was named."""
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")


def read_passages(
    arguments: argparse.Namespace,
    sources: Sequence[str],
    names: SourceNames | None,
    scope: Scope | None = None,
    report: Report | None = None,
) -> Iterator[Passage]:
    """The passages of files, folders and collections, as `passage_options` say. `names` are those of their sources,
    which an index knows or will keep; a `scope` takes them in for `sync`; what a `report` hears is not logged."""
    from interlingua.data.passages import read_sources

    names_given = ("chunk", "chunk_chars", "overlap", "workers", "on_bad_row", "url_base")
    values = {name: getattr(arguments, name) for name in names_given}
    options: dict[str, Any] = {"on_bad_row": "skip"} | {name: one for name, one in values.items() if one is not None}
    if report is not None:
        options["report"] = report
    if arguments.columns:
        form = "text=COLUMN, title=COLUMN, id=COLUMN, lang=COLUMN or url=COLUMN, with FILE: before it for one file"
        columns: dict[str, Any] = {}
        for name, column in pairs_of("--columns", arguments.columns, form).items():
            file, sign, role = name.rpartition(":")
            (columns.setdefault(file, {}) if sign else columns)[role] = column
        options["columns"] = columns
    return read_sources(sources, arguments.lang, names, scope, **options)


def pairs_of(option: str, given: list[str], form: str) -> dict[str, str]:
    """The values KEY=VALUE of an option. Raises BadInput for one of another `form`."""
    pairs = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise BadInput(f"{option} '{pair}': write {form}.")
        pairs[key] = value
    return pairs


def filter_option(parser: argparse.ArgumentParser, help: str) -> None:
    """--filter, which may be repeated."""
    forms = "; also 'KEY>=NUMBER', 'KEY!=VALUE', 'KEY=ONE|OTHER', and JSON"
    parser.add_argument(
        "--filter", action=Repeated, form=r".+[=<>]|\{", default=[], metavar="KEY=VALUE", help=help + forms
    )


def filter_of(arguments: argparse.Namespace) -> Filter | None:
    """The one filter that all values of --filter make together."""
    from interlingua.index.filters import parsed_words

    return parsed_words(arguments.filter)


def opened(arguments: argparse.Namespace, **options: Any) -> Index:
    """The index of a verb, with the model of --model and in the --precision where these are given."""
    from interlingua.index import open_index

    index = open_index(arguments.index, **options)
    model, precision = getattr(arguments, "model", None), getattr(arguments, "precision", None)
    if not model and not precision:
        return index
    from interlingua.index.metadata import load_encoder

    try:
        encoder = load_encoder(index.metadata, arguments.index, model=model, precision=precision)
    finally:
        index.close()
    return open_index(arguments.index, encoder, **options)


def counted(index: Index) -> str:
    """The number of passages in an index, in all and by language."""
    languages = sorted(index.languages.items(), key=lambda pair: (-pair[1], pair[0]))
    return f"{len(index):,} passages: " + ", ".join(f"{lang or 'unknown'} {count:,}" for lang, count in languages)
