"""A model of either kind: what the folder holds decides."""

from __future__ import annotations

from pathlib import Path

import torch

from interlingua.models.dual import DualEncoder
from interlingua.models.hub import model_folder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.models.late_interaction_layout import is_late

Model = DualEncoder | LateInteractionEncoder
"""One vector a text, or one a token."""


def load_any(name_or_path: str | Path, *, device: str | torch.device | None = None,
             dtype: str | torch.dtype | None = None, for_training: bool = False) -> Model:
    """A LateInteractionEncoder if the folder holds one, else what `DualEncoder.load` reads."""
    folder = model_folder(name_or_path)
    kind = LateInteractionEncoder if is_late(folder) else DualEncoder
    return kind.load(folder, device=device, dtype=dtype, for_training=for_training)
