"""Hu et al. 2023, Table 1: compute as batch × steps, relative to the fine-tuning run."""

from __future__ import annotations

import math
from typing import Any

from tabulate import tabulate


def steps_of(questions: int, batch: int, epochs: int, devices: int = 8) -> int:
    """Optimizer steps of `epochs` epochs when the data is cut into one shard a device (DPR's loader).

    58,880 questions, batch 48 on 8 devices, 20 epochs: 24,540.
    """
    per_device = batch // devices
    return epochs * math.ceil(math.ceil(questions / devices) / per_device)


def compute_table(spec: dict[str, Any]) -> str:
    """The table as text: batch, steps, and batch × steps over the unit's, ours beside the paper's."""
    unit = spec["unit"]
    steps = steps_of(unit["questions"], unit["batch"], unit["epochs"])
    rows = [[name, m["batch"], m["steps"], m["batch"] * m["steps"] / (unit["batch"] * steps), m["expected"]]
            for name, m in spec["models"].items()]
    table = tabulate(rows, ["", "batch", "steps", "relative", "paper"], tablefmt="github", floatfmt=",.1f", intfmt=",")
    return f"{spec['title']}\n\nunit: {unit['batch']} × {steps:,} steps\n\n{table}\n"
