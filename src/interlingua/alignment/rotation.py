"""Rotate one language's vectors onto another's: Procrustes, MUSE's refinement, adversarial start.

CSLS(x, y) = 2·cos(x, y) − r(x) − r(y), where r of a vector is its mean cosine with its 10 nearest on the other side.

A discriminator learns to tell rotated source vectors from target vectors; the rotation learns to deceive it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from interlingua.alignment.neighbours import nearest, nearest_both
from interlingua.errors import BadInput
from interlingua.models.encode import default_device
from interlingua.progress import track
from interlingua.settings import Settings

logger = logging.getLogger(__name__)

NEIGHBOURS = 10
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matches:
    """`forward` [n]: the vector of y with the largest CSLS for each of x; `backward` [m]: of x for each of y. `cosines`
    and `csls` [n]: those of the forward matches, float32."""

    forward: Indices
    backward: Indices
    cosines: Floats
    csls: Floats

    def mutual(self) -> Indices:
        """Rows of x whose match has them for its own."""
        return np.flatnonzero(self.backward[self.forward] == np.arange(len(self.forward)))


def csls_matches(x: Any, y: Any, k: int = NEIGHBOURS) -> Matches:
    """The matches between `x` [n, dim] and `y` [m, dim], of any length but zero; r is taken over `k` neighbours.

    Memory is that of `neighbours.nearest`: no matrix of n × m. Raises BadInput for NaN and zero vectors.
    """
    x, y = _unit(x), _unit(y)
    of_x, of_y = (neighbours.cosines.mean(axis=1) for neighbours in nearest_both(x, y, k))
    forward = nearest(_asking(x), _answering(y, of_y), 1).indices[:, 0]
    backward = nearest(_asking(y), _answering(x, of_x), 1).indices[:, 0]
    cosines = np.einsum("nd,nd->n", x, y[forward])
    return Matches(forward, backward, cosines, 2 * cosines - of_x - of_y[forward])


def _unit(vectors: Any) -> Floats:
    array = np.asarray(vectors, dtype=np.float32)
    # a zero vector stays zero, for the search to name it
    lengths = np.sqrt(np.einsum("nd,nd->n", array, array, dtype=np.float64))
    return array / np.where(lengths == 0, 1, lengths).astype(np.float32)[:, None]


# Two more dimensions turn the order by CSLS into an order by cosine: for [x, −1, 0] and [y, r/2, √(1 − r²)/2] the dot
# product is cos(x, y) − r/2, and every vector on the same side has the same length.


def _asking(x: Floats) -> Floats:
    return np.column_stack([x, np.full(len(x), -1, np.float32), np.zeros(len(x), np.float32)])


def _answering(y: Floats, r: Floats) -> Floats:
    return np.column_stack([y, r / 2, np.sqrt(np.maximum(0, 1 - r**2)) / 2]).astype(np.float32)


ROUNDS = 5
Matrix = NDArray[np.float64]
_TINY = 1e-9


def procrustes(source: NDArray[Any], target: NDArray[Any], start: Matrix | None = None) -> Matrix:
    """The orthogonal W [dim, dim] float64 with the least Σ|W·source − target|² over pairs: rows of `source` and
    `target` [pairs, dim]. W = U·Vᵀ where U·S·Vᵀ = targetᵀ·source (Schönemann 1966).

    Where the pairs leave W open, as fewer pairs than dimensions do, it is the nearest to `start` (the identity).
    Raises BadInput for shapes that differ and for NaN.
    """
    if source.ndim != 2 or source.shape != target.shape:
        raise BadInput(f"pairs of shapes {source.shape} and {target.shape}: both must be the same [pairs, dim].")
    product: Matrix = target.astype(np.float64).T @ source.astype(np.float64)
    if not np.isfinite(product).all():
        raise BadInput("the vectors of some pair hold NaN or infinity. Encode them in float32.")
    product += _TINY * np.linalg.norm(product, 2) * (np.eye(len(product)) if start is None else start)
    left, _, right = np.linalg.svd(product)
    rotation: Matrix = left @ right
    return rotation


@dataclass(frozen=True, eq=False)
class Refinement:
    """`rotation` [dim, dim], the best one; the `matches` under it and its `criterion`; how many `rounds` were done (0:
    too few pairs for one), whether the last changed nothing any more (`converged`), and from how many `pairs` the best
    came (0: it is the start)."""

    rotation: Matrix
    matches: Matches
    criterion: float
    rounds: int = 0
    converged: bool = False
    pairs: int = 0


def refine(
    source: Floats,
    target: Floats,
    held_out: NDArray[np.bool_],
    start: Matrix | None = None,
    *,
    matches: Matches | None = None,
    rounds: int = ROUNDS,
) -> Refinement:
    """Rotate `source` [n, dim] onto `target` [m, dim] without pairs (Conneau et al. 2018, section 2.2).

    Each round: the pairs that are each other's CSLS match under the rotation so far, then Procrustes on them. Stops
    when the pairs stay the same or are fewer than dimensions, when the criterion falls, or after `rounds`; gives the
    rotation with the best criterion, that of `start` (the identity) included.

    The criterion is MUSE's, the mean cosine of the CSLS matches, but of the rows `held_out` [n] alone, which no
    rotation is fitted on: on rows that it was fitted on, every rotation looks better. `matches` are those of `start`
    where they are known.
    """
    rotation = np.eye(source.shape[1]) if start is None else start
    matches = csls_matches(rotated(source, rotation), target) if matches is None else matches
    best = Refinement(rotation, matches, float(matches.cosines[held_out].mean()))
    pairs = _pairs(matches, held_out)
    for number in range(1, rounds + 1):
        if pairs.shape[1] < len(rotation):
            break
        rotation = procrustes(source[pairs[0]], target[pairs[1]], rotation)
        matches = csls_matches(rotated(source, rotation), target)
        criterion, next_pairs = float(matches.cosines[held_out].mean()), _pairs(matches, held_out)
        if criterion <= best.criterion:
            return replace(best, rounds=number)
        converged = np.array_equal(next_pairs, pairs)
        best = Refinement(rotation, matches, criterion, number, converged, pairs.shape[1])
        if converged:
            break
        pairs = next_pairs
    return best


def rotated(vectors: Floats, rotation: Matrix) -> Floats:
    """W·x for each row x of `vectors` [texts, dim], float32."""
    return vectors @ rotation.T.astype(np.float32)


def _pairs(matches: Matches, held_out: NDArray[np.bool_]) -> Indices:
    """The rows to fit the next rotation on: of the source and of the target, [2, pairs]."""
    rows = matches.mutual()
    rows = rows[~held_out[rows]]
    return np.stack([rows, matches.forward[rows]])


class Adversarial(Settings):
    """MUSE's settings."""

    model_config = ConfigDict(frozen=True)

    n_epochs: int = Field(default=5, description="epochs; the best rotation of them is taken")
    epoch_size: int = Field(default=1_000_000, description="vectors shown to the rotation in an epoch")
    batch: int = Field(default=32, description="vectors of each side in a batch")
    hidden: int = Field(default=2048, description="size of the two hidden layers of the discriminator")
    dropout: float = Field(default=0.1, description="share of the inputs of the discriminator that is dropped")
    leak: float = Field(default=0.2, description="slope of the discriminator below 0 (leaky ReLU)")
    smoothing: float = Field(default=0.1, description="what the labels of the discriminator lack to 0 and 1")
    discriminator_steps: int = Field(default=5, description="steps of the discriminator for each of the rotation")
    lr: float = Field(default=0.1, description="learning rate of both")
    lr_decay: float = Field(default=0.98, description="factor on it after an epoch")
    lr_shrink: float = Field(default=0.5, description="further factor after an epoch that was no better, but the first")
    beta: float = Field(default=0.001, description="how strongly the rotation is kept orthogonal")


