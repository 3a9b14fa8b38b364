"""The token vectors of passages, ragged and without padding: in memory, or in a folder that is memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.errors import BadInput, suggestion
from interlingua.models.encode import TokenVectors
from interlingua.models.static.encoder import int8_rows

LAYOUT = Layout("tokens", 2, "token vectors")
ABOUT = LAYOUT.file
DTYPES = ("float32", "float16", "int8")

Floats = NDArray[np.float32]
Chunk = tuple[Sequence[str], TokenVectors]
"""the ids of some passages, and their token vectors"""


class _Part(NamedTuple):
    """A chunk as it is stored; `scales` is empty but for int8."""

    ids: list[str]
    counts: list[int]
    tokens: NDArray[Any]
    scales: Floats


class TokenStore:
    """Passages `ids` with their token vectors: those of passage i are `tokens[offsets[i] : offsets[i + 1]]`.

    `tokens` is [tokens, dim] float32, float16 or int8; `offsets` is int64 [passages + 1]. An int8 token is its vector
    divided by its own scale (`scales`, float32 [tokens]: the largest component / 127) and rounded; else `scales` is
    empty. A passage may have no token. Make one with `build`, reopen a folder with `open`.

    An `ArrayFolder` holds the arrays `tokens`, `offsets` and, with int8, `scales`, and the ids.
    """

    def __init__(
        self, ids: list[str], offsets: NDArray[np.int64], tokens: NDArray[Any] | Tensor, scales: Floats | Tensor
    ) -> None:
        self.ids, self.offsets, self.tokens, self.scales = ids, offsets, tokens, scales

    @classmethod
    def build(cls, chunks: Iterable[Chunk], *, dtype: str = "float32", path: str | Path | None = None) -> TokenStore:
        """A store of all `chunks`, read once: in memory, or at `path`, a chunk in memory at a time. A folder appears
        whole or not at all; an older store there is replaced.

        Raises BadInput for an unknown dtype, no passage, an id that occurs twice, a chunk whose ids, tokens and
        size do not fit, vectors that hold NaN or infinity or are too large for float16, and a `path` that holds
        something else.
        """
        if dtype not in DTYPES:
            raise BadInput(
                f"dtype '{dtype}': token vectors are held as {', '.join(DTYPES)}.{suggestion(dtype, DTYPES)}"
            )
        if path is not None:
            _write(path, _parts(chunks, dtype), dtype)
            return cls.open(path)
        parts = list(_parts(chunks, dtype))
        return cls(
            [name for part in parts for name in part.ids],
            _offsets([n for part in parts for n in part.counts]),
            np.concatenate([part.tokens for part in parts]),
            np.concatenate([part.scales for part in parts]),
        )

    @classmethod
    def open(cls, path: str | Path) -> TokenStore:
        """The store in a folder; its vectors are read when they are needed. Raises NotFound for a folder that is no
        store, Damaged for one whose files do not agree."""
        with ArrayFolder.open(path, LAYOUT) as folder:
            ids, dtype = list(folder.facts["ids"]), str(folder.facts["dtype"])
            tokens = folder.array("tokens", dtype, (None, None))
            # mapped are the vectors alone: an open file each is the limit of how many parts an index may have
            offsets = folder.array("offsets", "int64", (len(ids) + 1,), mapped=False)
            scales: Floats = np.empty(0, np.float32)
            if dtype == "int8":
                scales = folder.array("scales", "float32", (len(tokens),), mapped=False)
            if dtype not in DTYPES or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
                raise ValueError("its files do not agree")
        return cls(ids, offsets, tokens, scales)

    @property
    def dtype(self) -> str:
        """ "float32", "float16" or "int8"."""
        return str(self.tokens.dtype).removeprefix("torch.")

    @property
    def dim(self) -> int:
        """Size of a token's vector."""
        return int(self.tokens.shape[1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of tokens of each passage."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        """The number of passages."""
        return len(self.ids)

    def __getitem__(self, row: int) -> Floats:
        """The token vectors of one passage, [count, dim] float32, as far as its number format kept them."""
        row = range(len(self))[row]
        part = slice(int(self.offsets[row]), int(self.offsets[row + 1]))
        tokens, scales = (
            np.array(tensor(array).cpu().numpy(), dtype=np.float32) for array in (self.tokens[part], self.scales[part])
        )
        return tokens * scales[:, None] if self.dtype == "int8" else tokens

    def to(self, device: str | torch.device) -> TokenStore:
        """The same passages with their vectors as tensors on `device`, all of them at once: scores are then computed
        there, by torch."""
        return TokenStore(self.ids, self.offsets, tensor(self.tokens).to(device), tensor(self.scales).to(device))


def tensor(array: NDArray[Any] | Tensor) -> Tensor:
    """`array` as a tensor; a copy where torch would otherwise warn of a read-only memory map."""
    return array if isinstance(array, Tensor) else torch.from_numpy(np.require(array, requirements="W"))


def _parts(chunks: Iterable[Chunk], dtype: str) -> Iterator[_Part]:
    """Chunks checked and converted."""
    seen: set[str] = set()
    dim: int | None = None
    for names, token_vectors in chunks:
        ids, vectors = list(names), token_vectors.vectors.detach().float().cpu().numpy()
        dim = vectors.shape[1] if dim is None else dim
        if len(ids) != len(token_vectors.counts) or vectors.shape[1] != dim:
            raise BadInput(
                f"token vectors of {len(token_vectors.counts)} passages of size {vectors.shape[1]} came with"
                f" {len(ids)} ids where the size is {dim}: the numbers must agree."
            )
        for name in ids:
            if name in seen:
                raise BadInput(f"passage id '{name}' occurs twice. Ids must be unique.")
            seen.add(name)
        scales: Floats = np.empty(0, dtype=np.float32)
        finite = np.isfinite(vectors).all(axis=1)
        tokens: NDArray[Any] = vectors
        if finite.all() and dtype == "int8":
            tokens, scales = int8_rows(vectors)
        elif finite.all() and dtype == "float16":
            with np.errstate(over="ignore"):
                tokens = vectors.astype(np.float16)
            finite = np.isfinite(tokens).all(axis=1)
        if not finite.all():
            row = int(np.searchsorted(np.cumsum(token_vectors.counts), int(finite.argmin()), side="right"))
            raise BadInput(
                f"passage '{ids[row]}': its token vectors hold NaN or infinity as {dtype}. The "
                "model or its number format is at fault: try float32."
            )
        yield _Part(ids, list(token_vectors.counts), tokens, scales)
    if not seen:
        raise BadInput("there is no passage whose token vectors could be stored.")


def _write(path: str | Path, parts: Iterable[_Part], dtype: str) -> None:
    ids: list[str] = []
    counts: list[int] = []
    with ArrayFolder.write(path, LAYOUT) as folder:
        for part in parts:
            ids += part.ids
            counts += part.counts
            folder.add("tokens", part.tokens)
            if dtype == "int8":
                folder.add("scales", part.scales)
        folder.add("offsets", _offsets(counts))
        folder.facts |= {"dtype": dtype, "ids": ids}


def _offsets(counts: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
