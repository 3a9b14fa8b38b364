"""Translations between two languages neither of which is English, out of their translations into English."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError, suggestion
from interlingua.progress import say
from interlingua.text.languages import normalise_code

LIMIT = 1000
FEW = 100

Sets = Mapping[str, Sequence[ParallelPair]]
"""name, such as the file's → its pairs, all of the same two languages."""


@dataclass(frozen=True)
class Joined:
    """What a join through English gave. `repeated` pairs were left out since a sentence of theirs was taken already,
    `over` since there were more than the limit."""

    pairs: list[ParallelPair]
    repeated: int
    over: int


def pivot_pairs(first: Sequence[ParallelPair], second: Sequence[ParallelPair], limit: int = LIMIT) -> Joined:
    """Pairs of a foreign sentence of `first` and one of `second` that translate the identical English sentence.

    One to one: every sentence, the English one too, is used once, in the order of `first`; what else would have been
    joined is counted as repeated. At most `limit` pairs, as the Tatoeba test has. Raises InterlinguaError for a pair
    without an English side, or both sets of one language.
    """
    left, right = [_foreign(pair) for pair in first], [_foreign(pair) for pair in second]
    langs = [{lang for _, lang, _ in side} for side in (left, right)]
    if [len(side) for side in langs] != [1, 1] or langs[0] == langs[1]:
        held = " and ".join(", ".join(sorted(side)) or "nothing" for side in langs)
        raise InterlinguaError(f"a join through English needs one language on each side, two in all; given: {held}.")
    translations: dict[str, list[tuple[str, str]]] = {}
    for english, lang, text in right:
        translations.setdefault(english, []).append((lang, text))
    found: list[ParallelPair] = []
    used: Counter[tuple[str, str]] = Counter()
    repeated = 0
    for english, lang, text in left:
        for other, translated in translations.get(english, ()):
            sentences = (("en", english), (lang, text), (other, translated))
            if any(used[sentence] for sentence in sentences):
                repeated += 1
                continue
            used.update(sentences)
            found.append(ParallelPair(text, translated, lang, other))
    return Joined(found[:limit], repeated, len(found[limit:]))


def pairs_between(codes: str, sets: Sets) -> tuple[str, list[ParallelPair]]:
    """The pairs of two languages such as "de-fr": those of the set that holds just these two, in either order, else
    joined through English. Returns the name of what they come from, and them; says how many a join gave.

    Raises InterlinguaError for codes that are not two languages, and where `sets` hold no way from one to the other.
    """
    parts = codes.split("-")
    if len(parts) != 2:
        raise InterlinguaError(f"'{codes}': a pair is written as two languages, like de-fr.")
    source, target = (normalise_code(part) for part in parts)
    if source == target:
        raise InterlinguaError(f"'{codes}': both are '{source}'. A pair needs two languages.")
    held = {name: {lang for pair in pairs for lang in (pair.source_lang, pair.target_lang)}
            for name, pairs in sets.items()}
    direct = [name for name, langs in held.items() if langs == {source, target}]
    if direct:
        name = _only(direct, f"{source} and {target}")
        return name, [pair if pair.source_lang == source else replace(
            pair, source=pair.target, target=pair.source, source_lang=source, target_lang=target)
            for pair in sets[name]]
    english = {lang: [name for name, langs in held.items() if langs == {lang, "en"}] for lang in (source, target)}
    for lang, names in english.items():
        if not names:
            raise InterlinguaError(f"'{codes}': no file has '{lang}' and English, and none has {source} and {target}."
                                   f"{suggestion(lang, set().union(*held.values()))}")
    names = [_only(found, f"{lang} and English") for lang, found in english.items()]
    joined = pivot_pairs(sets[names[0]], sets[names[1]])
    if not joined.pairs:
        raise InterlinguaError(f"'{codes}': {names[0]} and {names[1]} have no English sentence in common. Give a file "
                               f"of {source} and {target}.")
    left_out = "".join(f", {count:,} {why}" for count, why in
                       ((joined.repeated, "left out as repeated"), (joined.over, "over the limit")) if count)
    few = f"; an accuracy over fewer than {FEW} says little" if len(joined.pairs) < FEW else ""
    plural = "s" * (len(joined.pairs) > 1)
    say(f"{source}-{target}: {len(joined.pairs):,} pair{plural} through English{left_out}{few}")
    return " + ".join(Path(name).name for name in names), joined.pairs


def _foreign(pair: ParallelPair) -> tuple[str, str, str]:
    """(English text, other language, other text)."""
    if pair.source_lang == "en":
        return pair.source, pair.target_lang, pair.target
    if pair.target_lang == "en":
        return pair.target, pair.source_lang, pair.source
    raise InterlinguaError(f"a pair of {pair.source_lang} and {pair.target_lang} cannot be joined through English.")


def _only(names: Sequence[str], what: str) -> str:
    if len(names) > 1:
        raise InterlinguaError(f"{' and '.join(names)}: both hold {what}. Give one of them.")
    return names[0]