@dataclass(frozen=True, eq=False)
class AdversarialSearch:
    """`rotation` [dim, dim] float64, the one taken; the criterion of the identity and `after` each epoch; the `epoch`
    that it is of (0: the identity)."""

    rotation: Matrix
    identity: float
    after: list[float]
    epoch: int

    def __str__(self) -> str:
        """The step in words, with how far it turned: the mean cosine of an axis with where it is turned to."""
        scores = ", ".join(f"{value:.4f}" for value in self.after) or "none: training diverged"
        axes = float(np.trace(self.rotation)) / len(self.rotation)
        choice = f"epoch {self.epoch}" if self.epoch else "the identity"
        return (
            f"adversarial: criterion {self.identity:.4f} at the identity, after each epoch {scores}; taken: {choice}, "
            f"mean cosine of the axes {axes:.3f}"
        )


def adversarial_rotation(
    source: Floats,
    target: Floats,
    criterion: Callable[[Matrix], float],
    *,
    options: Adversarial | None = None,
    seed: int = 0,
    identity: bool = True,
) -> AdversarialSearch:
    """Search the orthogonal W with the best `criterion` among the one after each epoch and, with `identity`, the start.

    MUSE's own code does not compare with the start (`identity=False`): one of the epochs is taken, also where all of
    them lower the criterion. Only where the first epoch diverges the identity stays.

    `source` [n, dim] and `target` [m, dim] need not correspond. Both are divided by one number, the mean length of the
    target's vectors, so that the learning rate means the same for every encoder. Deterministic for a seed and machine.
    Raises BadInput for settings that train nothing.
    """
    options = options or Adversarial()
    if options.n_epochs < 1 or options.epoch_size < options.batch:
        raise BadInput(
            f"adversarial training of {options.n_epochs} epochs of {options.epoch_size} vectors: at "
            f"least 1 epoch of {options.batch} is needed."
        )
    length = float(np.linalg.norm(target, axis=1).mean())
    device = default_device(None)
    clouds = [torch.from_numpy(side / np.float32(length)).to(device) for side in (source, target)]
    dim = source.shape[1]
    best, epoch, after, fell = np.eye(dim), 0, list[float](), False
    start = criterion(best)
    highest = start if identity else -np.inf
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device]):
        torch.manual_seed(seed)
        game = _Game(clouds, options)
        for _ in range(options.n_epochs):
            for _ in track(range(options.epoch_size // options.batch), "adversarial steps"):
                game.step()
            if not bool(game.rotation.isfinite().all()):
                logger.warning(
                    f"adversarial training diverged (learning rate {game.lr:.3g}); the best rotation so far stays"
                )
                break
            # the nearest orthogonal one
            rotation = procrustes(np.eye(dim), game.rotation.detach().T.double().cpu().numpy())
            value = criterion(rotation)
            after.append(value)
            game.lr *= options.lr_decay
            if value > highest:
                best, highest, epoch = rotation, value, len(after)
            else:
                game.lr *= options.lr_shrink if fell else 1.0
                fell = True
    return AdversarialSearch(best, start, after, epoch)


class _Game:
    """The rotation, the discriminator, and their turns."""

    def __init__(self, clouds: list[Tensor], options: Adversarial) -> None:
        self.clouds, self.options, self.lr = clouds, options, options.lr
        dim, device = clouds[0].shape[1], clouds[0].device
        self.rotation = torch.eye(dim, device=device, requires_grad=True)
        hidden, leak = options.hidden, options.leak
        self.discriminator = nn.Sequential(
            nn.Dropout(options.dropout),
            nn.Linear(dim, hidden),
            nn.LeakyReLU(leak),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(leak),
            nn.Linear(hidden, 1),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.discriminator.parameters(), lr=options.lr)
        smoothing = torch.full((options.batch, 1), options.smoothing, device=device)
        self.truth = torch.cat([1 - smoothing, smoothing])

    def step(self) -> None:
        """Some steps of the discriminator, one of the rotation, and the pull back towards orthogonality."""
        self.discriminator.train()
        for _ in range(self.options.discriminator_steps):
            with torch.no_grad():
                batch = self._batch()
            loss = binary_cross_entropy_with_logits(self.discriminator(batch), self.truth)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        self.discriminator.eval()
        loss = binary_cross_entropy_with_logits(self.discriminator(self._batch()), 1 - self.truth)
        (slope,) = torch.autograd.grad(loss, self.rotation)
        with torch.no_grad():
            rotation = self.rotation - self.lr * slope
            beta = self.options.beta
            self.rotation.copy_((1 + beta) * rotation - beta * (rotation @ rotation.T @ rotation))

    def _batch(self) -> Tensor:
        source, target = (
            cloud[torch.randint(len(cloud), (self.options.batch,), device=cloud.device)] for cloud in self.clouds
        )
        return torch.cat([source @ self.rotation.T, target])
