"""From a recipe to a trained model in a run folder: the one place where files, models and the loop meet."""

from __future__ import annotations

import logging
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn

from interlingua.data.datasets import open_store, open_stream, texts_by_language, texts_of
from interlingua.data.records import batched
from interlingua.data.store import Store
from interlingua.data.stream import Stream, key_of
from interlingua.errors import BadInput
from interlingua.files import alone, atomic_write
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import default_device
from interlingua.models.folder import folder_here, model_folder
from interlingua.models.inference.machine import cpu_has_bfloat16
from interlingua.models.late_interaction import LateInteractionEncoder, Model, is_late, load_any
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.models.subwords import Text
from interlingua.objectives import Distillation, LateInteraction, Retrieval, StateDistillation
from interlingua.objectives.distillation import TeacherSpec, taught_texts
from interlingua.training.backbones import Backbone, build_encoder, freeze
from interlingua.training.checkpoint import newest
from interlingua.training.encoding import Chunking
from interlingua.training.optimizer import LossScale, Optimizer
from interlingua.training.processes import Processes
from interlingua.training.recipe import ModelSpec, Recipe, TrainingSpec, recipe_text, same_recipe, warm_up_of
from interlingua.training.teacher import TeacherStates, TeacherVectors, learn_from
from interlingua.training.trainer import Trainer, Validate, retrieval_nll
from interlingua.training.weighted import (
    WITHOUT_STATES,
    WeightedObjective,
    advise,
    check,
    data_read,
    data_trained_on,
    options_of,
    weighted_objective,
)

logger = logging.getLogger(__name__)

FEWEST = 10_000
"""A language with fewer subwords counts as if it had so many: one of a few is not known to be frequent."""
LOCK = ".training.lock"
"""In a run folder: held by the call that trains there, and free after its death."""


def train(recipe: Recipe, out: str | Path, device: str | None = None, *, wait: bool = False) -> Model:
    """Train what the recipe says into the folder `out`; the model is `out/model` afterwards.

    The same call continues an interrupted run, bit for bit (same machine, same number of processes), and
    returns at once when the run is complete. Raises BadInput when `out` holds another recipe's run, and Busy while
    another call trains there, unless it is to `wait` for that.
    """
    check(recipe)
    default_device(device)  # one that is not there is said before anything is made
    out, processes = Path(out), Processes.join(device)
    if out.is_file():
        raise BadInput(f"{out}: is a file. Give a folder for the run.")
    if not processes.first:
        return _train(recipe, out, device, processes)
    out.mkdir(parents=True, exist_ok=True)
    # every call leaves its lock there; runs of versions without one have a log
    begun = (out / LOCK).exists() or (out / "log.jsonl").exists()
    for name in () if begun else ("model", "checkpoints", "start", "best"):
        if (out / name).exists():
            raise BadInput(f"{out / name}: is there, and of no training. Give another folder with --out.")
    advice = "this one waits for it" if wait else "wait for it, stop it, or give another folder"
    busy = f"{out}: another process trains there: {advice}."
    with alone(out / LOCK, busy, wait):  # two would write each other's checkpoints
        return _train(recipe, out, device, processes)


def _train(recipe: Recipe, out: Path, device: str | None, processes: Processes) -> Model:
    if processes.first:
        _claim(recipe, out)
    processes.wait()
    if (out / "model").exists():
        if processes.first:
            logger.info(f"{out}: complete; the model is {out / 'model'}")
        return load_any(out / "model", device=str(processes.device))
    start = _warm_up(recipe, out, device)
    name = Backbone.of(recipe.model.backbone).name
    if processes.first and start is None and name is not None and not (out / "start").exists():
        folder_here(name)  # a folder that is not there is said before the data is read
    stores = _stores(recipe, out, processes)
    model = _start(recipe, out, start, stores, processes).to(processes.device)
    # new heads start the same on every process, whether or not `start` was there already
    torch.manual_seed(recipe.seed)
    trainer = _trainer(recipe, out, model, stores, processes)
    trainer.run()
    if processes.first:
        best = recipe.training.keep == "best"
        trained = load_any(out / "best", device="cpu") if best else trainer.model
        for backbone in dict.fromkeys((trained.query.backbone, trained.passage.backbone)):
            if isinstance(backbone, StaticEmbedding):
                if recipe.model.norm_power != 1:
                    backbone.even_out(recipe.model.norm_power)
                if recipe.model.sif_coefficient is not None:
                    backbone.down_weight(_frequencies(recipe, stores, backbone), recipe.model.sif_coefficient)
        trained.save(out / "model")
        logger.info(f"{out / 'model'}: saved")
    processes.wait()
    return load_any(out / "model", device=str(processes.device))


