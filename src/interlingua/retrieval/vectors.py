"""Texts to vectors that are safe to search: checked, float32, of unit length where the similarity is cosine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError

Vectors = NDArray[np.float32]


class TextEncoder(Protocol):
    """What search needs of a model. `interlingua.models.DualEncoder` is one. The option `lang`, a language code or a
    list with one or None for each text, always comes along: calibrated encoders use it."""

    @property
    def similarity(self) -> str:
        """`"cosine"` or `"dot"`."""

    def encode_query(self, sentences: Any, **options: Any) -> Any:
        """Vectors `[texts, dim]` of questions."""

    def encode_document(self, sentences: Any, **options: Any) -> Any:
        """Vectors `[texts, dim]` of passages, each a string or a `(title, text)` pair."""


@runtime_checkable
class PassageVectors(Protocol):
    """An encoder that has the vectors of passages already (`interlingua.retrieval.encoded_parts`)."""

    def passage_vectors(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors `[passages, dim]` as `embed_passages` gave them."""


def embed_queries(encoder: TextEncoder, queries: Sequence[Query], **options: Any) -> Vectors:
    """Vectors `[queries, dim]`, float32, checked and ready for a dot product. `options` go to `encode_query`, with
    the queries' languages as `lang` unless they name it."""
    langs = [query.lang or None for query in queries]
    vectors = encoder.encode_query([query.text for query in queries], **{"lang": langs, **options})
    return searchable(vectors, encoder.similarity, [query.id for query in queries], "query")


def embed_passages(encoder: TextEncoder, passages: Sequence[Passage], **options: Any) -> Vectors:
    """Vectors `[passages, dim]`, float32, checked and ready for a dot product. `options` go to `encode_document`,
    with the passages' languages as `lang` unless they name it."""
    if isinstance(encoder, PassageVectors):
        return encoder.passage_vectors(passages)
    texts = passage_texts(passages)
    langs = [passage.lang or None for passage in passages]
    vectors = encoder.encode_document(texts, **{"lang": langs, **options})
    return searchable(vectors, encoder.similarity, [passage.id for passage in passages], "passage")


def passage_texts(passages: Sequence[Passage]) -> list[str | tuple[str, str]]:
    """Passages as encoders take them: (title, text), or the text alone where there is no title."""
    return [(passage.title, passage.text) if passage.title else passage.text for passage in passages]


def searchable(vectors: Any, similarity: str, ids: Sequence[str], what: str) -> Vectors:
    """`vectors` `[texts, dim]` as float32, divided by their lengths where `similarity` is "cosine".

    Raises InterlinguaError naming the first text whose vector is not finite, or is zero under cosine.
    """
    if similarity not in ("cosine", "dot"):
        raise InterlinguaError(f"similarity '{similarity}': must be 'cosine' or 'dot'.")
    array: Vectors = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or len(array) != len(ids):
        raise InterlinguaError(f"the encoder gave vectors of shape {array.shape} for {len(ids)} texts ({what}); "
                               f"[{len(ids)}, dim] was expected.")
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise InterlinguaError(f"{what} '{ids[int(bad.argmax())]}': its vector holds NaN or infinity ({int(bad.sum())} "
                               f"of {len(ids)} do). The model or its number format is at fault: try float32.")
    if similarity == "dot":
        return array
    # in float64, since the square of a component under 1e-23 is zero in float32
    lengths = np.sqrt(np.einsum("nd,nd->n", array, array, dtype=np.float64))
    zero = lengths == 0
    if zero.any():
        raise InterlinguaError(f"{what} '{ids[int(zero.argmax())]}': its vector is zero ({int(zero.sum())} of"
                               f" {len(ids)} are), so it has no cosine. Is its text empty?")
    normalised: Vectors = array / lengths.astype(np.float32)[:, None]
    return normalised
