"""Which vectors a row is measured by: those of the model, of one of its layers, or calibrated ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from random import Random

from interlingua.alignment import Calibration
from interlingua.data.source import DataSpec, read
from interlingua.experiments.table_spec import CalibrationSpec, Reading
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.loading import Model, load_any


def read_model(folder: str | Path, how: Reading, device: str | None) -> Model:
    """The model in `folder`; with a layer or a pooling, its one encoder cut to that layer and pooled so."""
    if how.layer is None and how.pooling is None:
        return load_any(folder, device=device)
    return DualEncoder(Encoder.load(folder, layer=how.layer, pooling=how.pooling, device=device))


def calibrated(model: DualEncoder, spec: CalibrationSpec, source: DataSpec) -> DualEncoder:
    """The same model with maps fitted on raw text: of each language a random `source.limit` of its sentences."""
    texts: dict[str, list[str]] = defaultdict(list)
    seen: Counter[str] = Counter()
    random = Random(0)
    for sentence in read("calibrate_on", source):
        held = texts[sentence.lang]
        seen[sentence.lang] += 1
        if source.limit is None or len(held) < source.limit:
            held.append(sentence.text)
        elif (place := random.randrange(seen[sentence.lang])) < source.limit:  # Vitter's reservoir: all equally likely
            held[place] = sentence.text
    for role in ("passage",) if model.tied else ("query", "passage"):
        encoder = model.encoder(role)
        vectors = {lang: encoder.encode(those, role=role) for lang, those in texts.items()}
        encoder.language_maps = Calibration.fit(vectors, pivot=spec.pivot, shift=spec.shift, scale=spec.scale,
                                                rotate=spec.rotate).maps
    return model
