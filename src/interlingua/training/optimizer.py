"""The optimizer of the papers (AdamW, warm-up, linear decay, clipping), with row-sparse Adam for embeddings that
have row-sparse gradients: a batch touches few of a vocabulary's rows, and a dense update would visit them all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from interlingua.errors import BadInput
from interlingua.settings import Settings

Decay = Annotated[float, Field(ge=0, lt=1)]


class OptimizerSpec(Settings):
    """The `optimizer:` part of a recipe. `lr` and `betas` are those of Hu et al. 2023, `eps`, `weight_decay` and `clip`
    those of the DPR code that the paper builds on (Karpukhin et al. 2020)."""

    lr: float = Field(1e-5, gt=0, description="largest learning rate")
    betas: tuple[Decay, Decay] = Field((0.9, 0.999), description="decay rates of the two moments of Adam")
    eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    weight_decay: float = Field(0.0, ge=0, description="of AdamW; norms and biases are not shrunk; 0 for static models")
    warmup: int = Field(0, ge=0, description="steps from 0 to lr")
    schedule: Literal["linear", "constant"] = Field(
        "linear", description="after the warm-up: down to 0 with the last step, or as it is"
    )
    clip: float | None = Field(2.0, gt=0, description="largest gradient norm")
    sparse_embeddings: bool = Field(
        False, description="transformers: update only the subword embeddings that a step reads (lazy Adam)"
    )

    @model_validator(mode="after")
    def _no_decay_of_some_rows(self) -> OptimizerSpec:
        if self.sparse_embeddings and self.weight_decay:
            raise ValueError("sparse_embeddings and weight_decay: rows that are not read would not decay; give one")
        return self


@dataclass(slots=True)
class LossScale:
    """The factor that keeps small gradients from vanishing in float16 (dynamic loss scaling, Micikevicius et al. 2018).

    A step whose gradients overflow is left out and halves `value`; `patience` steps without one double it.
    """

    value: float = 2.0**16
    sound: int = 0
    """Steps since the last change."""
    patience: int = 2_000

    def update(self, finite: bool) -> None:
        """Note whether the gradients of a step were finite. Raises BadInput when a scale of 1 overflows, too."""
        self.sound = self.sound + 1 if finite else 0
        if not finite:
            if self.value <= 1:
                raise BadInput(
                    "the gradients overflow in float16 at any loss scale. The last checkpoint is untouched. Set "
                    "training.precision to float32 (or bf16 where the GPU has it), or lower optimizer.lr."
                )
            self.value /= 2
        elif self.sound == self.patience:
            self.value, self.sound = self.value * 2, 0


class Optimizer:
    """AdamW for dense parameters, torch's SparseAdam for row-sparse ones, one schedule for both."""

    def __init__(
        self, modules: Iterable[nn.Module], spec: OptimizerSpec, steps: int, scale: LossScale | None = None
    ) -> None:
        self.spec, self.steps, self.scale = spec, steps, scale
        modules = list(modules)
        sparse = {
            id(m.weight)
            for module in modules
            for m in module.modules()
            if isinstance(m, nn.Embedding | nn.EmbeddingBag) and m.sparse
        }
        unique = {id(p): p for module in modules for p in module.parameters() if p.requires_grad}
        self.parameters = list(unique.values())
        rows = [p for p in self.parameters if id(p) in sparse]
        dense = [p for p in self.parameters if id(p) not in sparse]
        if rows and spec.weight_decay:  # rows that are not read would not decay
            raise BadInput("optimizer.weight_decay: the subword vectors of a static model do not decay. Give 0.")
        # norms and biases are not shrunk
        groups = [
            {"params": [p for p in dense if p.ndim > 1], "weight_decay": spec.weight_decay},
            {"params": [p for p in dense if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.parts: list[torch.optim.Optimizer] = []
        if dense:
            self.parts.append(torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, eps=spec.eps))
        if rows:
            self.parts.append(torch.optim.SparseAdam(rows, lr=spec.lr, betas=spec.betas, eps=spec.eps))

    def rate(self, step: int) -> float:
        """The learning rate of step `step` (from 0): a linear rise, then constant or a linear fall to 0."""
        if step < self.spec.warmup:
            return self.spec.lr * (step + 1) / self.spec.warmup
        if self.spec.schedule == "constant":
            return self.spec.lr
        return self.spec.lr * max(0.0, (self.steps - step) / max(1, self.steps - self.spec.warmup))

    def step(self, step: int) -> float:
        """Clip, update, and clear the gradients; the gradient norm before clipping.

        With a `scale` the gradients are divided by it first. Where one of them overflowed, the norm is not finite and
        nothing but the scale is changed.
        """
        scale = self.scale
        if scale is not None:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / scale.value)
        norm = gradient_norm(p.grad for p in self.parameters)
        if scale is not None:
            scale.update(math.isfinite(norm))
            if not math.isfinite(norm):
                for parameter in self.parameters:
                    parameter.grad = None
                return norm
        if self.spec.clip is not None and norm > self.spec.clip:
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(self.spec.clip / (norm + 1e-6))
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = self.rate(step)
            part.step()
        for parameter in self.parameters:
            parameter.grad = None
        return norm

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The moments as named tensors, and the rest as plain numbers."""
        tensors: dict[str, Tensor] = {}
        numbers: dict[str, Any] = {}
        for number, part in enumerate(self.parts):
            for index, values in part.state_dict()["state"].items():
                for key, value in values.items():
                    name = f"{number}.{index}.{key}"
                    if isinstance(value, Tensor):
                        tensors[name] = value
                    else:
                        numbers[name] = value
        return tensors, numbers

    def load(self, tensors: dict[str, Tensor], numbers: dict[str, Any]) -> None:
        """Back to a state given by `state()`."""
        for number, part in enumerate(self.parts):
            state = part.state_dict()
            states: dict[int, dict[str, Any]] = {}
            for name, value in [*tensors.items(), *numbers.items()]:
                owner, index, key = name.split(".", 2)
                if int(owner) == number:
                    states.setdefault(int(index), {})[key] = value
            part.load_state_dict({"state": states, "param_groups": state["param_groups"]})


def gradient_norm(gradients: Iterable[Tensor | None]) -> float:
    """The Euclidean norm of gradients, dense and row-sparse together."""
    squares = [(g.coalesce().values() if g.is_sparse else g).float().pow(2).sum() for g in gradients if g is not None]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