def _claim(recipe: Recipe, out: Path) -> None:
    """Write the resolved recipe, or check that the folder is this recipe's.

    A run that failed before its first checkpoint has nothing to lose: the mended recipe may have its folder, and its
    model begins anew, as the data may be other data now.
    """
    file, same = out / "recipe.yaml", False
    if file.exists():
        same = same_recipe(file.read_text(encoding="utf-8"), recipe)
        runs = [run for run in (out, out / "warm_up") if (run / "model").exists() or newest(run / "checkpoints")]
        if same and out in runs:
            return
        if not same and runs:
            raise BadInput(f"{out}: holds a run of another recipe (see {file}). Use another --out, or delete it.")
        for leftover in ("start", "best"):
            shutil.rmtree(out / leftover, ignore_errors=True)
    if not same:  # else it may be what somebody wrote
        with atomic_write(file) as stream:
            stream.write(recipe_text(recipe))


def _warm_up(recipe: Recipe, out: Path, device: str | None) -> Path | None:
    """Run the recipe's warm-up first, in its own folder; where its model is. It has one vector a text, and evens out no
    lengths and weighs no frequencies, which the run itself does, unless it says otherwise itself."""
    if (warm_up := warm_up_of(recipe)) is None:
        return None
    train(warm_up, out / "warm_up", device)
    return out / "warm_up" / "model"


def _stores(recipe: Recipe, out: Path, processes: Processes) -> dict[str, Store[Any]]:
    read = data_read(recipe)
    data = {name: spec for name, spec in recipe.data.items() if name in read}
    if processes.first:
        for name, spec in data.items():
            open_store(name, spec, out / "data")
    processes.wait()
    return {name: open_store(name, spec, out / "data", build=False) for name, spec in data.items()}


def _start(recipe: Recipe, out: Path, start: Path | None, stores: dict[str, Store[Any]], processes: Processes) -> Model:
    """The untrained model, kept in `out/start` so that a resume (and every process) begins from the same one."""
    folder = out / "start"
    if processes.first and not folder.exists():
        if start is None and Backbone.of(recipe.model.backbone).name is None:
            logger.info(f"a new model: learning its vocabulary from up to {recipe.tokenizer_sentences:,} records")
        model_of(recipe.model, start, _texts(recipe, stores), recipe.seed).save(folder)
    processes.wait()
    model = load_any(folder, device=str(processes.device), for_training=True)
    static = any(isinstance(encoder.backbone, StaticEmbedding) for encoder in (model.query, model.passage))
    unused = {
        "token_dropout": recipe.model.token_dropout > 0,
        "norm_power": recipe.model.norm_power != 1,
        "sif_coefficient": recipe.model.sif_coefficient is not None,
    }
    for name in [name for name, given in unused.items() if given and processes.first and not static]:
        instead = " Transformers have model.dropout." if name == "token_dropout" else ""
        logger.warning(f"model.{name} does nothing here: it is for static models.{instead}")
    if recipe.optimizer.sparse_embeddings and processes.first and static:
        logger.warning(
            "optimizer.sparse_embeddings changes nothing here: a static model always updates only the rows it reads."
        )
    for encoder in (model.query, model.passage):
        if isinstance(encoder.backbone, StaticEmbedding):
            if recipe.model.dropout is not None:
                raise BadInput("model.dropout: a static model has none. model.token_dropout drops whole tokens of it.")
            encoder.backbone.token_dropout = recipe.model.token_dropout
        else:
            encoder.input_embeddings.sparse = recipe.optimizer.sparse_embeddings  # type: ignore[assignment]
            if recipe.model.dropout is not None:
                _drop(encoder.backbone, recipe.model.dropout)
        freeze(encoder.backbone, recipe.model.freeze)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadInput(f"model.freeze: {', '.join(recipe.model.freeze)} is all of the model; nothing is left to train.")
    return model


def _drop(backbone: nn.Module, share: float) -> None:
    """Change the dropout of a transformer while it is trained; what is saved keeps its configuration."""
    for module in backbone.modules():
        if isinstance(module, nn.Dropout):
            module.p = share
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = share  # type: ignore[assignment]


