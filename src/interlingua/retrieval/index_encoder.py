"""The encoder of an index: the model that it was made with, and no other."""

from __future__ import annotations

from pathlib import Path

from interlingua.errors import InterlinguaError
from interlingua.retrieval.index_about import About
from interlingua.retrieval.vectors import TextEncoder


def load_encoder(about: About, path: Path) -> TextEncoder:
    """The encoder that the index at `path` names. Raises InterlinguaError where it names none, where it is not there
    any more, and where it has changed."""
    model = about.model
    if not model:
        raise InterlinguaError(f"{path}: does not say which model made it. Give the model with --model "
                               "(in Python: pass encoder= to Index.open).")
    if Path(model).is_absolute() and not Path(model).exists():
        raise InterlinguaError(f"{path}: was made with the model {model}, which is not there any more. "
                               "Say where it is with --model (in Python: pass encoder= to Index.open).")
    from interlingua.models.dual import DualEncoder

    encoder = DualEncoder.load(model)
    check_encoder(encoder, about, path)
    return encoder


def check_encoder(encoder: TextEncoder, about: About, path: Path) -> None:
    """Raise InterlinguaError unless `encoder` is the one that the index at `path` was made with."""
    from interlingua.models.fingerprint import check

    check(encoder, about.fingerprint, str(path))
    if encoder.similarity != about.similarity:
        raise InterlinguaError(f"{path}: was made for similarity '{about.similarity}', the model says "
                               f"'{encoder.similarity}'. Make the index again with this model.")
