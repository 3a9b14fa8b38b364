"""Checkpoints: everything that the next step depends on, written so that a kill leaves the last good one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from interlingua.data.stream import Stream
from interlingua.errors import BadInput, Damaged
from interlingua.files import atomic_folder
from interlingua.objectives.objective import Objective
from interlingua.training.optimizer import Optimizer


def save_checkpoint(
    folder: Path,
    step: int,
    modules: dict[str, nn.Module],
    optimizer: Optimizer,
    streams: dict[str, Stream[Any]],
    extra: dict[str, Any],
    keep: int,
) -> Path:
    """Write `folder/step-NNNNNNN` (safetensors and JSON), whole or not at all; keep the newest few.

    Raises BadInput for weights that are not finite: the last good checkpoint must not give way to them.
    """
    broken = next((name for name, tensor in weights(modules).items() if not torch.isfinite(tensor).all()), None)
    if broken is not None:
        raise BadInput(
            f"{folder}: not saved: after step {step:,} the weights '{broken}' are not finite. What "
            "was saved before is untouched. Lower optimizer.lr."
        )
    for unfinished in folder.glob(".step-*.part"):  # of a killed run; no other writes here
        shutil.rmtree(unfinished)
    final = folder / f"step-{step:07d}"
    moments, numbers = optimizer.state()
    with atomic_folder(final, "state.json") as building:
        for name, tensors in {"model": weights(modules), "optimizer": moments}.items():
            save_file(
                {key: value.detach().cpu().contiguous() for key, value in tensors.items()},
                building / f"{name}.safetensors",
            )
        positions = {name: stream.state_dict() for name, stream in streams.items()}
        state = {"step": step, "optimizer": numbers, "streams": positions, **extra}
        (building / "state.json").write_text(json.dumps(state), encoding="utf-8")
    for old in _complete(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def newest(folder: Path) -> Path | None:
    """The last complete checkpoint, if there is one."""
    checkpoints = _complete(folder)
    return checkpoints[-1] if checkpoints else None


def _complete(folder: Path) -> list[Path]:
    """The complete checkpoints by their step: their names sort so only up to step 9,999,999. What somebody else put
    beside them, such as a copy, is left alone."""
    complete = [path for path in folder.glob("step-*") if re.fullmatch(r"step-[0-9]+", path.name)]
    return sorted(complete, key=lambda path: int(path.name.removeprefix("step-")))


def load_checkpoint(
    path: Path,
    modules: dict[str, nn.Module],
    optimizer: Optimizer,
    streams: dict[str, Stream[Any]],
    device: torch.device,
) -> dict[str, Any]:
    """Put everything back; the saved state (step and extras).

    Raises Damaged for a damaged checkpoint or one of another model.
    """
    try:
        state: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
        saved = {name: load_file(path / f"{name}.safetensors") for name in ("model", "optimizer")}
    except (OSError, ValueError, SafetensorError) as error:
        raise Damaged(
            f"{path}: the checkpoint is damaged ({error}). Delete this folder; the run then goes "
            "on from the one before it."
        ) from error
    for name, module in modules.items():
        if isinstance(module, Objective):
            module.make_room(
                {
                    key.removeprefix(f"{name}."): tensor.shape
                    for key, tensor in saved["model"].items()
                    if key.startswith(f"{name}.")
                },
                device,
            )
    current = weights(modules)
    if {k: v.shape for k, v in current.items()} != {k: v.shape for k, v in saved["model"].items()}:
        raise BadInput(
            f"{path}: the checkpoint is of another model than the recipe describes. "
            "Use another --out, or delete the run folder."
        )
    with torch.no_grad():
        for name, tensor in current.items():
            tensor.copy_(saved["model"][name])
    optimizer.load({k: v.to(device) if v.ndim else v for k, v in saved["optimizer"].items()}, state["optimizer"])
    for name, stream in streams.items():
        try:
            stream.load_state_dict(state["streams"][name])
        except BadInput as error:
            raise BadInput(f"data.{name}: {error}") from error
    return state


def weights(modules: dict[str, nn.Module]) -> dict[str, Tensor]:
    """Parameters and buffers by name, each tensor once (a tied encoder is one encoder)."""
    tensors: dict[str, Tensor] = {}
    for name, module in modules.items():
        for key, tensor in [*module.named_parameters(), *module.named_buffers()]:
            tensors[f"{name}.{key}"] = tensor
    return tensors
