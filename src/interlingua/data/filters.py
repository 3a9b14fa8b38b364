"""Filters for parallel text: rows that teach nothing or something wrong, as mined text has (Schwenk et al. 2021)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from interlingua.data.records import ParallelPair
from interlingua.text.detection import detect_in_bulk, detectable
from interlingua.text.languages import language, language_key, text_hash, text_key

SURE = 0.9
"""The probability from which a side is in another language: high, as a sentence of a few words is often taken for its
language's nearest relative."""


def equal_sides(pair: ParallelPair) -> bool:
    """Both sides are the same text (numbers, names, untranslated rows)."""
    return text_key(pair.source) == text_key(pair.target)


def length_ratio(pair: ParallelPair) -> float:
    """The longer side over the shorter, ≥ 1, in characters that count as much as their script makes them: one Chinese
    character stands for three English ones (`Language.character_weight`). Infinite when one side is empty."""
    short, long = sorted((_weighted(pair.source, pair.source_lang), _weighted(pair.target, pair.target_lang)))
    return long / short if short else float("inf")


def _weighted(text: str, lang: str) -> float:
    """Characters outside CJK count one also in a text of such a language: names, numbers, spaces."""
    weight = language(lang).character_weight
    if weight == 1:
        return float(len(text.strip()))
    return sum(weight if character > "\u2e7f" else 1.0 for character in text.strip())


def too_short(pair: ParallelPair, min_tokens: int = 3) -> bool:
    """A side has fewer than `min_tokens` tokens: words, or characters in a script without spaces."""
    return min(_tokens(pair.source, pair.source_lang), _tokens(pair.target, pair.target_lang)) < min_tokens


def wrong_language(pair: ParallelPair) -> bool:
    """A side is surely in another language than its own, if its own can be detected. Raises NotFound where py3langid is
    not installed."""
    for text, lang in ((pair.source, pair.source_lang), (pair.target, pair.target_lang)):
        key = language_key(lang)
        if key in detectable() and (found := detect_in_bulk(text, SURE)) and language_key(found) != key:
            return True
    return False


def _tokens(text: str, lang: str) -> int:
    words = text.split()
    return len(words) if language(lang).spaced else sum(len(word) for word in words)


@dataclass
class FilterReport:
    """Counts of the pairs that were kept, and of those that were dropped by reason."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        total = self.kept + self.dropped.total()
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in self.dropped.most_common())
        return f"kept {self.kept:,} of {total:,} pairs" + (f"; dropped: {reasons}" if reasons else "")


def filter_parallel(
    pairs: Iterable[ParallelPair],
    *,
    max_ratio: float = 3.0,
    min_tokens: int = 3,
    duplicates: bool = True,
    languages: bool = False,
    report: FilterReport | None = None,
) -> Iterator[ParallelPair]:
    """The pairs that no filter drops, in order; the counts go to `report` while they are read.

    A pair is dropped for the first of: equal sides, too short, length ratio, with `languages` a wrong language,
    duplicate of a pair before (both sides equal after `text_key`, and both languages; not with duplicates=False). Texts
    are not held, 8-byte hashes are.
    """
    report = FilterReport() if report is None else report
    seen: set[int] = set()
    for pair in pairs:
        if equal_sides(pair):
            reason = "equal sides"
        elif too_short(pair, min_tokens):
            reason = f"fewer than {min_tokens} tokens"
        elif length_ratio(pair) > max_ratio:
            reason = f"length ratio over {max_ratio:g}"
        elif languages and wrong_language(pair):
            reason = "wrong language"
        elif duplicates and (key := text_hash(pair.source_lang, pair.source, pair.target_lang, pair.target)) in seen:
            reason = "duplicate"
        else:
            if duplicates:
                seen.add(key)
            report.kept += 1
            yield pair
            continue
        report.dropped[reason] += 1