def model_of(spec: ModelSpec, start: Path | None, texts: Iterator[str] | None, seed: int) -> Model:
    """The model of a recipe's `model:`, from `start` if given, else from its backbone.

    A late-interaction model that it starts from keeps its projection and markers; any other gets new ones.
    """
    if spec.late_interaction is None:
        return dual_of(spec, start, texts, seed)
    options = spec.late_interaction.model_dump()
    backbone = Backbone.of(start if start is not None else spec.backbone)
    if backbone.name is None or not is_late(model_folder(backbone.name)):
        encoder = build_encoder(
            backbone,
            texts=texts,
            seed=seed,
            layer=None if start is not None else spec.layer,
            prompts=spec.prompts,
            template=spec.template,
        )
        return LateInteractionEncoder.start(encoder, **options, seed=seed)
    model = LateInteractionEncoder.load(backbone.name)
    if (dim := options.pop("dim")) != model.dim or spec.layer is not None or backbone.layers is not None:
        raise BadInput(
            f"{backbone.name}: is a late-interaction model of dim {model.dim}, which cannot be cut or "
            f"given another. Leave out model.layer and backbone.layers, and set model.late_interaction.dim (now {dim})."
        )
    model.change(**options, prompts=spec.prompts, template=spec.template)
    return model


def dual_of(spec: ModelSpec, start: Path | None, texts: Iterator[str] | None, seed: int) -> DualEncoder:
    """A dual encoder as the recipe's `model:` describes it, from `start` if given, else from its backbone. Of an untied
    one that starts from a model of two encoders, each goes on from its own."""
    source = str(start) if start is not None else spec.backbone
    options: dict[str, Any] = {
        "pooling": spec.pooling,
        "layer": None if start is not None else spec.layer,
        "dense": None if start is not None else spec.dense,
        "normalize": spec.normalize,
        "max_length": spec.max_length,
        "prompts": spec.prompts,
        "template": spec.template,
    }
    if spec.encoders == "untied" and isinstance(source, str):
        model = DualEncoder.both(source, similarity=spec.similarity, **options)
        if model is not None:
            return model
    encoder = build_encoder(source, texts=texts, seed=seed, **options)
    kind = DualEncoder.tied if spec.encoders == "tied" else DualEncoder.untied
    return kind(encoder, similarity=spec.similarity)


def _texts(recipe: Recipe, stores: dict[str, Store[Any]]) -> Iterator[str]:
    """The texts that a vocabulary is learned from, each once: parallel text repeats its English side by language."""
    seen: set[bytes] = set()
    for store, most, alpha in _samples(recipe, stores):
        for text in texts_of(store, most, recipe.seed, alpha):
            if (digest := blake2b(text.encode(), digest_size=8).digest()) not in seen:
                seen.add(digest)
                yield text


def _samples(recipe: Recipe, stores: dict[str, Store[Any]]) -> Iterator[tuple[Store[Any], int, float]]:
    """The stores that a vocabulary is learned from, how many records of each, and the alpha of its languages."""
    names = recipe.tokenizer_data or list(stores)
    for name in names:
        yield (
            stores[name],
            recipe.tokenizer_sentences // max(1, len(names)),
            recipe.data[name].alpha if recipe.tokenizer_data else 0.0,
        )


def _frequencies(recipe: Recipe, stores: dict[str, Store[Any]], backbone: StaticEmbedding) -> torch.Tensor:
    """How frequent each subword is in the language that has it most, `[vocabulary]`: its share of all subwords of that
    language in the records that a vocabulary is learned from, each with all its texts (both sides of a pair) in the
    record's language."""
    size = len(backbone.embedding.weight)
    counts: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros(size))
    for store, most, alpha in _samples(recipe, stores):
        for lang, texts in texts_by_language(store, most, recipe.seed, alpha):
            for batch in batched(texts, 10_000):
                ids = torch.tensor(list(chain.from_iterable(backbone.subwords(batch))), dtype=torch.long)
                counts[lang] += torch.bincount(ids, minlength=size)
    return torch.stack([found / found.sum().clamp(min=FEWEST) for found in counts.values()]).amax(0)


def _trainer(recipe: Recipe, out: Path, model: Model, stores: dict[str, Store[Any]], processes: Processes) -> Trainer:
    specs = {name: spec for name, spec in recipe.objectives.items() if spec is not None}
    names = data_trained_on(recipe)
    for name in [name for name in recipe.data if name not in names and processes.first]:
        use = "only its subwords are counted" if name in stores else "it is not read"
        logger.info(f"data.{name}: {use}, since no objective asks for it")
    streams = {
        name: open_stream(name, stores[name], spec, key_of(recipe.seed, "stream", name))
        for name, spec in recipe.data.items()
        if name in names
    }
    teachers = _teachers(recipe, specs, model, streams, out, processes)
    objectives = [
        weighted_objective(name, spec, model, recipe, first=processes.first, teachers=teachers)
        for name, spec in specs.items()
    ]
    for weighted in objectives:
        weighted.objective.to(processes.device)
    chunking = chunking_of(recipe.training, processes.device)
    optimizer = Optimizer(
        [model, *(weighted.objective for weighted in objectives)],
        recipe.optimizer,
        recipe.training.steps,
        chunking.loss_scale,
    )
    if processes.first:
        advise(objectives, recipe, streams)
    validate, held_out = _validation(recipe, out, objectives, processes)
    return Trainer(
        model,
        objectives,
        streams,
        optimizer,
        recipe.training,
        out,
        processes,
        chunking,
        recipe.seed,
        validate,
        held_out=held_out,
    )


