"""Make an encoder smaller: fewer subwords and fewer layers, taught by the whole encoder on raw text.

The student begins as the teacher with some of its subwords and some of its layers. Then it learns what the whole
encoder says at every token of the texts, half of them read as questions and half as passages, in its last state and in
the middle one, and each text's vector (`objectives.state_distillation`). No question, no label and no translation is
needed. The folder is that of a training run, with the texts and the student before it has learned anything; the same
call goes on after an interruption.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Literal

from pydantic import Field

from interlingua.alignment.texts import sample_texts
from interlingua.errors import BadInput
from interlingua.files import atomic_write, read_json
from interlingua.models.card import card_of, write_card
from interlingua.models.dual import DualEncoder, holds_two
from interlingua.models.encoder import Encoder
from interlingua.models.folder import model_folder
from interlingua.models.inference.machine import cpu_has_bfloat16, has_no_gpu
from interlingua.models.language_maps import LanguageMaps
from interlingua.models.late_interaction import is_late
from interlingua.models.transformer import Transformer, can_pack
from interlingua.models.trim import trim_vocabulary
from interlingua.progress import track
from interlingua.settings import Settings
from interlingua.text.languages import normalise_code
from interlingua.training.build import train
from interlingua.training.recipe import Recipe, resolve

logger = logging.getLogger(__name__)

CUT, TEXTS, ASKED = "cut", "texts.jsonl", "shrink.json"
"""In the run folder: the student before it has learned anything, the texts, and, written last, what was asked for."""


class ShrinkSpec(Settings):
    """How an encoder becomes smaller, and how it is taught."""

    texts: list[str] = Field(
        min_length=1,
        description="raw text in all languages that the encoder will read: fr=texts.txt, or files that tell their "
        "languages (fr.txt, jsonl with lang, fr-en.tsv.gz: both sides)",
    )
    layers: int | list[int] | None = Field(
        None,
        description="how many layers to keep, evenly spread and the last one among them (of a model that is no BERT or "
        "RoBERTa the first ones), or which; none: all",
    )
    vocabulary: int | Literal["texts", "all"] = Field(
        "texts", description="subwords to keep: those of the texts, the most frequent so many of them, or all"
    )
    langs: list[str] = Field([], description="keep all subwords in the scripts of these languages, too")
    limit: int = Field(20_000, gt=0, description="texts of each language that are learned from, a seeded sample")
    steps: int = Field(4_000, gt=0, description="training steps")
    batch: int = Field(32, gt=1, description="texts a step")
    lr: float = Field(5e-4, gt=0, description="learning rate; it rises for a tenth of the steps, then falls to 0")
    precision: str = Field("auto", description="the number format in which the teacher computes on a processor")
    seed: int = Field(1, ge=0, description="seed of all random numbers")


def shrink(model: str | Path, out: str | Path, spec: ShrinkSpec, device: str | None = None) -> DualEncoder:
    """Shrink `model`, a folder or name of one transformer encoder, in the run folder `out`; the result is `out/model`.

    Raises BadInput for a static or late-interaction model and for two encoders, for layers that the model does not
    have, for fewer texts than a batch, where nothing would become smaller, and for a folder of another run.
    """
    out, teacher = Path(out), model_folder(model)
    options = {"model": str(teacher), **spec.model_dump(mode="json")}
    record = read_json(out / ASKED) or {}
    if {name: record.get(name) for name in options} != options or "kept" not in record:
        if (out / "model").exists() or any((out / "checkpoints").glob("*")):
            if record and {name: record.get(name) for name in options} == options:
                raise BadInput(
                    f"{out}: an earlier version began this, which taught otherwise. Give another folder, or delete it."
                )
            raise BadInput(f"{out}: holds another run, or one with other options. Give another folder, or delete it.")
        record = {**options, **_prepare(teacher, out, spec)}
        with atomic_write(out / ASKED) as stream:
            json.dump(record, stream)
    student = train(_recipe(teacher, out, spec, record["kept"], record.get("trained_in") or _precision()), out, device)
    assert isinstance(student, DualEncoder)
    write_card(out / "model", card_of(teacher), "Made smaller by `interlingua shrink`, and taught by the whole model.")
    return student


def _prepare(teacher: Path, out: Path, spec: ShrinkSpec) -> dict[str, object]:
    """Write the texts and the student before it has learned anything; which layers it has."""
    encoder, backbone = _to_cut(teacher)
    layers, subwords = backbone.layers, _subwords(backbone)
    selection = _chosen(backbone, spec)
    langs = [normalise_code(lang) for lang in spec.langs]
    texts = sample_texts(spec.texts, spec.limit, spec.seed)  # after what is quickly wrong: they may be many
    logger.info("texts: " + ", ".join(f"{lang} {len(sample):,}" for lang, sample in texts.items()))
    if spec.vocabulary != "all":
        limit = spec.vocabulary if isinstance(spec.vocabulary, int) else None
        try:
            trim_vocabulary(encoder, track(chain.from_iterable(texts.values()), "read texts"), langs, limit)
        except BadInput as error:
            raise BadInput(f"{error} vocabulary 'all' keeps all subwords.") from error
    remaining = _subwords(backbone)
    if (len(selection), remaining) == (layers, subwords):
        raise BadInput(f"{layers} layers and {subwords:,} subwords are all that the model has. Ask for fewer of them.")
    if (count := sum(map(len, texts.values()))) < spec.batch:
        raise BadInput(f"texts: {count:,} are fewer than a batch of {spec.batch:,}. Give more, or a smaller batch.")
    logger.info(f"{len(selection)} of {layers} layers, {remaining:,} of {subwords:,} subwords")
    (out / ASKED).unlink(missing_ok=True)  # what it says is no longer so from here on, also after a kill
    for name in (CUT, "start"):  # of a call with other options that was stopped before it had a checkpoint
        if (out / name / "modules.json").is_file():
            shutil.rmtree(out / name)
    if can_pack(backbone.model):
        backbone.keep(selection)
    else:
        backbone.cut(len(selection))
    encoder.save(out / CUT)
    with atomic_write(out / TEXTS) as stream:
        for lang, sample in texts.items():
            stream.writelines(json.dumps({"text": text, "lang": lang}, ensure_ascii=False) + "\n" for text in sample)
    return {"kept": selection, "trained_in": _precision()}


def _precision() -> str:
    """bfloat16 on a processor that has it: twice as fast."""
    return "bf16" if has_no_gpu() and cpu_has_bfloat16() else "auto"


def _recipe(teacher: Path, out: Path, spec: ShrinkSpec, layers: Sequence[int], precision: str) -> Recipe:
    """The training of the student in the run folder `out`, which has these layers of the teacher."""
    distillation: dict[str, object] = {"teacher": str(teacher), "precision": spec.precision}
    if middle := len(layers) // 2:
        distillation |= {"layer": middle, "teacher_layer": layers[middle - 1] + 1}
    return resolve(
        {
            "description": "An encoder made smaller, taught by the whole one on raw text.",
            "seed": spec.seed,
            # the teacher's vectors have unit length, and what is copied is not noise
            "model": {"backbone": str(out / CUT), "encoders": "tied", "normalize": True, "dropout": 0.0},
            "data": {"sentences": {"path": str(out / TEXTS), "batch": spec.batch, "alpha": 0.5}},
            "objectives": {"state_distillation": distillation},
            "optimizer": {"lr": spec.lr, "warmup": spec.steps // 10, "clip": 1.0, "sparse_embeddings": True},
            "training": {
                "steps": spec.steps,
                "log_every": max(1, spec.steps // 40),
                "checkpoint_every": max(1, spec.steps // 20),
                "keep_checkpoints": 1,
                "chunk_tokens": 8192,
                "precision": precision,
            },
        },
        where="shrink",
    )


def _to_cut(teacher: Path) -> tuple[Encoder, Transformer]:
    """The teacher, if it is of the kind that can be made smaller."""
    if is_late(teacher) or holds_two(teacher):
        raise BadInput(f"{teacher}: has a vector a token, or two encoders. Give one encoder of whole texts.")
    if LanguageMaps.beside(teacher) is not None:
        raise BadInput(f"{teacher}: is calibrated. Shrink the model that was calibrated, then calibrate the result.")
    encoder = Encoder.load(teacher, device="cpu")
    if not isinstance(encoder.backbone, Transformer):
        raise BadInput(f"{teacher}: a static model has no layers. Give a transformer.")
    if encoder.settings.similarity != "cosine":
        raise BadInput(f"{teacher}: compares by dot product, and the lengths of vectors are not taught here.")
    return encoder, encoder.backbone


def _subwords(backbone: Transformer) -> int:
    return int(backbone.input_embeddings.num_embeddings)  # type: ignore[arg-type]


def _chosen(backbone: Transformer, spec: ShrinkSpec) -> list[int]:
    """The layers to keep, counted from 0."""
    if spec.layers is None:
        return list(range(backbone.layers))
    if isinstance(spec.layers, list):
        return backbone.choice(spec.layers)
    spreading = spread(backbone.layers, spec.layers)
    return spreading if can_pack(backbone.model) else list(range(spec.layers))


def spread(layers: int, count: int) -> list[int]:
    """`count` of so many layers: evenly spread, the last one among them. Of 12 layers 6: 1, 3, 5, 7, 9, 11.

    Raises BadInput for none, and for more than there are.
    """
    if not 0 < count <= layers:
        raise BadInput(f"layers: {count} of the model's {layers} cannot be kept. Give a number from 1 to {layers}.")
    return [(number + 1) * layers // count - 1 for number in range(count)]
