"""A first rotation from nothing but two clouds of vectors (Conneau et al. 2018, MUSE, section 2.1).

A discriminator learns to tell rotated source vectors from target vectors; the rotation learns to deceive it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from interlingua.alignment.csls import Floats
from interlingua.alignment.rotation import Matrix, procrustes
from interlingua.errors import InterlinguaError
from interlingua.models.devices import default_device
from interlingua.progress import say, track


@dataclass(frozen=True)
class Adversarial:
    """MUSE's settings. `epoch_size` counts vectors shown to the rotation in an epoch, `batch` those of each side."""

    n_epochs: int = 5
    epoch_size: int = 1_000_000
    batch: int = 32
    hidden: int = 2048
    dropout: float = 0.1
    leak: float = 0.2
    smoothing: float = 0.1
    discriminator_steps: int = 5
    lr: float = 0.1
    lr_decay: float = 0.98
    lr_shrink: float = 0.5
    beta: float = 0.001


def adversarial_rotation(source: Floats, target: Floats, criterion: Callable[[Matrix], float], *,
                         options: Adversarial | None = None, seed: int = 0) -> Matrix:
    """The orthogonal W [dim, dim] float64 with the best `criterion` among the identity and the one after each epoch.

    `source` [n, dim] and `target` [m, dim] need not correspond. Both are divided by one number, the mean length of the
    target's vectors, so that the learning rate means the same for every encoder. Deterministic for a seed and machine.
    Raises InterlinguaError for settings that train nothing.
    """
    options = options or Adversarial()
    if options.n_epochs < 1 or options.epoch_size < options.batch:
        raise InterlinguaError(f"adversarial training of {options.n_epochs} epochs of {options.epoch_size} vectors: at "
                               f"least 1 epoch of {options.batch} is needed.")
    length = float(np.linalg.norm(target, axis=1).mean())
    device = default_device(None)
    clouds = [torch.from_numpy(side / np.float32(length)).to(device) for side in (source, target)]
    dim = source.shape[1]
    best = np.eye(dim)
    highest, fell = criterion(best), False
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)
        game = _Game(clouds, options)
        for _ in range(options.n_epochs):
            for _ in track(range(options.epoch_size // options.batch), "adversarial steps"):
                game.step()
            if not bool(game.rotation.isfinite().all()):
                say(f"adversarial training diverged (learning rate {game.lr:.3g}); the best rotation so far stays")
                break
            # the nearest orthogonal one
            rotation = procrustes(np.eye(dim), game.rotation.detach().T.double().cpu().numpy())
            reached = criterion(rotation)
            game.lr *= options.lr_decay
            if reached > highest:
                best, highest = rotation, reached
            else:
                game.lr *= options.lr_shrink if fell else 1.0
                fell = True
    return best


class _Game:
    """The rotation, the discriminator, and their turns."""

    def __init__(self, clouds: list[Tensor], options: Adversarial) -> None:
        self.clouds, self.options, self.lr = clouds, options, options.lr
        dim, device = clouds[0].shape[1], clouds[0].device
        self.rotation = torch.eye(dim, device=device, requires_grad=True)
        hidden, leak = options.hidden, options.leak
        self.discriminator = nn.Sequential(
            nn.Dropout(options.dropout), nn.Linear(dim, hidden), nn.LeakyReLU(leak), nn.Linear(hidden, hidden),
            nn.LeakyReLU(leak), nn.Linear(hidden, 1)).to(device)
        self.optimizer = torch.optim.SGD(self.discriminator.parameters(), lr=options.lr)
        smoothed = torch.full((options.batch, 1), options.smoothing, device=device)
        self.truth = torch.cat([1 - smoothed, smoothed])

    def step(self) -> None:
        """Some steps of the discriminator, one of the rotation, and the pull back towards orthogonality."""
        self.discriminator.train()
        for _ in range(self.options.discriminator_steps):
            with torch.no_grad():
                shown = self._batch()
            loss = binary_cross_entropy_with_logits(self.discriminator(shown), self.truth)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.discriminator.eval()
        loss = binary_cross_entropy_with_logits(self.discriminator(self._batch()), 1 - self.truth)
        (slope,) = torch.autograd.grad(loss, self.rotation)
        with torch.no_grad():
            moved = self.rotation - self.lr * slope
            beta = self.options.beta
            self.rotation.copy_((1 + beta) * moved - beta * (moved @ moved.T @ moved))

    def _batch(self) -> Tensor:
        source, target = (cloud[torch.randint(len(cloud), (self.options.batch,), device=cloud.device)]
                          for cloud in self.clouds)
        return torch.cat([source @ self.rotation.T, target])
