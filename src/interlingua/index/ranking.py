"""Identity of passages by source and id, and the hybrid ranking."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlingua.data.keys import Keys
from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.index.metadata import Question
from interlingua.retrieval.fusion import centred
from interlingua.retrieval.run import ranking_order
from interlingua.text.languages import find_code, language_key, normalise_code
from interlingua.text.phonetic import WITHOUT

Floats = NDArray[np.float64]
Row = TypeVar("Row")
"""A store's own handle of a passage: a place, a row."""
Find = Callable[[Sequence[str]], Mapping[str, list[Row]]]
"""ids → for each the rows of the passages that have it; an id that no passage has is left out"""


def named(names: Sequence[str], find: Find[Row], source_of: Callable[[Row], str]) -> dict[str, list[Row]]:
    """The rows that each of `names` means: those of all passages with this id, else of the one called `source:id`. A
    name that means none is left out. Raises BadInput for one that is `source:id` of two passages, by another colon."""
    if strange := [name for name in names if not isinstance(name, str)]:
        raise BadInput(f"{strange[0]!r} is no id of a passage: an id is a text.")
    by_name = dict(find(names))
    # a source may hold colons, and so may an id: each of them may be the one between the two
    cuts = {
        name: [(name[:at], name[at + 1 :]) for at, sign in enumerate(name) if sign == ":"]
        for name in names
        if name not in by_name
    }
    ids = dict.fromkeys(id for pairs in cuts.values() for _, id in pairs)
    rows = find(list(ids)) if ids else {}
    for name, pairs in cuts.items():
        matches = {(source, id): row for source, id in pairs for row in rows.get(id, ()) if source_of(row) == source}
        if len(matches) > 1:
            meanings = " and ".join(f"the id '{id}' in '{source}'" for source, id in matches)
            raise BadInput(f"'{name}' means {meanings}. Give one by its id alone, or by --source and a filter.")
        if matches:
            by_name[name] = list(matches.values())
    return by_name


def only(name: str, find: Find[Row], source_of: Callable[[Row], str], place: object) -> Row:
    """The one row that `name` means in the index at `place`. Raises NotFound where there is none, and BadInput where
    there are several, naming each."""
    rows = named([name], find, source_of).get(name)
    if not rows:
        raise NotFound(f"{place}: has no passage '{name}'.")
    if len(rows) > 1:
        names = ", ".join(f"'{source}:{name}'" for source in sorted(map(source_of, rows)))
        raise BadInput(f"{place}: has {len(rows)} passages with the id '{name}'. Name one of them: {names}.")
    return rows[0]


class Arriving:
    """The passages that one call of `add` or `replace` writes to the index at `place`, matched with those there.

    A passage with a source takes the place of the one with its source and id. One without a source takes the place of
    the only one with its id, and keeps that one's source.
    """

    def __init__(self, place: object, verb: str) -> None:
        self.place, self.verb = place, verb
        self.seen = Keys()
        """Source and id of all that were matched."""
        self.replaced = Keys()
        """Those of them that were there before."""
        self.sources: set[str] = set()
        """Their sources."""

    def match(
        self, passages: Sequence[Passage], find: Find[Row], source_of: Callable[[Row], str]
    ) -> list[tuple[Passage, Row | None]]:
        """Each of `passages` as it is to be written, and the row that it replaces, None for a new one.

        Raises BadInput for a passage that comes twice, one that is there already where the call is "add", one without
        a source whose id several passages have, and one whose `lang` is no language.
        """
        passages = [coded(passage) for passage in passages]
        rows = find([passage.id for passage in passages])
        return [self._place(passage, {source_of(row): row for row in rows.get(passage.id, ())}) for passage in passages]

    def _place(self, passage: Passage, rows: Mapping[str, Row]) -> tuple[Passage, Row | None]:
        matched, row = self._matched(passage, rows)
        if row is not None:
            self.replaced.add(matched.key)
        return matched, row

    def _matched(self, passage: Passage, rows: Mapping[str, Row]) -> tuple[Passage, Row | None]:
        key = passage.key
        if not self.seen.add(key):
            raise twice(passage)
        self.sources.add(key[0])
        # what this call has added itself is not what it finds

        def is_new(source: str) -> bool:
            return (source, key[1]) in self.seen and (source, key[1]) not in self.replaced

        rows = {source: row for source, row in rows.items() if source == key[0] or not is_new(source)}
        if self.verb == "add" and (key[0] in rows or (rows and not key[0])):
            raise BadInput(
                f"{self.place}: has a passage '{passage.id}' already"
                f"{'' if key[0] or '' in rows else ', from ' + _sources(rows)}. Replace it with "
                "`interlingua replace` (in Python: replace)."
            )
        if key[0] in rows or key[0] or not rows:
            return passage, rows.get(key[0])
        if len(rows) > 1:
            raise BadInput(
                f"{self.place}: has {len(rows)} passages with the id '{passage.id}', from "
                f"{_sources(rows)}. Say with the metadata 'source' which one is to be replaced."
            )
        ((source, row),) = rows.items()
        if not self.seen.add((source, passage.id)):
            raise twice(passage)
        self.sources.add(source)
        return replace(passage, metadata={**passage.metadata, "source": source}), row


