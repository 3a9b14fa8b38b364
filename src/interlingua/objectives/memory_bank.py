"""The memory bank of CCP: projected vectors of earlier sentences, one queue a language (Wu et al. 2022, §3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn

from interlingua.errors import InterlinguaError

SHARED = "all"


class MemoryBank(nn.Module):
    """First in, first out; `size` vectors for each language, which come from that language alone.

    With `shared` there is one queue for all languages (the paper's ablation: the model then tells languages apart,
    which is easier than telling neighbours from strangers). A queue is made when its language first comes: as many
    languages cost memory as are seen. Its tensors are buffers, so they are part of a checkpoint.

    Args:
        size: vectors a queue; 0 is no bank.
        dtype: what they are kept in; "float16" halves the memory (they are read back as float32).
        device: "same" as what is added, or "cpu" to keep a large bank off the accelerator.
    """

    def __init__(self, size: int, *, shared: bool = False, dtype: Literal["float32", "float16"] = "float32",
                 device: Literal["same", "cpu"] = "same") -> None:
        super().__init__()
        if size < 0:
            raise InterlinguaError(f"a memory bank of {size} vectors: give a number of 0 or more.")
        self.size, self.shared, self.place = size, shared, device
        self.dtype = torch.float16 if dtype == "float16" else torch.float32

    def read(self, lang: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """What is in the queue of a language: vectors `[held, dim]` float32 without gradient, and the numbers of
        their documents `[held]`. In no particular order; empty slots are not part of it."""
        name = self._name(lang)
        if f"count_{name}" not in self._buffers:
            return torch.empty(0, 0, device=device), torch.empty(0, dtype=torch.long, device=device)
        held = min(int(self.get_buffer(f"count_{name}")), self.size)
        vectors, documents = self.get_buffer(f"vectors_{name}"), self.get_buffer(f"documents_{name}")
        return vectors[:held].to(device, torch.float32), documents[:held].to(device)

    @torch.no_grad()
    def add(self, lang: str, vectors: Tensor, documents: Tensor) -> None:
        """Put `vectors` `[n, dim]` and their documents' numbers `[n]` in the place of the oldest ones."""
        if not self.size:
            return
        name = self._name(lang)
        if f"count_{name}" not in self._buffers:
            self._allocate(name, vectors.shape[1], vectors.device)
        # of more than fits, only the newest would stay
        vectors, documents = vectors[-self.size:], documents[-self.size:]
        count = self.get_buffer(f"count_{name}")
        slots = (int(count) + torch.arange(len(vectors))) % self.size
        for buffer, rows in (("vectors", vectors), ("documents", documents)):
            held = self.get_buffer(f"{buffer}_{name}")
            held[slots.to(held.device)] = rows.to(held.device, held.dtype)
        count += len(vectors)

    def make_room(self, saved: dict[str, torch.Size], device: torch.device) -> None:
        """Make the queues that a checkpoint holds (buffer name → shape), so that it can be put back."""
        for key, shape in saved.items():
            if key.startswith("vectors_") and key not in self._buffers and shape[0] == self.size:
                self._allocate(key.removeprefix("vectors_"), shape[1], device)

    def langs(self) -> Iterable[str]:
        """The languages with a queue ("all" when it is shared)."""
        return [key.removeprefix("count_") for key in self._buffers if key.startswith("count_")]

    def _name(self, lang: str) -> str:
        return SHARED if self.shared else lang

    def _allocate(self, name: str, dim: int, device: torch.device) -> None:
        place = torch.device("cpu") if self.place == "cpu" else device
        self.register_buffer(f"vectors_{name}", torch.zeros(self.size, dim, dtype=self.dtype, device=place))
        self.register_buffer(f"documents_{name}", torch.full((self.size,), -1, dtype=torch.long, device=place))
        self.register_buffer(f"count_{name}", torch.zeros((), dtype=torch.long))
