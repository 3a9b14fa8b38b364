"""Encoding many texts into token vectors: as `encode.py` does for one vector a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from interlingua.errors import InterlinguaError
from interlingua.models.encode import WINDOW, precision, token_batches, transformer_tokens
from interlingua.models.subwords import Text
from interlingua.models.token_vectors import TokenVectors
from interlingua.progress import track


class TokenEncoder(Protocol):
    """What encoding needs of a `LateInteractionEncoder`, which is built on this and so cannot be named here."""

    training: bool
    dtype: str | torch.dtype | None

    @property
    def device(self) -> torch.device: ...
    @property
    def dim(self) -> int: ...
    @property
    def packs(self) -> bool: ...
    def eval(self) -> object: ...
    def train(self, mode: bool = True) -> object: ...
    def tokenize(self, texts: Sequence[Text], role: str) -> list[list[int]]: ...
    def embed_ids(self, ids: Sequence[Sequence[int]], role: str) -> TokenVectors: ...


def encode_tokens(encoder: TokenEncoder, texts: Sequence[Text], *, role: str, batch_size: int | None, progress: bool,
                  on_device: bool) -> TokenVectors:
    """Token vectors in the order of `texts`, float32, on the CPU unless `on_device`; no gradient.

    Raises InterlinguaError when a vector is not finite.
    """
    if batch_size is not None and batch_size < 1:
        raise InterlinguaError(f"batch_size {batch_size}: must be at least 1.")
    device = encoder.device
    if not texts:
        return TokenVectors(torch.empty(0, encoder.dim, device=device if on_device else "cpu"), [])
    budget = transformer_tokens(device, encoder.packs) if batch_size is None else None
    pieces: list[TokenVectors] = []
    order: list[int] = []
    starts: Sequence[int] = range(0, len(texts), WINDOW)
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode(), precision(device, encoder.dtype):
            for start in track(starts, "encode (windows)") if progress else starts:
                ids = encoder.tokenize(texts[start : start + WINDOW], role)
                for batch in token_batches([len(text) for text in ids], budget, batch_size):
                    found = encoder.embed_ids([ids[i] for i in batch], role)
                    pieces.append(found if on_device else TokenVectors(found.vectors.cpu(), found.counts))
                    order.extend(start + i for i in batch)
    finally:
        encoder.train(training)
    whole = TokenVectors.join(pieces).select(sorted(range(len(order)), key=order.__getitem__))
    if not bool(torch.isfinite(whole.vectors).all()):
        bad = next(number for number, vectors in enumerate(whole) if not torch.isfinite(vectors).all())
        raise InterlinguaError(f"text {bad}: its token vectors hold NaN or infinity. Load the encoder with "
                               "dtype='float32'; if it stays so, the weights are damaged.")
    return whole