def twice(passage: Passage) -> BadInput:
    """The error for two passages with one source and id."""
    suffix = f" in '{passage.source}'" if passage.source else ""
    return BadInput(f"passage id '{passage.id}' occurs twice{suffix}. Ids must be unique in a source.")


def coded(passage: Passage) -> Passage:
    """`passage` with the code of its language: "zh-TW" → "zh". Raises BadInput for what is no language tag, and where
    this is no passage."""
    if not isinstance(passage, Passage):
        raise BadInput(f"a {type(passage).__name__} is no passage. Give Passage(id, text, …), as `read_passages` does.")
    if passage.lang is None:
        passage = replace(passage, lang="")
    for part in (passage.id, passage.text, passage.title, passage.lang):
        if not isinstance(part, str):
            kind = type(part).__name__
            raise BadInput(f"passage {passage.id!r}: its id, text, title and language must be strings, not {kind}.")
    metadata: Any = passage.metadata
    parts = [part for pair in metadata.items() for part in pair] if isinstance(metadata, Mapping) else [None]
    if not all(isinstance(part, str) for part in parts):
        raise BadInput(f"passage {passage.id!r}: its metadata must be strings by name, not {metadata!r:.100}.")
    if not passage.lang or find_code(passage.lang) == passage.lang:
        return passage
    try:
        return replace(passage, lang=normalise_code(passage.lang))
    except BadInput as error:
        raise BadInput(f"passage '{passage.id}': {error}") from None


def distinct(passages: Iterable[Passage], keys: Keys) -> Iterator[Passage]:
    """`passages`, `coded`, whose keys join `keys`. Raises BadInput for one that is there already."""
    for passage in map(coded, passages):
        if not keys.add(passage.key):
            raise twice(passage)
        yield passage


def ranking_names(ids: Sequence[str], sources: Callable[[], Sequence[str]]) -> list[str]:
    """A name for each of some passages with which a `Run` ranks them: its id, so that ties are ordered by id
    descending. Where two have one id, all are numbered in the order of id and source; only then `sources` is asked."""
    if len(set(ids)) == len(ids):
        return list(ids)
    keys = list(zip(ids, sources(), strict=True))
    width = len(str(len(keys)))
    number = {row: at for at, row in enumerate(sorted(range(len(keys)), key=keys.__getitem__))}
    return [f"{number[row]:0{width}}" for row in range(len(keys))]


def _sources(sources: Collection[str]) -> str:
    return ", ".join(f"'{source}'" for source in sorted(sources))


MATCHED = 64
"""The best candidates by words, sounds and vectors, which are also matched subword by subword."""
OWN, FOREIGN = 0.2, 0.85
"""Weights of the dense score, beside 1 of the lexical one, where all passages are in the question's language and where
none is: docs/results/hybrid.md says what was measured."""
OWN_STATES, FOREIGN_STATES = 0.5, 1.4
"""The same for vectors that a transformer made of token states."""
UNKNOWN = 3.0
"""The weight in place of either `FOREIGN` for a question whose language is not known."""
SHORTER = 0.4
"""The loss in a passage's subword score for each factor e in its number of subwords, where all passages are in the
question's language: there many subwords are the question's own by chance."""


def share_of_own(lang: str, languages: Mapping[str, int]) -> float:
    """The share of passages in the question's language `lang` among those in `languages` (language → number of
    passages). Where the language is unknown, the mean share over questions in the languages of the passages."""
    code, counts, total = language_key(lang), Counter[str](), sum(languages.values())
    for name, count in languages.items():
        counts[language_key(name)] += count
    if not total:
        return 0.5
    return counts[code] / total if code else sum((count / total) ** 2 for count in counts.values())


def meaning_weight(share: float, known: bool = True, states: bool = False) -> float:
    """The weight of the dense score where a `share` of the passages is in the question's language. It is higher the
    smaller the share, as fewer words match, and where the language is not `known`, as the terms of many analyzers match
    by chance. `states`: the vectors come from token states."""
    own, foreign = (OWN_STATES, FOREIGN_STATES) if states else (OWN, FOREIGN)
    if not known:
        own, foreign = (own * foreign) ** 0.5, UNKNOWN
    return float(foreign ** (1 - share) * own**share)


