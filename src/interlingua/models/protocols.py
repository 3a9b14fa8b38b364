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

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor
    from typing_extensions import TypeIs

    from interlingua.models.encode import TokenVectors
    from interlingua.models.subwords import Text

Vectors = NDArray[np.float32]


def as_texts(sentences: Any) -> tuple[list[Any], bool]:
    """The texts of a call of `encode`, and whether it was a single one. Raises BadInput for a set, which has no order,
    and for what is no list of texts."""
    if isinstance(sentences, str):
        return [sentences], True
    if not isinstance(sentences, Iterable) or isinstance(sentences, (bytes, Mapping, set, frozenset)):
        raise BadInput(f"{type(sentences).__name__} given to encode: give a text, or a list of texts.")
    return list(sentences), False


def check_dimensions(count: int, dim: int) -> int:
    """`count`, or BadInput where vectors of `dim` dimensions cannot be cut to so many."""
    if not isinstance(count, Integral):
        raise BadInput(f"truncate_dim {count}: must be a whole number, at least 1.")
    if not 1 <= count <= dim:
        raise BadInput(f"truncate_dim {count}: must be at least 1, and at most the {dim} dimensions of the vectors.")
    return count


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
Role = Literal["query", "passage"]
"""It decides the prompt, the length limit and, of two encoders, the one that reads a text."""


def encode_as(encoder: Encoder, role: Role) -> Callable[..., Vectors]:
    """The method that encodes in this role."""
    return encoder.encode_query if role == "query" else encoder.encode_document


def has_token_vectors(encoder: AnyEncoder) -> TypeIs[MultiVectorEncoder]:
    """Whether it gives one vector a token, by its `similarity`."""
    return encoder.similarity == "maxsim"


class EncodesByRole(Encoder):
    """The two methods of an `Encoder` of ours, by `encode` of a role: NumPy arrays, or tensors where these are asked
    for, as in `interlingua.Encoder.encode`."""

    def _encode(self, sentences: str | Sequence[Text], role: str, **options: Any) -> Vectors | Tensor | list[Tensor]:
        raise NotImplementedError

    @overload
    def encode_query(
        self, sentences: str | Sequence[Text], *, convert_to_tensor: Literal[True], **options: Any
    ) -> Tensor: ...
    @overload
    def encode_query(
        self, sentences: str | Sequence[Text], *, convert_to_numpy: Literal[False], **options: Any
    ) -> Tensor | list[Tensor]: ...
    @overload
    def encode_query(self, sentences: str | Sequence[Text], **options: Any) -> Vectors: ...
    def encode_query(self, sentences: str | Sequence[Text], **options: Any) -> Vectors | Tensor | list[Tensor]:
        """Vectors of queries, `[texts, dim]`; of a single string `[dim]`. Options are those of `Encoder.encode`, `lang`
        for a calibrated model among them."""
        return self._encode(sentences, "query", **options)

    @overload
    def encode_document(
        self, sentences: str | Sequence[Text], *, convert_to_tensor: Literal[True], **options: Any
    ) -> Tensor: ...
    @overload
    def encode_document(
        self, sentences: str | Sequence[Text], *, convert_to_numpy: Literal[False], **options: Any
    ) -> Tensor | list[Tensor]: ...
    @overload
    def encode_document(self, sentences: str | Sequence[Text], **options: Any) -> Vectors: ...
    def encode_document(self, sentences: str | Sequence[Text], **options: Any) -> Vectors | Tensor | list[Tensor]:
        """Vectors of passages, as `encode_query`."""
        return self._encode(sentences, "passage", **options)


@runtime_checkable
class HasTokenStates(Encoder, Protocol):
    """An encoder of ours that gives one vector a text; where it is not static, a transformer's token states are
    behind it."""

    @property
    def is_static(self) -> bool:
        """Whether there is no transformer."""


def has_token_states(encoder: AnyEncoder | None) -> TypeIs[HasTokenStates]:
    """Whether its vectors are made of a transformer's token states: it is ours, gives one vector a text, and is not
    static."""
    return isinstance(encoder, HasTokenStates) and not encoder.is_static


def side_of(encoder: object, role: str) -> Any:
    """The whole encoder of "query" or "passage": a part of a dual encoder, else the encoder itself."""
    return getattr(encoder, "query" if role == "query" else "passage", encoder)
