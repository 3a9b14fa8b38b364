"""Has the model changed? A short record of an encoder that an index keeps beside its vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from interlingua.errors import InterlinguaError

PROBE = (
    "",
    "Where was Alan Turing born?",
    "أين ولد آلان تورينج؟",
    "অ্যালান টুরিং কোথায় জন্মগ্রহণ করেন?",
    "Missä Alan Turing syntyi?",
    "Di mana Alan Turing lahir?",
    "アラン・チューリングはどこで生まれましたか。",
    "앨런 튜링은 어디에서 태어났습니까?",
    "Где родился Алан Тьюринг?",
    "Alan Turing alizaliwa wapi?",
    "అలాన్ ట్యూరింగ్ ఎక్కడ జన్మించాడు?",
    "แอลัน ทัวริงเกิดที่ไหน",
    "艾伦·图灵在哪里出生？",
)
_SAMPLE = 1_024


def fingerprint(encoder: Any) -> dict[str, Any]:
    """Equal for equal models, whatever the device or number format they compute in; safe to keep as JSON.

    "tokens": hash of the probe's token ids in both roles; "weights": hash of a sample of every weight;
    "settings": hash of pooling, length, prompt and template; "calibration": hash of a calibrated model's maps.
    Vectors are not compared: their last digits depend on the machine. Of an object that is not one of our encoders, its
    vectors of the probe are all there is to hash.
    """
    # told apart by what they have: their modules read fingerprints themselves
    one, two = hasattr(encoder, "pooling"), hasattr(encoder, "own_passage") or hasattr(encoder, "static_sides")
    if hasattr(encoder, "projection") and hasattr(encoder, "query_expansion"):
        return _late_interaction(encoder)
    if not one and not two:
        vectors = [encoder.encode_query(list(PROBE)), encoder.encode_document(list(PROBE))]
        rows = [row for found in vectors for row in getattr(found, "vectors", found)]  # late interaction: of each token
        return {"vectors": _hash(repr([[round(float(x), 3) for x in row] for row in rows]))}
    pair = dict.fromkeys(("query", "passage"), encoder) if one else {"query": encoder.query, "passage": encoder.passage}
    return {
        "dim": encoder.dim,
        "similarity": pair["query"].settings.similarity,
        "tokens": _hash(repr([part.tokenize(PROBE, role) for role, part in pair.items()])),
        "settings": _hash(repr([(part.pooling, part.normalize, part.settings.template, part.settings.length(role),
                                 part.settings.prompt(role)) for role, part in pair.items()])),
        **_calibration(pair),
        "weights": _hash("".join(_weights(part) for part in dict.fromkeys(pair.values()))),
    }


def _late_interaction(encoder: Any) -> dict[str, Any]:
    settings = [(encoder.settings.template, encoder.settings.length(role), encoder.settings.prompt(role))
                for role in ("query", "passage")]
    return {"similarity": encoder.similarity,
            "tokens": _hash(repr([encoder.tokenize(PROBE, role) for role in ("query", "passage")])),
            "settings": _hash(repr((settings, encoder.query_expansion, encoder.skipped))),
            "weights": _hash(_weights(encoder))}


def _calibration(pair: Mapping[str, Any]) -> dict[str, str]:
    """The hash of the language maps, where there are any: a calibrated model's vectors are others."""
    tensors = [f"{role} {lang} {part} {hashlib.sha256(tensor.numpy().tobytes()).hexdigest()}"
               for role, encoder in pair.items() if encoder.language_maps is not None
               for lang, one in sorted(encoder.language_maps.maps.items()) for part, tensor in one.tensors().items()]
    return {"calibration": _hash("\n".join(tensors))} if tensors else {}


def check(encoder: Any, recorded: Mapping[str, Any], where: str) -> None:
    """Raise InterlinguaError, naming `where` and what differs, unless `recorded` is the encoder's fingerprint."""
    now = fingerprint(encoder)
    different = sorted(key for key in now.keys() | recorded.keys() if now.get(key) != recorded.get(key))
    if different:
        raise InterlinguaError(f"{where}: was made with another model ({', '.join(different)} differ). Use that "
                               "model, or make it again with this one.")


def _weights(encoder: Any) -> str:
    tensors = {f"{layer}.{name}": value for layer in ("dense", "projection") if hasattr(encoder, layer)
               for name, value in getattr(encoder, layer).named_parameters()}
    # rows of a static model are looked at where they are, in a file perhaps
    table = encoder.table if hasattr(encoder, "table") else getattr(encoder.backbone, "table", lambda: None)()
    if table is None:
        tensors |= {name: value for name, value in encoder.backbone.model.named_parameters()
                    if not name.startswith("pooler.")}
    samples = {} if table is None else {"rows": (table.shape, table.sample(_step(table.shape[0] * table.shape[1])))}
    for name, tensor in tensors.items():
        flat = tensor.detach().reshape(-1)
        samples[name] = tuple(tensor.shape), flat[:: _step(len(flat))].float().cpu().numpy()
    return "\n".join(f"{name} {shape} {hashlib.sha256(sample.tobytes()).hexdigest()}"
                     for name, (shape, sample) in sorted(samples.items()))


def _step(size: int) -> int:
    return max(1, size // _SAMPLE)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