def lexical_shares(
    question: Question,
    languages: Collection[str],
    weights: Mapping[str, float],
    lexical: Sequence[float],
    phonetic: Sequence[float],
    langs: Sequence[str],
) -> Floats:
    """[candidates]: the `lexical` scores of candidates in the languages `langs`, among passages in `languages`, each as
    a share of what a passage in its language with all terms of the question in full would score. `weights` are the
    terms'. To candidates in other languages than the question's the `phonetic` scores are added, and where such a
    language has phonetic keys, the question's are among its terms.

    Several analyzers read a question whose language is not known. That of one language may find the word Braille, that
    of another five parts of it: these together are no more of the question than the one word is.
    """
    sought = question.sought(set(langs), languages)
    by_code = {
        code: sum(times * weights.get(term, 0.0) for term, times in question.counts(code).items())
        for code in set(sought.values())
    }
    foreign = {lang: question.is_foreign(lang) for lang in sought}
    heard = {lang: foreign[lang] and find_code(lang) not in WITHOUT for lang in sought}
    of_sounds = (
        sum(times * weights.get(key, 0.0) for key, times in question.sounds.items()) if any(heard.values()) else 0
    )
    full = np.array([by_code[sought[lang]] + of_sounds * heard[lang] for lang in langs], dtype=np.float64)
    scores = np.array(lexical, dtype=np.float64)
    scores += [score * foreign[lang] for score, lang in zip(phonetic, langs, strict=True)]
    shares: Floats = np.minimum(1.0, np.divide(scores, full, where=full != 0, out=np.zeros(len(full))))
    return shares


class TokenMatcher(Protocol):
    """`StaticMaxSim`, or `StateMaxSim`: what scores passages by their subwords or tokens."""

    def question(self, text: str) -> Any:
        """The form of a question that `scores` takes."""

    def scores(self, question: Any, passages: Any) -> NDArray[np.float32]:
        """The score of each of some passages, given by its tokens."""


class Ranked(NamedTuple):
    """The places of candidates, best first, their scores in this order, and the scores "tokens" of those that were
    matched by subwords: place → score."""

    order: NDArray[np.int64]
    scores: NDArray[np.float32]
    tokens: dict[int, float]


def hybrid(
    text: str,
    docids: NDArray[np.int64],
    langs: Sequence[str],
    lexical: Floats,
    dense: Floats,
    weight: float,
    share: float,
    words: TokenMatcher | None,
    subwords: Callable[[Sequence[int]], Sequence[Sized]],
) -> Ranked:
    """Rank the candidates of the question `text`, each with its language, its `lexical` share and its `dense` score
    [candidates]; `docids` is their `View.docid_order`. `weight` is that of the dense score; `share` as `share_of_own`
    gives it.

    Where there are `words`, these score the first `MATCHED` too; `subwords` gives the subwords of candidates by their
    places, or nothing where they are not kept. `SHORTER` · `share` · ln of the number of subwords is subtracted from a
    score, and then the mean of the candidates in the same language, to which the mean of all candidates is added as one
    more. A subword is nearest to itself, so passages in the question's language have more in common with it whatever
    they say.
    """

    def ranked(meanings: Sequence[Floats], tokens: dict[int, float]) -> Ranked:
        scores = fuse(lexical, meanings, weight, share)
        order = ranking_order(scores, docids)
        return Ranked(order, scores[order], tokens)

    first = ranked([dense], {})
    places = first.order[:MATCHED].tolist()
    if words is None or not places or not (tokens := subwords(places)):
        return first
    scores = words.scores(words.question(text), tokens)
    adjusted = scores - SHORTER * share * np.log([max(1, len(ids)) for ids in tokens])
    differences = (adjusted - _means(adjusted, [langs[place] for place in places])).astype(np.float32)
    meaning = np.full(len(langs), differences.min(), dtype=np.float64)
    meaning[places] = differences
    return ranked([dense, meaning], dict(zip(places, scores.tolist(), strict=True)))


def fuse(lexical: Floats, meanings: Sequence[Floats], weight: float, share: float) -> NDArray[np.float32]:
    """Fuse the scores of one question's candidates: (lexical + `weight` · dense) / (1 + `weight`), from 0 to 1.

    Lexical is (l / b)² · b for the `lexical` share l (see `lexical_shares`) of a candidate and b of the best: little
    where few of the terms occur at all. Where none of the passages is in the question's language it is (l / b)² · √b,
    as few terms but names can occur there; with a `share` of passages in it, (l / b)² · b^((1 + share) / 2). Dense is
    the mean of the `meanings`, each min–max normalised among the candidates (½ where all are equal). All are
    [candidates].
    """
    best = max(lexical.max(initial=0.0), float(np.finfo(np.float32).tiny))
    dense = np.mean([centred(meaning, "a hybrid search") for meaning in meanings], axis=0) + 0.5
    words = (lexical / best) ** 2 * best ** ((1 + share) / 2)
    fused: NDArray[np.float64] = (words + weight * dense) / (1 + weight)
    return fused.astype(np.float32)


def _means(scores: Floats, langs: Sequence[str]) -> Floats:
    """The mean for each score: over the scores of its language and, as one more, the mean of all. Without the latter
    the only passage in a language would never be above its mean."""
    mean = sum(scores.tolist()) / len(scores)
    by_lang: dict[str, list[float]] = {}
    for score, lang in zip(scores.tolist(), langs, strict=True):
        by_lang.setdefault(lang, [mean]).append(score)
    means = {lang: sum(values) / len(values) for lang, values in by_lang.items()}
    return np.array([means[lang] for lang in langs])
