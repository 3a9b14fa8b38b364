"""The frozen teacher of a distillation: its vectors, computed once and kept on disk, or its states, computed as they
are needed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from interlingua.array_folder import mapped_array, write_array
from interlingua.errors import BadInput, Busy, Damaged, Stale
from interlingua.files import alone, atomic_write, make_folder, sync_path
from interlingua.models.dual import DualEncoder, holds_two
from interlingua.models.encode import on_processor, token_batches
from interlingua.models.encoder import Encoder
from interlingua.models.folder import model_folder
from interlingua.models.inference.packing import PACKED_TOKENS
from interlingua.models.late_interaction import is_late
from interlingua.models.protocols import Role, encode_as
from interlingua.models.subwords import Text, plain_text
from interlingua.objectives.distillation import TeacherSpec
from interlingua.objectives.semantic import roles
from interlingua.objectives.state_distillation import Answer, StateDistillation
from interlingua.progress import track
from interlingua.training.processes import Processes

if TYPE_CHECKING:
    from interlingua.models.transformer import Transformer

logger = logging.getLogger(__name__)

BLOCK = 4_096
"""Texts encoded between two notes of how far it is: what a kill loses at most."""


class TeacherVectors:
    """Texts, and their role → the teacher's vectors `[texts, dim]`, float32.

    A folder of `keys.npy` (uint64 [texts, 2]: 128 bits of each text, sorted), `vectors.npy` (float16 [texts, teacher's
    dim], memory-mapped) and `teacher.json`. With `centre`, their mean is subtracted, and they are brought to unit
    length. With fewer dimensions than the teacher has, they are projected on their first principal components, which
    does both. Mean and components are those of `sample_of` them.
    """

    def __init__(self, folder: Path, dim: int, device: torch.device | None = None, centre: bool = False) -> None:
        self.device = device
        try:
            self.keys: NDArray[np.uint64] = np.load(folder / "keys.npy")
            self.vectors: NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
            # the last, as it is the first to go when another run puts others in their place
            self.about: dict[str, Any] = dict(json.loads((folder / "teacher.json").read_text(encoding="utf-8")))
        except FileNotFoundError as error:
            raise Busy(
                f"{folder}: holds no teacher's vectors, or another run is just making others there. "
                "Give each run a folder of its own (objectives.distillation.teacher.vectors)."
            ) from error
        except (ValueError, TypeError, EOFError) as error:
            raise Damaged(f"{folder}: the teacher's vectors are damaged ({error}). Delete the folder.") from error
        self.about.pop("done", None)
        teacher_dim = self.vectors.shape[1]
        if dim > teacher_dim:
            raise BadInput(
                f"objectives.distillation.teacher: its vectors have {teacher_dim} numbers, those of the "
                f"model {dim}. They must have at least as many."
            )
        self.space: tuple[NDArray[np.float32], NDArray[np.float32] | None] | None = None
        if dim < teacher_dim:
            self.space = principal_axes(self.vectors, dim)
        elif centre:
            self.space = sample_of(self.vectors).mean(0).astype(np.float32), None

    @staticmethod
    def build(folder: Path, teacher: DualEncoder, texts: Iterable[tuple[str, Text] | str]) -> dict[str, Any]:
        """Encode `texts` (repeated ones once) with `teacher` into `folder`, unless they are there already from the same
        teacher: passages, or each with its role. A run that was killed goes on where it was; one that finds another at
        work waits for it. What another run has open of other texts or of another teacher stays as it is for that run.
        Returns what `about` must be of those that are opened then: else another run has replaced them."""
        from interlingua.models.folder import fingerprint

        with_roles = (("passage", text) if isinstance(text, str) else text for text in texts)
        by_key = {key_of_text(text, role): (role, text) for role, text in with_roles}
        sorted_keys = sorted(by_key)
        keys, ordered = np.array(sorted_keys, dtype=np.uint64).reshape(-1, 2), [by_key[key] for key in sorted_keys]
        about = {
            "fingerprint": fingerprint(teacher),
            "texts": len(ordered),
            "keys": hashlib.sha256(keys.tobytes()).hexdigest(),
        }
        if _done(folder, about) == len(ordered):
            return about
        make_folder(folder)
        busy = f"{folder}: another run computes the teacher's vectors; waiting for it"
        with alone(folder / "writer.lock", busy, wait=True):
            count = _done(folder, about)
            if count == len(ordered):
                return about
            if not count:
                # what it says is no longer so from here on, also after a kill or a power cut
                (folder / "teacher.json").unlink(missing_ok=True)
                sync_path(folder)
                (folder / "vectors.npy").unlink(missing_ok=True)  # who reads it keeps it
            with atomic_write(folder / "keys.npy", "wb") as stream:
                write_array(stream, keys)
            path = folder / "vectors.npy"
            vectors = (
                np.lib.format.open_memmap(path, "r+")
                if count
                else mapped_array(path, np.float16, (len(ordered), teacher.dim))
            )
            for start in track(range(count, len(ordered), BLOCK), "encode with the teacher"):
                part = ordered[start : start + BLOCK]
                for role in get_args(Role):
                    rows = [number for number, item in enumerate(part, start) if item[0] == role]
                    if rows:
                        texts = [ordered[row][1] for row in rows]
                        vectors[rows] = encode_as(teacher, role)(texts, show_progress_bar=False)
                vectors.flush()
                with atomic_write(folder / "teacher.json") as stream:
                    json.dump({**about, "done": start + len(part)}, stream)
        logger.info(f"{folder}: the teacher's vectors of {len(ordered):,} texts")
        return about

    def __call__(self, texts: Sequence[Text], role: str = "passage") -> Tensor:
        """Raises BadInput for a text that was not among those of `build`."""
        vectors = torch.from_numpy(self.vectors[self._rows(texts, role)].astype(np.float32))
        if self.space is not None:
            centre, axes = self.space
            vectors -= torch.from_numpy(centre)
            vectors = F.normalize(vectors if axes is None else vectors @ torch.from_numpy(axes), dim=1)
        return vectors.to(self.device)

    def _rows(self, texts: Sequence[Text], role: str) -> NDArray[np.int64]:
        keys = np.array([key_of_text(text, role) for text in texts], dtype=np.uint64).reshape(-1, 2)
        rows = np.searchsorted(self.keys[:, 0], keys[:, 0])
        positions = np.minimum(rows, len(self.keys) - 1)
        missing = (self.keys[positions] != keys).any(1)
        if missing.any():
            raise BadInput(
                f"distillation: the teacher was not asked for the text "
                f"{plain_text(texts[int(missing.argmax())])[:60]!r} when its vectors were computed."
            )
        return positions


def key_of_text(text: Text, role: str = "passage") -> tuple[int, int]:
    """128 bits that stand for a text in a role."""
    plain = (
        text
        if isinstance(text, str) and role == "passage"
        else "\0".join([role, *([text] if isinstance(text, str) else text)])
    )
    digest = hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def sample_of(vectors: NDArray[Any], most: int = 100_000) -> NDArray[np.float64]:
    """`most` rows of `vectors` or up to twice as many, evenly spaced; all where there are fewer."""
    return np.asarray(vectors[:: max(1, len(vectors) // most)], dtype=np.float64)


def principal_axes(vectors: NDArray[Any], dim: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The mean `[teacher's dim]` and the first `dim` principal axes `[teacher's dim, dim]` of a sample of `vectors`.
    Each axis points to where its largest component is positive."""
    part = sample_of(vectors)
    centre = part.mean(0)
    axes = np.linalg.eigh((part - centre).T @ (part - centre)).eigenvectors[:, ::-1][:, :dim]
    signs = np.sign(axes[np.abs(axes).argmax(0), np.arange(dim)])
    return centre.astype(np.float32), (axes * signs).astype(np.float32)


