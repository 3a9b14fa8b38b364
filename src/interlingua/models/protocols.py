"""Encoder and MultiVectorEncoder: what every other part of the package asks of a model.

Any object with these methods can be evaluated, indexed and served (`examples/own_encoder.py` has one). The contract
of both:

- **Texts** are raw: a string, or a `(title, text)` pair for a passage with a title. The encoder adds its own prompt for
  the role, joins title and text, and cuts what is too long.
- **Options.** Callers may pass options; an encoder may ignore them. `lang` is always passed: a language code, or a list
  with a code or None for each text. A calibrated encoder applies the map of that language.
- **Order.** The vectors come in the order of the texts. A text's vector does not depend on the other texts of the call,
  apart from rounding.
- **Device.** The encoder computes where its weights are; what it returns lies on the CPU.
- **Similarity** says how vectors are compared. It does not change.
- **Fingerprint.** `interlingua.models.folder.fingerprint(encoder)` is equal for encoders that give the same vectors,
  whatever their device. An index refuses an encoder of another fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from interlingua.models.encode import TokenVectors

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """One vector a text: a transformer, static vectors, a dual encoder, each calibrated or not."""

    @property
    def similarity(self) -> str:
        """`"cosine"` or `"dot"`."""

    def encode_query(self, sentences: Sequence[str], **options: Any) -> Vectors:
        """Vectors `[texts, dim]` of questions."""

    def encode_document(self, sentences: Sequence[str | tuple[str, str]], **options: Any) -> Vectors:
        """Vectors `[texts, dim]` of passages."""


class MultiVectorEncoder(Protocol):
    """One vector a token (late interaction)."""

    @property
    def similarity(self) -> str:
        """`"maxsim"`."""

    def encode_query(self, sentences: Sequence[str], **options: Any) -> TokenVectors:
        """Token vectors `[tokens of all texts, dim]` of questions, and how many each has."""

    def encode_document(self, sentences: Sequence[str | tuple[str, str]], **options: Any) -> TokenVectors:
        """Token vectors of passages, as `encode_query`."""


AnyEncoder = Encoder | MultiVectorEncoder


def has_token_vectors(encoder: AnyEncoder) -> TypeIs[MultiVectorEncoder]:
    """Whether it gives one vector a token, by its `similarity`."""
    return encoder.similarity == "maxsim"


def has_token_states(encoder: AnyEncoder | None) -> bool:
    """Whether its vectors are made of a transformer's token states: it is ours, gives one vector a text, and is not
    static."""
    return getattr(encoder, "is_static", True) is False
