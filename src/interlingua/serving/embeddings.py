"""What a batch of embeddings or of reranking runs: all texts of all requests through the model at once."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.model_retriever import model_retriever
from interlingua.serving.errors import ApiError
from interlingua.serving.schemas import MAX_TEXT
from interlingua.serving.searches import finite
from interlingua.text.detect import detect_language
from interlingua.text.normalise import nfkc

MAX_TEXTS = 4 << 20
"""Characters that all texts of a request may have in NFKC: as many as a body has bytes."""


class Embedded(NamedTuple):
    """Vectors of one request, as JSON has them, and how many tokens were read."""

    vectors: list[Any]
    tokens: int


@dataclass(frozen=True)
class Embeddings:
    """The options that requests of one batch share. An item is the texts of a request. A calibrated model needs their
    languages, which are recognised."""

    index: Any
    role: str
    dimensions: int | None
    base64: bool

    def __call__(self, items: Sequence[Sequence[str]]) -> list[Embedded]:
        for item in items:
            check_lengths(item)
        texts = [text for item in items for text in item]
        encoder = self.index.encoder
        encode = encoder.encode_query if self.role == "query" else encoder.encode_document
        vectors = cut(encode(texts, lang=[detect_language(text) or None for text in texts]), self.dimensions)
        tokens = count_tokens(encoder, texts, self.role)
        ends = np.cumsum([len(item) for item in items]).tolist()
        return [Embedded(self._rows(vectors[end - len(item) : end]), sum(tokens[end - len(item) : end]))
                for item, end in zip(items, ends, strict=True)]

    def _rows(self, vectors: NDArray[np.float32]) -> list[Any]:
        if self.base64:
            return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        rows: list[Any] = vectors.tolist()
        return rows


def check_lengths(texts: Sequence[str]) -> None:
    """Raise ApiError 422 for texts that grow too long in NFKC, which a model reads: one character may become 18."""
    whole = 0
    for number, text in enumerate(texts, 1):
        length = len(text) if text.isascii() else len(nfkc(text))
        whole += length
        if length > MAX_TEXT or whole > MAX_TEXTS:
            raise ApiError(422, "invalid_request", f"text {number} of {len(texts)}: in Unicode's form NFKC it has "
                           f"{length:,} characters, and those up to it {whole:,}. At most {MAX_TEXT:,} of one text and "
                           f"{MAX_TEXTS:,} of all are read.")


def cut(vectors: Any, dimensions: int | None) -> NDArray[np.float32]:
    """The first `dimensions` of each vector, brought to unit length again; all of them as they are without it.

    Raises InterlinguaError when the vectors have fewer.
    """
    array: NDArray[np.float32] = np.asarray(vectors, dtype=np.float32)
    if dimensions is None or dimensions == array.shape[1]:
        return array
    if dimensions > array.shape[1]:
        raise InterlinguaError(f"dimensions: {dimensions} is more than the {array.shape[1]} that the model gives.")
    array = array[:, :dimensions]
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    shorter: NDArray[np.float32] = np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)
    return shorter


def count_tokens(encoder: Any, texts: Sequence[str], role: str) -> list[int]:
    """Tokens of each text as the model reads it, cut to its length; 0 for a model that is not one of ours."""
    if not hasattr(encoder, "encoder"):
        return [0] * len(texts)
    return [len(ids) for ids in encoder.encoder(role).tokenize(texts, role)]


@dataclass(frozen=True)
class Reranks:
    """An item is a question and its documents; the result, each document's score: MaxSim of a late-interaction model,
    else the similarity of the vectors."""

    encoder: Any

    def __call__(self, items: Sequence[tuple[str, Sequence[str]]]) -> list[list[float | None]]:
        for _, documents in items:
            check_lengths(documents)
        queries = [Query(str(number), query) for number, (query, _) in enumerate(items)]
        names = {str(number): [f"{number}:{place}" for place in range(len(documents))]
                 for number, (_, documents) in enumerate(items)}
        passages = [Passage(name, text) for number, (_, documents) in enumerate(items)
                    for name, text in zip(names[str(number)], documents, strict=True)]
        run = model_retriever(self.encoder, passages).score(queries, names)
        found = {query: dict(run[query]) for query in names}
        return [[finite(found[query][name]) for name in ids] for query, ids in names.items()]