class TeacherStates:
    """Texts and their role → what a teacher says of each: its last states and, where the `student` learns at a hidden
    state `layer`, those of its own that is as far up, or of `teacher_layer`.

    Raises BadInput, naming `where`, for a teacher whose states cannot be those of the student's tokens.
    """

    def __init__(self, where: str, options: StateDistillation.Settings, student: Encoder, device: torch.device) -> None:
        assert isinstance(options.teacher, str)
        model = model_folder(options.teacher)
        where = f"{where}.teacher: {options.teacher}"
        if is_late(model) or holds_two(model):
            raise BadInput(f"{where} has a vector a token, or two encoders. Give one encoder of whole texts.")
        self.encoder = Encoder.load(model, device=device, precision=on_processor(options.precision, device)).eval()
        if self.encoder.is_static or _cuts(self.encoder, options.on) != _cuts(student, options.on):
            raise BadInput(
                f"{where} cuts texts by other rules than the model, or has other prompts, so their states cannot be "
                "compared. Give the encoder that the model was made from."
            )
        if self.encoder.pooling != student.pooling:
            raise BadInput(
                f"{where} pools by {self.encoder.pooling}, the model by {student.pooling}. Set model.pooling "
                "to the teacher's."
            )
        layers, student_layers = (cast("Transformer", encoder.backbone).layers for encoder in (self.encoder, student))
        self.layer, self.device = options.teacher_layer, device
        if options.layer is not None and self.layer is None:
            self.layer = max(1, round(options.layer * layers / student_layers))
        if self.layer is not None and self.layer > layers:
            raise BadInput(f"{where} has hidden states up to {layers}; teacher_layer is {self.layer}.")

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], role: str) -> list[Answer]:
        ids = self.encoder.tokenize(texts, role)
        answers: dict[int, Answer] = {}
        for batch in token_batches([len(text) for text in ids], PACKED_TOKENS):
            rows = [ids[text] for text in batch]
            lengths = [len(row) for row in rows]
            last, *others = self.encoder.token_states(rows, self.layer)  # type: ignore[arg-type]
            layers = [torch.split(states.float().to(self.device), lengths) for states in (last, *others[1:])]
            for place, text in enumerate(batch):
                pieces = self.encoder.tokenizer.convert_ids_to_tokens(ids[text])
                answers[text] = Answer(pieces, layers[0][place], layers[1][place] if len(layers) > 1 else None)
        return [answers[text] for text in range(len(texts))]


