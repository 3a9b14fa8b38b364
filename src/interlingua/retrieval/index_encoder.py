"""The encoder of an index: the model that it was made with, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.retrieval.vectors import TextEncoder


def load_encoder(model: str, fingerprint: Mapping[str, Any], similarity: str, place: object) -> TextEncoder:
    """The encoder `model` that the index at `place` names, with the `fingerprint` and `similarity` it was made with.

    Raises InterlinguaError where none is named, where it is not there any more, and where it has changed.
    """
    if not model:
        raise InterlinguaError(f"{place}: does not say which model made it. Give the model with --model "
                               "(in Python: pass encoder= when you open it).")
    if Path(model).is_absolute() and not Path(model).exists():
        raise InterlinguaError(f"{place}: was made with the model {model}, which is not there any more. "
                               "Say where it is with --model (in Python: pass encoder= when you open it).")
    encoder: TextEncoder = load_to_encode(model)
    check_encoder(encoder, fingerprint, similarity, place)
    return encoder


def load_to_encode(name_or_path: str | Path) -> Any:
    """What `interlingua.models.loading.load_any` loads, but a `StaticEncoder` where the model is one: that takes a
    tenth of the time."""
    from interlingua.models.static_encoder import StaticEncoder

    found = StaticEncoder.load(name_or_path)
    if found is not None:
        return found
    from interlingua.models.loading import load_any

    return load_any(name_or_path)


def check_encoder(encoder: TextEncoder, fingerprint: Mapping[str, Any], similarity: str, place: object) -> None:
    """Raise InterlinguaError unless `encoder` is the one that the index at `place` was made with."""
    from interlingua.models.fingerprint import check

    check(encoder, fingerprint, str(place))
    if encoder.similarity != similarity:
        raise InterlinguaError(f"{place}: was made for similarity '{similarity}', the model says "
                               f"'{encoder.similarity}'. Make the index again with this model.")
