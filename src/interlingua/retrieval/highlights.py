"""Which words of a passage answer to a question: those with its terms, and those near its tokens in any language."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlingua.data.records import Passage
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.retrieval.index_lexical import question_terms
from interlingua.retrieval.near_words import Span, near_words
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers.grams import CLUSTER, CLUSTERS, SOUTH_EAST
from interlingua.text.analyzers.words import RUN
from interlingua.text.detect import detect_language
from interlingua.text.languages import find_code

ALIKE = 0.5
"""Share of a word's terms that must be the question's: all of a stem, half of a stem with n-grams."""
NEAR = 0.6  # cosine from which a token of the passage stands for one of the question


def highlights(question: str, passage: Passage, lang: str = "", encoder: Any = None) -> list[Span]:
    """Spans of characters of `passage.text`, in order and apart from each other, that answer to `question`.

    They are the words whose terms are the question's. `lang` is the language of the question, detected if not given.
    With an `encoder` of late interaction, or a static one, also those that are the nearest to a word of the question,
    whatever language either is in.
    """
    lang = lang or detect_language(question)
    asked = question_terms(question, lang, [passage.lang, lang])
    asked |= question_terms(question, passage.lang, [passage.lang])
    cut = analyzer(find_code(passage.lang) or "")
    found = [span for span in _pieces(passage.text) if _alike(cut, passage.text[slice(*span)], set(asked))]
    if isinstance(encoder, LateInteractionEncoder):
        found += _nearest(question, lang, passage.text, encoder)
    else:
        found += near_words(question, passage.text, encoder, analyzer(find_code(lang) or ""), cut)
    return _joined(sorted(found))


def marker(reranker: Any, index: Any, mode: str) -> Any:
    """What `highlights` of the hits of a search are made with: the model of late interaction that reranked, else the
    encoder of the `index`; none where it found by words alone."""
    if isinstance(reranker, LateInteractionEncoder):
        return reranker
    return None if mode == "lexical" else index.encoder


def _pieces(text: str) -> Iterator[Span]:
    """Words; where a script puts no spaces between them, what its n-grams are made of."""
    for word in RUN.finditer(text):
        if word.start("unspaced") < 0:
            yield word.span()
            continue
        clusters = [(word.start() + one.start(), word.start() + one.end()) for one in CLUSTER.finditer(word[0])]
        size = min(CLUSTERS if SOUTH_EAST.match(word[0]) else 2, len(clusters))
        yield from ((clusters[at][0], clusters[at + size - 1][1]) for at in range(len(clusters) - size + 1))


def _alike(cut: Analyzer, word: str, asked: set[str]) -> bool:
    terms = cut(word)
    if terms and terms[-1] == word and len(word) == 2:
        terms = [word]  # two Chinese or Japanese characters count as a pair, not each by itself
    return bool(terms) and sum(term in asked for term in terms) >= ALIKE * len(terms)


def _nearest(question: str, lang: str, text: str, encoder: LateInteractionEncoder) -> list[Span]:
    """The words of `text` nearest to each word of the question that is no stopword."""
    queries, theirs = encoder.encode_query([question])[0], _tokens(encoder, question, "query")
    documents, ours = encoder.encode_document([text])[0], _tokens(encoder, text, "document")
    cut = analyzer(find_code(lang) or "")
    words = [word.span() for word in RUN.finditer(text)]
    found = []
    for row, (start, end) in theirs:
        word = next((one.span() for one in RUN.finditer(question) if one.start() < end and start < one.end()), None)
        if word is None or not cut(question[slice(*word)]) or not ours:
            continue
        similar, place = (documents[[row for row, _ in ours]] @ queries[row]).max(dim=0)
        if float(similar) >= NEAR:
            begin, stop = ours[int(place)][1]
            found += [span for span in words if span[0] < stop and begin < span[1]]
    return found


def _tokens(encoder: LateInteractionEncoder, text: str, role: str) -> list[tuple[int, Span]]:
    """The tokens of `text` that have a vector: its row, and the characters it stands for."""
    ids = encoder.tokenize([text], role)[0]
    plain = encoder.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    own, spans = plain["input_ids"], plain["offset_mapping"]
    first = next((at for at in range(len(ids)) if own and ids[at] == own[0]), len(ids))
    skipped = set(encoder.tokenizer.convert_tokens_to_ids(list(encoder.skipped))) if role == "document" else set()
    found, row = [], sum(id not in skipped for id in ids[:first])
    for id, known, span in zip(ids[first:], own, spans, strict=False):
        if id != known:
            break  # cut off here
        if id not in skipped:
            found.append((row, tuple(span)))
            row += 1
    return found


def _joined(spans: list[Span]) -> list[Span]:
    """Spans that overlap or touch become one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
