"""Train on your questions and translations, measure, and save a model that sentence-transformers loads.

python examples/train_on_your_data.py [RUN_FOLDER]
"""

from __future__ import annotations

import sys
from tempfile import mkdtemp

from interlingua import DualEncoder, load_collection
from interlingua.data.collections import cross
from interlingua.evaluation import evaluate_on
from interlingua.training.build import train
from interlingua.training.recipe import resolve

# Put your files in place of "encyclopedia:train": questions.jsonl, memory.tmx (docs/data.md lists the formats).
RECIPE = {
    "seed": 1,
    "model": {"backbone": "default", "encoders": "tied", "token_dropout": 0.15},
    "data": {
        "questions": {"path": "encyclopedia:train", "batch": 64},
        "parallel": {"path": "encyclopedia:train", "batch": 64},
    },
    "objectives": {
        "retrieval": {"temperature": 0.05, "hard_negatives": 0},
        "semantic": {"weight": 1.0, "temperature": 0.05},
    },
    "optimizer": {"lr": 0.01, "warmup": 5},
    "training": {"steps": 20, "log_every": 10, "tensorboard": False},
}


def main(folder: str) -> None:
    trained = train(resolve(RECIPE), folder)  # the same call goes on after a stop
    swahili, english = (load_collection(f"encyclopedia:{lang}", split="train") for lang in ("sw", "en"))
    asked = [cross(swahili, english)]  # Swahili questions, English passages
    for name, model in (("bundled model", DualEncoder.load("default")), ("trained on it", trained)):
        (result,) = evaluate_on(model, asked, ["RR@100"])
        print(f"{name}  MRR@100 of {len(swahili.queries)} questions: {result.scores['RR@100']:.3f}")
    print(f"the model is {folder}/model")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
