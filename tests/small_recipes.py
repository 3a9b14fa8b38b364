"""Recipes that train in a second: a bag of subwords, a small transformer, and contexts with a bank."""

from typing import Any

STATIC: dict[str, Any] = {
    "tokenizer_sentences": 400,  # learning the vocabulary would take most of the time
    "model": {"backbone": {"static": {"vocab_size": 3000, "dim": 16}}, "encoders": "tied", "token_dropout": 0.2},
    "data": {
        "questions": {"path": "encyclopedia:train", "batch": 6},
        "parallel": {"path": "encyclopedia:train", "batch": 8},
    },
    "objectives": {
        "retrieval": {"temperature": 0.05, "hard_negatives": 0},
        "semantic": {"weight": 0.5},
        "language": {"weight": 0.1},
    },
    "optimizer": {"lr": 0.01, "warmup": 2},
    "training": {"steps": 12, "checkpoint_every": 4, "log_every": 4, "tensorboard": False},
}
SCRATCH: dict[str, Any] = {
    **STATIC,
    "model": {
        "backbone": {
            "scratch": {"vocab_size": 3000, "layers": 1, "hidden": 16, "heads": 2, "intermediate": 32, "max_length": 32}
        },
        "encoders": "untied",
    },
}
CONTEXT: dict[str, Any] = {
    "tokenizer_sentences": 400,
    "model": {**SCRATCH["model"], "encoders": "tied", "pooling": "cls"},
    "data": {
        "contexts": {"path": "encyclopedia:train", "batch": 3, "alpha": 0.3, "one_language": True, "window": 3},
        "sentences": {"path": "encyclopedia:train", "batch": 5},
    },
    "objectives": {"context_prediction": {"bank": 16, "bank_dtype": "float16"}, "masked_language_modelling": {}},
    "optimizer": {"lr": 0.01, "warmup": 2},
    "training": {
        "steps": 12,
        "checkpoint_every": 4,
        "log_every": 4,
        "tensorboard": False,
        "accumulate": 4,
        "objective_sampling": {"context_prediction": 0.6, "masked_language_modelling": 0.4},
    },
}
