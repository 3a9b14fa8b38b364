"""Which words of a text say what a word of the question says, by the token vectors of a model of late interaction."""

from __future__ import annotations

from interlingua.index.near_words import Span
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.text.analyzers import Analyzer
from interlingua.text.analyzers.segment import RUN

NEAR_TOKEN = 0.6
"""Cosine from which a token of the text stands for one of the question."""


class NearTokens:
    """The tokens of a question, to be found in texts by what they say. `cut` is the analyzer of the question's
    language: words that it leaves out are not looked for."""

    def __init__(self, question: str, encoder: LateInteractionEncoder, cut: Analyzer) -> None:
        self._encoder = encoder
        self._vectors = encoder.encode_query([question])[0]
        words = [word.span() for word in RUN.finditer(question)]
        self._rows = [
            row
            for row, (start, end) in _tokens(encoder, question, "query")
            if (word := next((one for one in words if one[0] < end and start < one[1]), None)) is not None
            and cut(question[slice(*word)])
        ]

    def spans(self, text: str, cut: Analyzer) -> list[Span]:
        """Spans of characters of `text`: the words in which each of these tokens has its nearest, where it is near
        enough."""
        if not self._rows:
            return []
        vectors, tokens = self._encoder.encode_document([text])[0], _tokens(self._encoder, text, "document")
        words, found = [word.span() for word in RUN.finditer(text)], []
        for row in self._rows if tokens else ():
            similar, place = (vectors[[row for row, _ in tokens]] @ self._vectors[row]).max(dim=0)
            if float(similar) >= NEAR_TOKEN:
                begin, stop = tokens[int(place)][1]
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
