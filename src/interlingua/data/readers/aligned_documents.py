"""Parallel text out of aligned documents: versions of one document (one `group`) with the same number of sentences.

It joins any language with any other, which files of pairs with English cannot (Hu et al. 2023, Table 4)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from interlingua.data.readers import documents
from interlingua.data.readers.bad_rows import BadRows
from interlingua.data.readers.source import first_keys
from interlingua.data.records import Document, ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.text.languages import normalise_code


def matches(path: Path, start: str) -> bool:
    return {"sentences", "group"} <= first_keys(start)


def read(path: Path, bad: BadRows, *, pairs: Sequence[str] = ()) -> Iterator[ParallelPair]:
    """Sentence k of a document beside sentence k of its version, for each of `pairs` ("en-ko", "tr-zh").

    The group of a pair is the document's and k: the same sentence in a third language shares it. Documents whose
    versions differ in length are counted as bad rows. Holds the documents of the languages asked for in memory.
    """
    if not pairs:
        raise InterlinguaError(f"{path}: say which languages to join, such as options: {{pairs: [en-ko, tr-zh]}}.")
    wanted = [_codes(pair) for pair in pairs]
    held: dict[str, dict[str, Document]] = defaultdict(dict)
    for document in documents.read(path, bad):
        if document.group and any(document.lang in codes for codes in wanted):
            held[document.lang][document.group] = document
    for first, second in wanted:
        for group, source in held[first].items():
            target = held[second].get(group)
            if target is None:
                continue
            if len(source.sentences) != len(target.sentences):
                bad.reject(path, f"group {group}", f"{len(source.sentences)} sentences in {first} but "
                           f"{len(target.sentences)} in {second}")
                continue
            for number, (one, other) in enumerate(zip(source.sentences, target.sentences, strict=True)):
                yield ParallelPair(one, other, first, second, group=f"{group}#{number}", origin=path.name)


def _codes(pair: str) -> tuple[str, str]:
    first, dash, second = str(pair).partition("-")
    if not dash:
        raise InterlinguaError(f"'{pair}' is not a pair of languages. Write it as en-ko.")
    return normalise_code(first), normalise_code(second)
