"""The hybrid ranking of an index: words, meaning, and where the encoder is static also meaning subword by subword."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from interlingua.retrieval.fusion import normalised
from interlingua.retrieval.run import Run
from interlingua.retrieval.static_maxsim import Ids, StaticMaxSim
from interlingua.text.languages import find_code

MATCHED = 64
"""The best candidates by words and vectors, which are also matched subword by subword."""
OWN, FOREIGN = 0.2, 0.7
"""Weights of meaning, words having 1, where all passages are in the question's language and where none is:
docs/search.md says what was measured."""
SHORTER = 0.4
"""How much of its score by subwords a passage loses each time that it has e times as many of them, where all passages
are in the question's language: there many subwords are the question's own by chance."""


def share_of_own(lang: str, languages: Mapping[str, int]) -> float:
    """Of passages in `languages` (how many in each) the share in the language `lang` of a question; ½ if that is
    unknown."""
    code, total = find_code(lang) or "", sum(languages.values())
    own = sum(count for name, count in languages.items() if (find_code(name) or "") == code)
    return own / total if code and total else 0.5


def meaning_weight(share: float) -> float:
    """The weight of meaning where a `share` of the passages is in the question's language: words say less, the fewer
    are."""
    return float(FOREIGN ** (1 - share) * OWN**share)


def hybrid(text: str, parts: dict[str, dict[str, float]], most: float, share: float, langs: Mapping[str, str],
           words: StaticMaxSim | None, subwords: Callable[[str], Ids]) -> Run:
    """The ranking of the candidates of the question `text`, "q", by `parts`: their "lexical" and "dense" scores, each
    for all of them. `most` as in `fuse`; `share` as `share_of_own` gives it.

    Where there are `words`, the first `MATCHED` are scored by these too, as "tokens" in `parts`; `subwords` gives those
    of a candidate. What counts is a score less `SHORTER` · `share` · ln of the number of subwords, and by how much that
    is above the mean of the candidates in the same language and of one more that is as all of them are (`langs`:
    candidate → language): a subword is nearest to itself, so passages in the question's language have more in common
    with it whatever they say.
    """
    weight = meaning_weight(share)
    run = fuse(parts["lexical"], most, [parts["dense"]], weight)
    names = run.ids("q")[:MATCHED]
    if words is None or not names:
        return run
    held = [subwords(name) for name in names]
    scores = words.scores(words.question(text), held)
    parts["tokens"] = dict(zip(names, scores.tolist(), strict=True))
    fair = scores - SHORTER * share * np.log([max(1, len(ids)) for ids in held])
    above = fair - _means(fair, [langs[name] for name in names])
    return fuse(parts["lexical"], most, [parts["dense"], dict(zip(names, above.tolist(), strict=True))], weight)


def fuse(lexical: Mapping[str, float], most: float, meanings: Sequence[Mapping[str, float]], weight: float) -> Run:
    """(words + `weight` · meaning) / (1 + `weight`), from 0 to 1, for the candidates of one question, "q".

    Words are the `lexical` score as a share of the best candidate's, times its share of the `most` that the question's
    terms could give: little where few of them occur at all, as in a language that is not the question's. Meaning is the
    mean of other scores, each brought to 0 to 1 among the candidates (½ where all are equal); a candidate that one is
    missing for gets its lowest.
    """
    run = Run()
    whole = max(most * max(lexical.values(), default=0.0), float(np.finfo(np.float32).tiny))
    for query, ids, scores in normalised([Run.from_scores({"q": dict(held)}) for held in meanings]):
        share = np.array([lexical[name] for name in ids]) ** 2 / whole
        run.add(query, ids, (share + weight * (scores.mean(axis=0) + 0.5)) / (1 + weight))
    return run


def _means(scores: NDArray[np.float64], langs: Sequence[str]) -> NDArray[np.float64]:
    """For each score the mean of those of its language and of the mean of all, summed one after another. Without the
    latter the only passage in a language would never be above."""
    every = sum(scores.tolist()) / len(scores)
    held: dict[str, list[float]] = {}
    for score, lang in zip(scores.tolist(), langs, strict=True):
        held.setdefault(lang, [every]).append(score)
    means = {lang: sum(found) / len(found) for lang, found in held.items()}
    return np.array([means[lang] for lang in langs])
