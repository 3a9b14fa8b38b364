"""An index whose passages are encoded on several machines."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.encoded_parts import EncodedParts
from interlingua.retrieval.index import build_index
from interlingua.retrieval.ray_encoding import encode_on_ray


def build_index_on_ray(model: str, passages: Iterable[Passage], place: str | Path, *, address: str | None = None,
                       workers: int | None = None, overwrite: bool = False, **options: Any) -> Any:
    """`build_index` with the model of this name or folder, which the machines of a Ray cluster load (`encode_on_ray`).

    The parts that they encode lie in `{place}.parts`, or for an index in Milvus in `{collection}.parts` here, until the
    index is there: a build that was stopped, in either half, goes on with them. This machine alone writes the index.
    """
    place = str(place)
    if not place.startswith("milvus:") and Path(place).exists() and not overwrite:
        raise InterlinguaError(f"{place}: already exists. Choose another folder, or replace it with --overwrite "
                               "(in Python: overwrite=True).")
    name = place.partition("?")[0].rpartition("/")[2] if place.startswith("milvus:") else Path(place)
    folder = Path(f"{name}.parts")
    parts = encode_on_ray(model, passages, folder, address=address, workers=workers)
    known = EncodedParts(DualEncoder.load(model), parts)
    built = build_index(known, known.passages(), place, model_path=model, overwrite=overwrite, **options)
    for part in parts:
        part.unlink()
    with suppress(OSError):  # somebody keeps something else in it
        folder.rmdir()
    return built
