"""The projection head of CCP and its asymmetric batch normalisation (Wu et al. 2022, Algorithm 1)."""

from __future__ import annotations

from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interlingua.errors import InterlinguaError

BatchNorm = Literal["asymmetric", "batch", "none"]


class ProjectionHead(nn.Module):
    """g = Linear → batch normalisation → ReLU → Linear, one set of weights for both branches.

    With "asymmetric" normalisation one branch is normalised by the statistics of its batch and the other by the
    running ones, and the two change places at every call: within the second branch no vector depends on the others, so
    statistics cannot give away which sentences came together. (The running ones hold a tenth of the first branch's
    batch, which has updated them just before.) "batch" uses
    batch statistics on both branches (what the paper compares with), "none" leaves the normalisation out.

    Running statistics start as those of the first batch and are a plain mean until there are 1/momentum of them, so
    that the second branch is normalised from the first step on. In `eval()` both branches use the running ones.

    Args:
        dim: size of the encoder's vectors, and of the hidden layer.
        projection: size of the projected vectors (the paper does not say; the same by default).
    """

    def __init__(self, dim: int, projection: int | None = None, norm: BatchNorm = "asymmetric",
                 momentum: float = 0.1) -> None:
        super().__init__()
        if projection is not None and projection < 1:
            raise InterlinguaError(f"projection {projection}: give the size of the projected vectors, 1 or more.")
        self.norm, self.momentum = norm, momentum
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, projection or dim)
        if norm != "none":
            self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
            self.register_buffer("running_mean", torch.zeros(dim))
            self.register_buffer("running_var", torch.ones(dim))
            self.register_buffer("updates", torch.zeros((), dtype=torch.long))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, centers: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Both `[windows, dim]` → both `[windows, projection]`. Raises InterlinguaError for a single window, which
        has no batch statistics."""
        if self.norm != "none" and self.training and len(centers) < 2:
            raise InterlinguaError("batch normalisation needs at least 2 windows in a batch, got "
                                   f"{len(centers)}. Raise data.contexts.batch, or set batch_norm: none.")
        a, b = self.first(centers), self.first(targets)
        if self.norm == "batch" or not self.training:
            a, b = self._normalised(a, self.training), self._normalised(b, self.training)
        elif self.norm == "asymmetric":
            calls = cast(Tensor, self.calls)
            # the branch that updates the running statistics goes first: the other must see, and keep for its
            # gradient, one and the same version of them
            if int(calls) % 2 == 0:
                a = self._normalised(a, True)
                b = self._normalised(b, False)
            else:
                b = self._normalised(b, True)
                a = self._normalised(a, False)
            calls += 1
        return self.second(F.relu(a)), self.second(F.relu(b))

    def _normalised(self, x: Tensor, by_batch: bool) -> Tensor:
        if self.norm == "none":
            return x
        mean, variance, updates = (cast(Tensor, b) for b in (self.running_mean, self.running_var, self.updates))
        if by_batch:
            momentum = max(self.momentum, 1 / (int(updates) + 1))
            updates += 1
            return F.batch_norm(x, mean, variance, self.weight, self.bias, True, momentum)
        # copies: backward reads them, and a later training call changes the buffers in place
        return F.batch_norm(x, mean.clone(), variance.clone(), self.weight, self.bias, False)
