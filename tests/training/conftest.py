"""One recipe learned by one process and by two that torch.distributed joins, with the gradients of every step."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from safetensors.torch import load_file

LEARN = """
import sys
from pathlib import Path
import torch, yaml
from safetensors.torch import save_file
from interlingua.training.build import train
from interlingua.training.optimizer import Optimizer
from interlingua.training.recipe import resolve

recipe, out, taken, step = Path(sys.argv[1]), Path(sys.argv[2]), [], Optimizer.step
def noting(self, number):
    taken.append({str(n): p.grad.to_dense().clone() for n, p in enumerate(self.parameters) if p.grad is not None})
    return step(self, number)
Optimizer.step = noting
train(resolve(yaml.safe_load(recipe.read_text(encoding="utf-8"))), out, "cpu")
if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
    for number, gradients in enumerate(taken):
        save_file(gradients, out / f"gradients-{number:03}.safetensors")
"""
TERMS = 2**10
"""About how many float32 terms a number is the sum of: in another order it differs by up to so many roundings."""
ROUNDING = torch.finfo(torch.float32).eps
LR = 0.002


class Learned(NamedTuple):
    """The recipe, and the folders of the two runs."""

    recipe: Path
    one: Path
    two: Path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return {
        f"{file.relative_to(folder)} {name}": tensor
        for file in sorted(folder.rglob("model.safetensors"))
        for name, tensor in load_file(file).items()
    }


def assert_same_weights(one: Path, two: Path, start: Path, steps: int) -> None:
    """Within a thousandth of the way that a weight can go in so many steps."""
    first, second, before = weights(one), weights(two), weights(start)
    assert first.keys() == second.keys()
    for name in first:
        torch.testing.assert_close(
            second[name], first[name], atol=LR * steps / 1000, rtol=0, msg=lambda said, name=name: f"{name}: {said}"
        )
    assert max(float((first[name] - before[name]).abs().max()) for name in before) > LR / 10  # it learned


@pytest.fixture
def learned(python: Callable[..., Any], tmp_path: Path) -> Callable[[dict[str, Any]], Learned]:
    """`learned(tree)`: the tree without dropout, learned by one process and by two (gloo); only the order of additions
    may differ. What both wrote is compared: the gradients of every step, the weights and the log.

    Adam divides a gradient by its own size, so that one of mere rounding (of a key's bias, which has none) moves a
    weight by a whole step, and the runs part. With an `eps` of the size of the gradients a step follows its gradient.
    """

    def learn(tree: dict[str, Any], logged: str = "") -> Learned:
        """`logged`: of the numbers of the log, compare those whose name ends so."""
        tree = json.loads(json.dumps(tree))
        tree["model"]["token_dropout"] = 0.0
        backbone = tree["model"]["backbone"]
        if "scratch" in backbone:
            backbone["scratch"]["dropout"] = 0.0
        tree["optimizer"] = {"lr": LR, "eps": 1e-3, "schedule": "constant"}
        tree["training"]["log_every"] = 1
        done = Learned(tmp_path / "recipe.yaml", tmp_path / "one", tmp_path / "two")
        done.recipe.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        started = [
            python("-c", LEARN, done.recipe, done.one),
            *(python("-c", LEARN, done.recipe, done.two, RANK=rank, LOCAL_RANK=rank, **group) for rank in "01"),
        ]
        said = [process.communicate(300)[1] for process in started]
        assert [process.returncode for process in started] == [0, 0, 0], "\n".join(said)
        assert "collapsed" not in said[0]  # the numbers of such a run mean nothing
        assert_same_gradients(done)
        assert_same_weights(done.one / "model", done.two / "model", done.one / "start", tree["training"]["steps"])
        first, second = (
            [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
            for folder in (done.one, done.two)
        )
        assert len(first) == tree["training"]["steps"]
        for lines in zip(first, second, strict=True):
            ours, theirs = ({key: line[key] for key in line if key.endswith(logged)} for line in lines)
            assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
        return done

    return learn


def assert_same_gradients(done: Learned) -> None:
    """A gradient that is all rounding is held to the size of the others."""
    files = [sorted(folder.glob("gradients-*")) for folder in (done.one, done.two)]
    for one, two in zip(*files, strict=True):
        first, second = load_file(one), load_file(two)
        assert first.keys() == second.keys()
        largest = max(float(gradient.abs().max()) for gradient in first.values())
        assert largest > 0.01
        for name, gradient in first.items():
            torch.testing.assert_close(
                second[name],
                gradient,
                rtol=0,
                atol=ROUNDING * (TERMS * float(gradient.abs().max()) + 16 * largest),
                msg=lambda said, name=name, file=one.name: f"{file}, parameter {name}: {said}",
            )
