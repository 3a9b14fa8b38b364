"""Encode many texts: devices, sorting by length, batches of a token budget, ragged token vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from interlingua.errors import BadInput
from interlingua.models.inference.machine import cpu_has_bfloat16 as cpu_has_bfloat16
from interlingua.models.inference.packing import PACKED_TOKENS
from interlingua.models.inference.packing import token_batches as token_batches
from interlingua.models.subwords import Text
from interlingua.progress import track

_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def default_device(device: str | torch.device | None) -> torch.device:
    """`device`, or the CUDA device if there is one, or the CPU. Raises BadInput for one that is not there."""
    found = _device(device)
    if found.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (found.index or 0) >= count:
            there = f"there are {count}, from cuda:0 on" if count else "no CUDA device is there"
            raise BadInput(f"device {str(device)!r}: {there}. Use 'cpu', or leave it out.")
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise BadInput(f"device {str(device)!r}: is not there. Use 'cpu', or leave it out.")
    return found


def _device(device: str | torch.device | None) -> torch.device:
    """As `default_device`, there or not."""
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise BadInput(f"device {device!r} is not known. Use 'cpu', 'cuda' or 'cuda:1'.") from error


def on_processor(precision: str | None, device: str | torch.device | None) -> str | None:
    """`precision` where a processor computes; None on a GPU, which has formats of its own."""
    return precision if _device(device).type == "cpu" else None


def compute_dtype(device: torch.device, asked: str | torch.dtype | None) -> torch.dtype:
    """The format `encode` computes in: float32 on a CPU, float16 on CUDA (as DPR encodes), or what was asked for.

    Raises BadInput when the processor would only emulate what was asked for.
    """
    if asked is None:
        return torch.float16 if device.type == "cuda" else torch.float32
    dtype = _DTYPES.get(asked) if isinstance(asked, str) else asked
    if dtype is None or dtype not in _DTYPES.values():
        raise BadInput(f"dtype {asked!r} is not supported. Use {', '.join(_DTYPES)}.")
    if device.type == "cpu" and (dtype == torch.float16 or (dtype == torch.bfloat16 and not cpu_has_bfloat16())):
        raise BadInput(f"dtype {asked}: this CPU would emulate it, slower than float32. Leave dtype out.")
    return dtype


@contextmanager
def full_float32() -> Iterator[None]:
    """Within the block no TF32: a training run may have allowed it, and its 10-bit mantissa makes ties."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """`vectors` `[tokens of all texts, dim]`, and `counts`, how many of them each text has, in order.

    Everything here is differentiable. Raises BadInput when the counts do not add up to the vectors.
    """

    vectors: Tensor
    counts: list[int]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or sum(self.counts) != len(self.vectors) or min(self.counts, default=0) < 0:
            raise BadInput(
                f"token vectors must be [tokens of all texts, dim]; got {list(self.vectors.shape)} "
                f"for {len(self.counts)} texts of {sum(self.counts)} tokens together."
            )

    @classmethod
    def one_each(cls, vectors: Tensor) -> TokenVectors:
        """`vectors` `[texts, dim]`, one a text."""
        return cls(vectors, [1] * len(vectors))

    @classmethod
    def join(cls, parts: Iterable[TokenVectors]) -> TokenVectors:
        """The texts of all parts in order. Raises BadInput without a part, since the size is then unknown."""
        parts = list(parts)
        if not parts:
            raise BadInput("token vectors: there is nothing to join.")
        return cls(torch.cat([part.vectors for part in parts]), [count for part in parts for count in part.counts])

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.counts)

    def __getitem__(self, text: int) -> Tensor:
        """The vectors of one text, `[count, dim]`."""
        text = range(len(self.counts))[text]
        start = sum(self.counts[:text])
        return self.vectors[start : start + self.counts[text]]

    def __iter__(self) -> Iterator[Tensor]:
        """The vectors of each text."""
        return iter(torch.split(self.vectors, self.counts))

    def select(self, texts: Sequence[int]) -> TokenVectors:
        """These texts in this order; a text may be taken several times."""
        rows = token_rows(self.counts, texts)
        return TokenVectors(self.vectors[rows.to(self.vectors.device)], [self.counts[text] for text in texts])

    def padded(self) -> tuple[Tensor, Tensor]:
        """`[texts, longest, dim]` with zeros at the end of the shorter ones, and the mask `[texts, longest]` (bool) of
        what is real."""
        lengths = torch.tensor(self.counts, dtype=torch.long, device=self.vectors.device)
        longest = max(self.counts, default=0)
        mask = torch.arange(longest, device=lengths.device) < lengths[:, None]
        if not self.counts:
            return self.vectors[None, :][:0], mask
        return pad_sequence(list(self), batch_first=True), mask


def token_rows(counts: Sequence[int], texts: Sequence[int]) -> Tensor:
    """The rows of the vectors of `texts`, one text after the other, when text i has `counts[i]` rows: `[rows]` int64.
    Texts [2, 0] of counts [2, 1, 3] lie at [3, 4, 5, 0, 1]."""
    all_counts = torch.tensor(counts, dtype=torch.long)
    indices = torch.tensor(texts, dtype=torch.long)
    lengths, starts = all_counts[indices], (all_counts.cumsum(0) - all_counts)[indices]
    shift = starts - (lengths.cumsum(0) - lengths)
    return torch.arange(int(lengths.sum())) + shift.repeat_interleave(lengths)


WINDOW = 16_384
"""Texts tokenised and sorted at a time: bounds memory, and is long enough for batches of near-equal lengths."""
PADDED_TOKENS = 16_384
GPU_TOKENS = 65_536
STATIC_TOKENS = 1 << 20


def embed_in_batches(
    ids: Sequence[list[int]],
    embed: Callable[[list[list[int]]], TokenVectors],
    tokens: int | None = None,
    texts: int | None = None,
) -> TokenVectors:
    """The vectors of one text or more, in order, each batch of `token_batches` in one call of `embed`."""
    parts: list[TokenVectors] = []
    order: list[int] = []
    for batch in token_batches([len(text) for text in ids], tokens, texts):
        parts.append(embed([ids[i] for i in batch]))
        order.extend(batch)
    return TokenVectors.join(parts).select(sorted(range(len(order)), key=order.__getitem__))


def encode_windows(
    encoder: nn.Module,
    texts: Sequence[Text],
    tokenize: Callable[[Sequence[Text]], list[list[int]]],
    embed: Callable[[list[list[int]]], TokenVectors],
    *,
    precision: AbstractContextManager[object],
    tokens: int,
    batch_size: int | None,
    progress: bool,
) -> Iterator[TokenVectors]:
    """The vectors of `texts`, `WINDOW` texts at a time, without gradient, with `encoder` in evaluation mode.

    A batch holds `batch_size` texts, or without it at most `tokens` tokens; `embed` computes it under `precision`.
    Raises BadInput when a vector is not finite.
    """
    if batch_size is not None and batch_size < 1:
        raise BadInput(f"batch_size {batch_size}: must be at least 1.")
    starts: Sequence[int] = range(0, len(texts), WINDOW)
    training = encoder.training
    encoder.eval()
    try:
        for start in track(starts, "encode (windows)", always=True) if progress else starts:
            with torch.inference_mode(), precision:
                ids = tokenize(texts[start : start + WINDOW])
                window = embed_in_batches(ids, embed, tokens if batch_size is None else None, batch_size)
            if not bool(torch.isfinite(window.vectors).all()):
                bad = next(number for number, rows in enumerate(window) if not torch.isfinite(rows).all())
                raise BadInput(
                    f"text {start + bad}: its vectors hold NaN or infinity. Load the encoder with dtype='float32'; "
                    "if it stays so, the weights are damaged."
                )
            yield window
    finally:
        encoder.train(training)


def transformer_tokens(device: torch.device, packs: bool) -> int:
    """Tokens a batch of a transformer, with or without padding. A CPU is fastest while the activations of a batch stay
    in its cache; a GPU wants many."""
    if device.type != "cpu":
        return GPU_TOKENS
    return PACKED_TOKENS if packs else PADDED_TOKENS


def precision(device: torch.device, dtype: str | torch.dtype | None) -> AbstractContextManager[object]:
    """The autocast in which a transformer computes in `dtype` (None: what suits the device)."""
    torch_dtype = compute_dtype(device, dtype)
    return nullcontext() if torch_dtype == torch.float32 else torch.autocast(device.type, torch_dtype)
