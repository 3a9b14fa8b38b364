"""A loss of your own: alignment and uniformity (Wang & Isola 2020), trained from a recipe like any other.

python examples/new_loss.py [RUN_FOLDER]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from tempfile import mkdtemp

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from interlingua import DualEncoder
from interlingua.objectives.objective import Batch, Loss, Objective, ObjectiveSettings, Texts
from interlingua.training.build import train
from interlingua.training.recipe import resolve
from interlingua.training.weighted import OBJECTIVES


class AlignmentUniformity(Objective):
    """Translations lie together, and all vectors are spread over the sphere."""

    class Settings(ObjectiveSettings):
        """Its options in a recipe, and those of its constructor."""

        spread: float = Field(0.5, ge=0, description="the weight of uniformity")

    settings: Settings
    streams = ("parallel",)  # the entries of `data:` that it reads

    def requests(self, batch: Batch) -> dict[str, Texts]:
        pairs = batch["parallel"]
        return {
            "source": Texts("passage", [pair.source for pair in pairs]),
            "target": Texts("passage", [pair.target for pair in pairs]),
        }

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        x, y = (normalize(vectors[name], dim=1) for name in ("source", "target"))  # [pairs, dim]
        alignment = (x - y).square().sum(1).mean()
        uniformity = torch.pdist(torch.cat([x, y])).square().mul(-2).exp().mean().log()
        value = alignment + self.settings.spread * uniformity
        return Loss(value, {"apart": alignment.item(), "spread": uniformity.item()})


OBJECTIVES["alignment_uniformity"] = AlignmentUniformity
RECIPE = {
    "model": {"backbone": "default", "encoders": "tied"},
    "data": {"parallel": {"path": "encyclopedia:train", "batch": 64}},
    "objectives": {"alignment_uniformity": {"spread": 0.1}},
    "optimizer": {"lr": 0.01},
    "training": {"steps": 20, "log_every": 10, "tensorboard": False},
}

if __name__ == "__main__":
    trained = train(resolve(RECIPE), sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
    for name, model in (("before", DualEncoder.load("default")), ("after", trained)):
        one, other = model.encode_document(["Coffee is a drink.", "Kahvi on juoma."])
        print(f"cosine of a sentence and its translation, {name}: {float(one @ other):.2f}")