def _cuts(encoder: Encoder, on: str) -> list[Any]:
    """The parts of a tokenizer that decide how a text is cut, without the subwords of a Unigram vocabulary, and the
    special tokens around a text."""
    config = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    kind = config["model"]["type"]
    around = [encoder.tokenizer.convert_ids_to_tokens(encoder.tokenize([""], role)[0]) for role in roles(on)]
    bare = ["".join(pieces) for pieces in around]
    vocabulary = None if kind == "Unigram" else encoder.tokenizer.get_vocab()  # "##" and bytes are no letters of a text
    return [config["normalizer"], config["pre_tokenizer"], kind, bare, vocabulary]


def _done(folder: Path, about: dict[str, Any]) -> int:
    """The number of texts that a former call for the same texts and teacher has encoded."""
    try:
        record = dict(json.loads((folder / "teacher.json").read_text(encoding="utf-8")))
        return int(record["done"]) if {key: record.get(key) for key in about} == about else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _loaded(spec: TeacherSpec, device: str) -> DualEncoder:
    precision = on_processor(spec.precision, device)
    if spec.layers is None:
        teacher = DualEncoder.load(spec.model, device=device, precision=precision)
        if any(encoder.language_maps is not None for encoder in (teacher.query, teacher.passage)):
            raise BadInput(
                f"objectives.distillation.teacher: {spec.model} is calibrated by language, and a text to learn is "
                "known by its words alone. Give the model that was calibrated."
            )
        return teacher
    return DualEncoder.tied(Encoder.load(spec.model, layer=spec.layers, device=device, precision=precision))


def learn_from(
    spec: TeacherSpec, texts: Callable[[], Iterable[tuple[str, Text]]], dim: int, out: Path, processes: Processes
) -> TeacherVectors:
    """The vectors of `spec`'s model, with its prompt for each role, for `texts`, in `dim`
    dimensions; kept in the folder that the spec names, or under `out`."""
    folder = Path(spec.vectors) if spec.vectors else out / "data" / "teacher"
    about: dict[str, Any] | None = None
    if processes.first:
        teacher = _loaded(spec, str(processes.device))
        about = TeacherVectors.build(folder, teacher, texts())
    processes.wait()
    vectors = TeacherVectors(folder, dim, processes.device, spec.centre)
    if about is not None and vectors.about != about:
        raise Stale(
            f"{folder}: another run has put other vectors there just now. Give each run a folder of "
            "its own (objectives.distillation.teacher.vectors)."
        )
    return vectors
