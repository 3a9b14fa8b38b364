"""Several vectors a text: ragged, laid end to end, never padded until a loss asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from interlingua.errors import InterlinguaError


@dataclass(frozen=True, slots=True, eq=False)
class TokenVectors:
    """`vectors` `[tokens of all texts, dim]`, and `counts`, how many of them each text has, in order.

    Everything here is differentiable. Raises InterlinguaError when the counts do not add up to the vectors.
    """

    vectors: Tensor
    counts: list[int]

    def __post_init__(self) -> None:
        if self.vectors.ndim != 2 or sum(self.counts) != len(self.vectors) or min(self.counts, default=0) < 0:
            raise InterlinguaError(f"token vectors must be [tokens of all texts, dim]; got {list(self.vectors.shape)} "
                                   f"for {len(self.counts)} texts of {sum(self.counts)} tokens together.")

    @classmethod
    def join(cls, parts: Iterable[TokenVectors]) -> TokenVectors:
        """The texts of all parts in order. Raises InterlinguaError without a part, since the size is then unknown."""
        parts = list(parts)
        if not parts:
            raise InterlinguaError("token vectors: there is nothing to join.")
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
    """Where the vectors of `texts` lie, one text after the other, when text i has `counts[i]` of them: `[rows]` int64.
    Texts [2, 0] of counts [2, 1, 3] lie at [3, 4, 5, 0, 1]."""
    every = torch.tensor(counts, dtype=torch.long)
    wanted = torch.tensor(texts, dtype=torch.long)
    lengths, starts = every[wanted], (every.cumsum(0) - every)[wanted]
    shift = starts - (lengths.cumsum(0) - lengths)
    return torch.arange(int(lengths.sum())) + shift.repeat_interleave(lengths)
