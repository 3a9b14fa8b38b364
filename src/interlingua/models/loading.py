"""A model of either kind: what the folder holds decides."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from interlingua.models.hub import model_folder
from interlingua.models.static_encoder import StaticEncoder

if TYPE_CHECKING:  # they import torch, which takes seconds
    import torch

    from interlingua.models.dual import DualEncoder
    from interlingua.models.late_interaction import LateInteractionEncoder

    Model = DualEncoder | LateInteractionEncoder
    """One vector a text, or one a token."""


def load_any(name_or_path: str | Path, *, device: str | torch.device | None = None,
             dtype: str | torch.dtype | None = None, for_training: bool = False) -> Model:
    """A LateInteractionEncoder if the folder holds one, else what `DualEncoder.load` reads."""
    from interlingua.models.dual import DualEncoder
    from interlingua.models.late_interaction import LateInteractionEncoder
    from interlingua.models.late_interaction_layout import is_late

    folder = model_folder(name_or_path)
    kind = LateInteractionEncoder if is_late(folder) else DualEncoder
    return kind.load(folder, device=device, dtype=dtype, for_training=for_training)


def load_to_encode(name_or_path: str | Path) -> Model | StaticEncoder:
    """As `load_any`, but a static model without Dense layers and calibration comes without torch, in a tenth of the
    time."""
    return StaticEncoder.load(name_or_path) or load_any(name_or_path)
