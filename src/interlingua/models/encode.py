"""Encoding many texts: tokenised in windows, sorted by length, cut into batches of a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from interlingua.errors import InterlinguaError
from interlingua.models.devices import compute_dtype
from interlingua.models.settings import Settings
from interlingua.models.subwords import Text
from interlingua.progress import track

WINDOW = 16_384
"""Texts tokenised and sorted at a time: bounds memory, and is long enough for batches of near-equal lengths."""
PACKED_TOKENS = 2_048
PADDED_TOKENS = 16_384
GPU_TOKENS = 65_536
STATIC_TOKENS = 1 << 20


class TextEncoder(Protocol):
    """What encoding needs of an `Encoder`, which is built on this and so cannot be named here."""

    settings: Settings
    training: bool
    dtype: str | torch.dtype | None

    @property
    def device(self) -> torch.device: ...
    @property
    def dim(self) -> int: ...
    @property
    def is_static(self) -> bool: ...
    @property
    def packs(self) -> bool: ...
    def eval(self) -> object: ...
    def train(self, mode: bool = True) -> object: ...
    def tokenize(
        self, texts: Sequence[Text], role: str | None = None, *, prompt: str | None = None
    ) -> list[list[int]]: ...
    def embed_ids(self, ids: Sequence[Sequence[int]]) -> Tensor: ...


def token_batches(lengths: Sequence[int], tokens: int | None = None, texts: int | None = None) -> Iterator[list[int]]:
    """Indices by falling length, in batches of at most `tokens` (longest × number) and at most `texts` texts.

    None sets no limit; a text of more than `tokens` is a batch of its own. The longest come first: if memory runs
    out it does so at once, and each later batch fits into memory that an earlier one has freed.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        count = len(order) if texts is None else texts
        if tokens is not None:
            count = max(1, min(count, tokens // max(1, lengths[order[start]])))
        yield order[start : start + count]
        start += count


def encode_texts(
    encoder: TextEncoder, texts: Sequence[Text], *, role: str | None, prompt_name: str | None, prompt: str | None,
    batch_size: int | None, progress: bool, on_device: bool,
) -> Tensor:
    """Vectors `[texts, dim]` float32 in the order of `texts`, on the CPU unless `on_device`; no gradient.

    Raises InterlinguaError when a vector is not finite.
    """
    if batch_size is not None and batch_size < 1:
        raise InterlinguaError(f"batch_size {batch_size}: must be at least 1.")
    prompt = encoder.settings.prompt(role, prompt_name, prompt)
    device = encoder.device
    result = torch.empty(len(texts), encoder.dim, device=device if on_device else "cpu")
    starts: Sequence[int] = range(0, len(texts), WINDOW)
    training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode(), _precision(encoder, device):
            for start in track(starts, "encode (windows)") if progress else starts:
                window = texts[start : start + WINDOW]
                result[start : start + len(window)] = _window(encoder, window, role, prompt, batch_size)
    finally:
        encoder.train(training)
    if not bool(torch.isfinite(result).all()):
        bad = int((~torch.isfinite(result).all(1)).nonzero()[0])
        raise InterlinguaError(f"text {bad}: its vector holds NaN or infinity. Load the encoder with dtype='float32'; "
                               "if it stays so, the weights are damaged.")
    return result


def _window(
    encoder: TextEncoder, texts: Sequence[Text], role: str | None, prompt: str, batch_size: int | None
) -> Tensor:
    ids = encoder.tokenize(texts, role, prompt=prompt)
    vectors = torch.empty(len(ids), encoder.dim, device=encoder.device)
    tokens = _budget(encoder) if batch_size is None else None
    for batch in token_batches([len(text) for text in ids], tokens, batch_size):
        vectors[torch.tensor(batch, device=vectors.device)] = encoder.embed_ids([ids[i] for i in batch]).float()
    return vectors


def _budget(encoder: TextEncoder) -> int:
    return STATIC_TOKENS if encoder.is_static else transformer_tokens(encoder.device, encoder.packs)


def transformer_tokens(device: torch.device, packs: bool) -> int:
    """Tokens a batch of a transformer, with or without padding. A CPU is fastest while the activations of a batch stay
    in its cache; a GPU wants many."""
    if device.type != "cpu":
        return GPU_TOKENS
    return PACKED_TOKENS if packs else PADDED_TOKENS


def _precision(encoder: TextEncoder, device: torch.device) -> AbstractContextManager[object]:
    chosen = precision(device, encoder.dtype)  # also for a static encoder: a dtype that the device lacks is an error
    return nullcontext() if encoder.is_static else chosen


def precision(device: torch.device, dtype: str | torch.dtype | None) -> AbstractContextManager[object]:
    """The autocast in which a transformer computes in `dtype` (None: what suits the device)."""
    chosen = compute_dtype(device, dtype)
    return nullcontext() if chosen == torch.float32 else torch.autocast(device.type, chosen)