def _teachers(
    recipe: Recipe,
    specs: Mapping[str, dict[str, Any]],
    model: Model,
    streams: Mapping[str, Stream[Any]],
    out: Path,
    processes: Processes,
) -> dict[str, TeacherVectors | TeacherStates]:
    """The teacher of each entry, by its name. Entries with one teacher share its vectors, of all their texts."""
    teachers: dict[str, TeacherVectors | TeacherStates] = {}
    pupils: dict[str, list[tuple[str, TeacherSpec, Distillation.Settings, Stream[Any]]]] = {}
    for name, spec in specs.items():
        entry, options = options_of(name, spec, recipe)
        if isinstance(options, StateDistillation.Settings):
            assert isinstance(model, DualEncoder)
            student = model.query if options.on == "query" else model.passage
            if student.is_static:
                raise BadInput(f"objectives.{name} {WITHOUT_STATES}")
            teachers[name] = TeacherStates(f"objectives.{name}", options, student, processes.device)
        elif isinstance(options, Distillation.Settings):
            assert not callable(options.teacher)  # nothing in a recipe is
            source = options.teacher
            teacher = TeacherSpec(model=source) if isinstance(source, str) else source  # type: ignore[call-arg]
            stream = streams[entry.reads.get(options.of, options.of)]
            # vectors are kept as the teacher gives them, and centred as they are read
            key = teacher.model_dump_json(exclude={"centre"})
            pupils.setdefault(key, []).append((name, teacher, options, stream))
    for number, group in enumerate(pupils.values()):

        def texts(group: list[Any] = group) -> Iterator[tuple[str, Text]]:
            for _, _, options, stream in group:
                yield from taught_texts(options, (stream.store[row] for row in stream.rows()))

        # each teacher has a folder of its own
        place = out if number == 0 else out / f"teacher-{number + 1}"
        vectors: dict[bool, TeacherVectors] = {}
        for name, teacher, _, _ in group:
            if teacher.centre not in vectors:
                vectors[teacher.centre] = learn_from(teacher, texts, model.dim, place, processes)
            teachers[name] = vectors[teacher.centre]
    return teachers


def chunking_of(spec: TrainingSpec, device: torch.device) -> Chunking:
    """Chunk sizes and precision for this device: bfloat16 only where the hardware has it, and on a processor only
    where it is asked for; float16 with a loss scale."""
    on_gpu = device.type == "cuda"
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_has_bfloat16()
    precision = spec.precision
    if precision == "auto":
        precision = "float32" if not on_gpu else "bf16" if has_bf16 else "fp16"
    if precision == "bf16" and not has_bf16:
        raise BadInput("training.precision: bf16 needs a GPU or a processor that has it; use auto, fp16 or float32.")
    if precision == "fp16":
        if not on_gpu:
            logger.warning("training.precision: fp16 on a CPU is emulated: slower than float32, for trials only.")
        return Chunking(spec.chunk_tokens, spec.gradient_cache, torch.float16, LossScale())
    return Chunking(spec.chunk_tokens, spec.gradient_cache, torch.bfloat16 if precision == "bf16" else None)


def _validation(
    recipe: Recipe, out: Path, objectives: list[WeightedObjective], processes: Processes
) -> tuple[Validate | None, str]:
    """The validation, and the digest of its questions."""
    if recipe.validation is None:
        return None, ""
    spec = recipe.validation
    if processes.first:
        open_store("questions", spec.questions, out / "validation")
    processes.wait()
    store = open_store("questions", spec.questions, out / "validation", build=False)
    if len(store) < 2:
        raise BadInput(
            f"validation.questions: {spec.questions.path} holds one question. Its loss compares questions with one "
            "another: give two at least, better some hundred."
        )
    late = recipe.model.late_interaction is not None
    objective = next(
        (weighted.objective for weighted in objectives if isinstance(weighted.objective, Retrieval | LateInteraction)),
        LateInteraction() if late else Retrieval(similarity=recipe.model.similarity),
    )
    return retrieval_nll(objective, store, spec.limit, spec.batch), getattr(store, "digest", "")
