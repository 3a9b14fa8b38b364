"""The description of a model: kind, lengths, prompts, and the card (README.md) with its licence and origin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlingua.models.protocols import has_token_vectors

CARD = "README.md"


@dataclass(frozen=True)
class ModelInfo:
    """The description of a model. `layers` counts those of its transformer, 0 for a static model; `max_length` is the
    most tokens of a text by role, None without a limit; `languages` are those of its calibration; `licence` is ""
    where its folder does not say."""

    folder: str
    kind: str
    encoders: int
    dim: int
    layers: int
    similarity: str
    max_length: dict[str, int | None]
    prompts: dict[str, str]
    languages: list[str]
    licence: str


def model_info(model: Any, folder: Path) -> ModelInfo:
    """Describe a `DualEncoder` or `LateInteractionEncoder` that was loaded from `folder`."""
    sides = {"query": model.query, "passage": model.passage}
    config = getattr(getattr(model.query.backbone, "model", model.query.backbone), "config", None)
    backbone = "static" if config is None else f"transformer ({config.model_type})"
    maps = [side.language_maps for side in sides.values() if getattr(side, "language_maps", None) is not None]
    return ModelInfo(
        folder=str(folder),
        kind=f"late interaction, {backbone}" if has_token_vectors(model) else backbone,
        encoders=len(set(sides.values())),
        dim=model.dim,
        layers=0 if config is None else config.num_hidden_layers,
        similarity=model.similarity,
        max_length={role: side.settings.length(role) for role, side in sides.items()},
        prompts={role: prompt for role, side in sides.items() if (prompt := side.settings.prompt(role))},
        languages=sorted({lang for one in maps for lang in one.languages}),
        licence=licence(folder),
    )


def licence(folder: Path) -> str:
    """The licence that a model's README.md names in its front matter, as on the Hugging Face hub; "" without one."""
    file = folder / CARD
    lines = file.read_text("utf-8", errors="replace").splitlines() if file.is_file() else []
    if lines[:1] != ["---"]:
        return ""
    card = lines[1 : lines.index("---", 1)] if "---" in lines[1:] else []
    names = (line.partition(":")[2].strip().strip("\"'") for line in card if line.startswith("license:"))
    return next(names, "")


def card_of(source: Path) -> bytes | None:
    """The card of the model in `source`, if it has one: to be read before its folder may be replaced."""
    return (source / CARD).read_bytes() if (source / CARD).is_file() else None


def write_card(folder: Path, card: bytes | None, changed: str) -> None:
    """Put the `card` of a model beside the one that was made of it in `folder`, and say in it how it was `changed`."""
    if card is not None:
        (folder / CARD).write_bytes(card + f"\n{changed}\n".encode())
