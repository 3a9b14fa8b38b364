"""Late interaction with a transformer that gives one vector a text: MaxSim over the states of its tokens.

    score(q, d) = 1/|q| · Σ_i max_j cos(q_i, d_j)

for the last states of the tokens i of a question and j of a passage (Khattab & Zaharia 2020), without special tokens
and the prompt. `interlingua tokens INDEX` keeps those of passages; docs/results/hybrid.md says what they bring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.models.protocols import AnyEncoder, HasTokenStates, MultiVectorEncoder, has_token_states, side_of
from interlingua.models.subwords import Text

if TYPE_CHECKING:
    from torch import Tensor

    from interlingua.models.encode import TokenVectors
    from interlingua.retrieval.late_interaction.token_store import TokenStore

Floats = NDArray[np.float32]
Row = TypeVar("Row")


class TokenStates(MultiVectorEncoder):
    """A `MultiVectorEncoder` of the token states of `encoder`, one that gives one vector a text by a transformer."""

    similarity = "maxsim"
    skipped: tuple[str, ...] = ()

    def __init__(self, encoder: HasTokenStates) -> None:
        self.states_of = encoder
        """The encoder, of whose fingerprint this one's is made."""

    @classmethod
    def of(cls, encoder: AnyEncoder | None, before: TokenStates | None = None) -> TokenStates | None:
        """Wrap an encoder; None for one that has no token states. `before` is returned where it wraps the same one."""
        if not has_token_states(encoder):
            return None
        return before if before is not None and before.states_of is encoder else cls(encoder)

    def encode_query(self, sentences: Sequence[str], **_: Any) -> TokenVectors:
        """Unit vectors `[tokens of all texts, hidden]` of questions."""
        return self._encode(sentences, "query")

    def encode_document(self, sentences: Sequence[Text], **_: Any) -> TokenVectors:
        """Unit vectors of the tokens of passages."""
        return self._encode(sentences, "passage")

    def spans(self, text: str, role: str) -> list[tuple[int, int]]:
        """The characters that each vector of a text stands for, in order, as far as the prompt leaves its tokens as
        they are."""
        side = side_of(self.states_of, role)
        ids, bare = side.tokenize([text], role)[0], side.tokenize([""], role)[0]
        own, placed = _inside(ids, bare), side.backbone.subwords.spans(text)
        before = ids[own.start - 1] if own.start else None
        if placed and placed[0][0] == before and ids[own][:1] != [before]:
            placed = placed[1:]  # a bare "▁" with which prompt and text both begin their last and first word
        spans = []
        for id, (subword, span) in zip(ids[own], placed, strict=False):
            if id != subword:
                break
            spans.append(span)
        return spans

    def _encode(self, texts: Sequence[Text], role: str) -> TokenVectors:
        import torch
        from torch.nn.functional import normalize

        from interlingua.models.encode import TokenVectors, embed_in_batches, precision, transformer_tokens

        side = side_of(self.states_of, role)
        ids, bare = side.tokenize(texts, role), side.tokenize([""], role)[0]
        if not ids:
            return TokenVectors(torch.empty(0, side.hidden_size), [])

        def states(batch: list[list[int]]) -> TokenVectors:
            vectors, lengths = side.token_states(batch)
            return TokenVectors(vectors.float().cpu(), lengths.tolist())

        with torch.inference_mode(), precision(side.device, side.dtype):
            vectors = embed_in_batches(ids, states, transformer_tokens(side.device, side.packs))
        parts = [rows[_inside(text, bare)] for text, rows in zip(ids, vectors, strict=True)]
        return TokenVectors(normalize(torch.cat(parts), dim=-1), [len(part) for part in parts])


def _inside(ids: Sequence[int], bare: Sequence[int]) -> slice:
    """The place of a text's own tokens among its `ids`: between the prompt and the special tokens, which are `bare`."""
    before = next((at for at, (a, b) in enumerate(zip(ids, bare, strict=False)) if a != b), len(bare))
    return slice(before, max(before, len(ids) - (bool(bare) and ids[-1] == bare[-1])))


class PassageTokens(NamedTuple):
    """The token vectors of a passage: their store and row there, and their number."""

    store: TokenStore
    row: int
    size: int

    def __len__(self) -> int:
        """The number of tokens."""
        return self.size


class StateMaxSim(Generic[Row]):
    """MaxSim between questions and passages by `states`, for the third part of hybrid search."""

    def __init__(self, states: TokenStates) -> None:
        self.states = states

    @classmethod
    def of(cls, states: TokenStates | None, are_kept: Callable[[TokenStates], bool]) -> Self | None:
        """That of the states, where an index keeps any of them."""
        return None if states is None or not are_kept(states) else cls(states)

    def tokens(
        self,
        rows: Sequence[Row],
        kept: Mapping[Row, tuple[TokenStore, int]],
        passages: Callable[[Sequence[Row]], Sequence[Passage]],
    ) -> list[PassageTokens]:
        """The token vectors of each of `rows`, those that are not `kept` encoded now."""
        from interlingua.retrieval.late_interaction.retriever import passage_tokens  # loads torch
        from interlingua.retrieval.late_interaction.token_store import TokenStore

        places = dict(kept)
        if new := [row for row in rows if row not in kept]:
            # by number: passages of two sources may have one id, and a store takes each once
            numbered = [replace(passage, id=str(number)) for number, passage in enumerate(passages(new))]
            store = TokenStore.build(passage_tokens(self.states, numbered), dtype="int8")
            places |= {row: (store, number) for number, row in enumerate(new)}
        return [PassageTokens(*places[row], int(places[row][0].counts[places[row][1]])) for row in rows]

    def question(self, text: str) -> Tensor:
        """The token vectors `[tokens, hidden]` of a question."""
        return self.states.encode_query([text])[0]

    def scores(self, question: Tensor, passages: Sequence[PassageTokens]) -> Floats:
        """`[passages]`: the score of each, from −1 to 1; 0 where either side has no tokens."""
        from interlingua.retrieval.late_interaction.maxsim import maxsim_scores

        scores: Floats = np.zeros(len(passages), np.float32)
        for store in {id(one.store): one.store for one in passages}.values():
            numbers = np.array([number for number, one in enumerate(passages) if one.store is store and one.size])
            if len(question) and len(numbers):
                rows = np.array([passages[number].row for number in numbers.tolist()])
                scores[numbers] = maxsim_scores(question, store, rows) / np.float32(len(question))
        return scores
