"""The texts that a calibration is fitted on: a sample of each language, and translations into the pivot."""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from interlingua.data.encyclopedia import is_encyclopedia
from interlingua.data.readers import PARALLEL, QUESTIONS, read_parallel, read_questions, read_sentences
from interlingua.data.readers.source import expand, head, matching
from interlingua.data.records import Sentence
from interlingua.data.stream import key_of
from interlingua.errors import BadInput
from interlingua.text.languages import find_code, normalise_code

logger = logging.getLogger(__name__)


def sample_texts(sources: Iterable[str], limit: int, seed: int = 0, on_bad_row: str = "error") -> dict[str, list[str]]:
    """Language → up to `limit` distinct texts, out of "fr=texts.txt.gz" (the texts in French of these files) and
    "de-en.tsv.gz" (all of them: text and jsonl that tell their language, parallel files with both sides, questions
    with their passages: both).

    A smaller limit gives a subset of a larger one. Holds the sample, never the files. Raises BadInput for a
    limit under 1, files that tell no language, and a source without a text in the language it was given for.
    """
    if limit < 1:
        raise BadInput(f"a limit of {limit} texts per language: at least 1 is needed.")
    # the texts with the smallest keys: a sample that does not depend on order or repetition
    heaps: dict[str, list[tuple[int, str]]] = defaultdict(list)
    samples: dict[str, set[str]] = defaultdict(set)
    for sentence in chain.from_iterable(_read(source, on_bad_row) for source in sources):
        text, heap, sample = sentence.text.strip(), heaps[sentence.lang], samples[sentence.lang]
        if not text or text in sample:
            continue
        entry = (-key_of(seed, text), text)
        if len(heap) < limit:
            heapq.heappush(heap, entry)
        else:
            evicted = heapq.heappushpop(heap, entry)[1]
            if evicted == text:
                continue
            sample.remove(evicted)
        sample.add(text)
    return {lang: [text for _, text in sorted(heap, reverse=True)] for lang, heap in sorted(heaps.items()) if heap}


def translations(
    files: Iterable[str], pivot: str, limit: int, on_bad_row: str = "error"
) -> dict[str, tuple[list[str], list[str]]]:
    """Language → the first `limit` of its texts in parallel files, and beside them their translations into `pivot`.
    Pairs that the pivot is no part of are counted and said."""
    by_lang: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    skipped = 0
    for pair in chain.from_iterable(read_parallel(file, on_bad_row=on_bad_row) for file in files):
        sides = [(pair.source_lang, pair.source), (pair.target_lang, pair.target)]
        sides.sort(key=lambda side: side[0] == pivot)
        (lang, text), (other_lang, translation) = sides
        if other_lang != pivot or lang == pivot:
            skipped += 1
        elif len(by_lang[lang][0]) < limit:
            by_lang[lang][0].append(text)
            by_lang[lang][1].append(translation)
    if skipped:
        logger.warning(f"{skipped:,} pairs left out: they do not join a language with the pivot '{pivot}'")
    return dict(by_lang)


def _read(source: str, on_bad_row: str) -> Iterator[Sentence]:
    """The sentences of one source; of a "lang=path" those in that language. The number of the others is logged."""
    code, equals, path = source.partition("=")
    if not equals or Path(source).exists() or (find_code(code) is None and not (path and Path(path).exists())):
        yield from _sentences(source, None, on_bad_row)
        return
    lang, count, others = normalise_code(code), 0, 0
    for sentence in _sentences(path, lang, on_bad_row):
        if sentence.lang == lang:
            count += 1
            yield sentence
        else:
            others += 1
    if not count:
        raise BadInput(f"{path}: holds no text in '{lang}' ({others:,} in other languages).")
    if others:
        logger.warning(f"{path}: {others:,} texts in other languages than '{lang}' left out")


def _sentences(path: str, lang: str | None, on_bad_row: str) -> Iterator[Sentence]:
    if is_encyclopedia(path):
        yield from read_sentences(path, lang=lang)
        return
    parallel = [one for one in PARALLEL if one.name != "documents"]  # aligned ones are read as other documents
    for file in expand(path):
        start = head(file)
        if matching(parallel, file, start):
            yield from read_sentences(file, side="both", on_bad_row=on_bad_row)
        elif matching(QUESTIONS, file, start):
            for row in read_questions(file, lang=lang, on_bad_row=on_bad_row):
                yield Sentence(row.question, row.lang)
                yield from (Sentence(passage.text, passage.lang or row.lang) for passage in row.positives)
        else:
            yield from read_sentences(file, lang=lang, on_bad_row=on_bad_row)
