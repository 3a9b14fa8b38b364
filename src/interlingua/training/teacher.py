"""The frozen teacher of a distillation: its vectors, computed once and kept on disk."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from interlingua.array_folder import mapped_array, write_array
from interlingua.data.store import Store
from interlingua.errors import BadInput, Busy, Stale
from interlingua.files import atomic_write, make_folder, sync_path
from interlingua.models.dual import DualEncoder
from interlingua.objectives.distillation import TeacherSpec, known_side
from interlingua.progress import track
from interlingua.training.processes import Processes

logger = logging.getLogger(__name__)

BLOCK = 4_096
"""Texts encoded between two notes of how far it is: what a kill loses at most."""


class TeacherVectors:
    """Texts → the teacher's vectors `[texts, dim]`, float32.

    A folder of `keys.npy` (uint64 [texts, 2]: 128 bits of each text, sorted), `vectors.npy` (float16 [texts, teacher's
    dim], memory-mapped) and `teacher.json`. With fewer dimensions than the teacher has, vectors are projected on the
    first principal components of them all and brought to unit length.
    """

    def __init__(self, folder: Path, dim: int, device: torch.device | None = None) -> None:
        self.device = device
        try:
            self.keys: NDArray[np.uint64] = np.load(folder / "keys.npy")
            self.vectors: NDArray[np.float16] = np.load(folder / "vectors.npy", mmap_mode="r")
            # the last, as it is the first to go when another run puts others in their place
            self.about: dict[str, Any] = json.loads((folder / "teacher.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise Busy(
                f"{folder}: holds no teacher's vectors, or another run is just making others there. "
                "Give each run a folder of its own (objectives.distillation.teacher.vectors)."
            ) from error
        del self.about["done"]
        given = self.vectors.shape[1]
        if dim > given:
            raise BadInput(
                f"objectives.distillation.teacher: its vectors have {given} numbers, those of the "
                f"model {dim}. They must have at least as many."
            )
        self.space = principal_axes(self.vectors, dim) if dim < given else None

    @staticmethod
    def build(folder: Path, teacher: DualEncoder, texts: Iterable[str]) -> dict[str, Any]:
        """Encode `texts` (repeated ones once) with `teacher.encode_document` into `folder`, unless they are there
        already from the same teacher. A run that was killed goes on where it was; one that finds another at work waits
        for it. What another run has open of other texts or of another teacher stays as it is for that run.
        Returns what `about` must be of those that are opened then: else another run has replaced them."""
        from interlingua.models.folder import fingerprint

        by_key = {key_of_text(text): text for text in texts}
        in_order = sorted(by_key)
        keys, ordered = np.array(in_order, dtype=np.uint64).reshape(-1, 2), [by_key[key] for key in in_order]
        about = {
            "fingerprint": fingerprint(teacher),
            "texts": len(ordered),
            "keys": hashlib.sha256(keys.tobytes()).hexdigest(),
        }
        if _done(folder, about) == len(ordered):
            return about
        make_folder(folder)
        with _alone(folder):
            done = _done(folder, about)
            if done == len(ordered):
                return about
            if not done:
                # what it says is no longer so from here on, also after a kill or a power cut
                (folder / "teacher.json").unlink(missing_ok=True)
                sync_path(folder)
                (folder / "vectors.npy").unlink(missing_ok=True)  # who reads it keeps it
            with atomic_write(folder / "keys.npy", "wb") as stream:
                write_array(stream, keys)
            path = folder / "vectors.npy"
            vectors = (
                np.lib.format.open_memmap(path, "r+")
                if done
                else mapped_array(path, np.float16, (len(ordered), teacher.dim))
            )
            for start in track(range(done, len(ordered), BLOCK), "encode with the teacher"):
                part = teacher.encode_document(ordered[start : start + BLOCK], show_progress_bar=False)
                vectors[start : start + len(part)] = part
                vectors.flush()
                with atomic_write(folder / "teacher.json") as stream:
                    json.dump({**about, "done": start + len(part)}, stream)
        logger.info(f"{folder}: the teacher's vectors of {len(ordered):,} texts")
        return about

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Raises BadInput for a text that was not among those of `build`."""
        vectors = torch.from_numpy(self.vectors[self._rows(texts)].astype(np.float32))
        if self.space is not None:
            centre, axes = map(torch.from_numpy, self.space)
            vectors = F.normalize((vectors - centre) @ axes, dim=1)
        return vectors.to(self.device)

    def _rows(self, texts: Sequence[str]) -> NDArray[np.int64]:
        wanted = np.array([key_of_text(text) for text in texts], dtype=np.uint64).reshape(-1, 2)
        rows = np.searchsorted(self.keys[:, 0], wanted[:, 0])
        found = np.minimum(rows, len(self.keys) - 1)
        missing = (self.keys[found] != wanted).any(1)
        if missing.any():
            raise BadInput(
                f"distillation: the teacher was not asked for the text "
                f"{texts[int(missing.argmax())][:60]!r} when its vectors were computed."
            )
        return found


def key_of_text(text: str) -> tuple[int, int]:
    """128 bits that stand for a text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")


def principal_axes(
    vectors: NDArray[Any], dim: int, sample: int = 100_000
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The mean `[teacher's dim]` and the first `dim` principal axes `[teacher's dim, dim]` of `vectors`, from up to
    `sample` of them, evenly spaced. Each axis points to where its largest component is positive."""
    part = np.asarray(vectors[:: max(1, len(vectors) // sample)], dtype=np.float64)
    centre = part.mean(0)
    first = np.linalg.eigh((part - centre).T @ (part - centre)).eigenvectors[:, ::-1][:, :dim]
    signs = np.sign(first[np.abs(first).argmax(0), np.arange(dim)])
    return centre.astype(np.float32), (first * signs).astype(np.float32)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Be the one run that writes into `folder`, from when the one before it has ended."""
    held = FileLock(folder / "writer.lock")
    try:
        held.acquire(timeout=0)
    except Timeout:
        logger.info(f"{folder}: another run computes the teacher's vectors; waiting for it")
        held.acquire()
    try:
        yield
    finally:
        held.release()


def _done(folder: Path, about: dict[str, Any]) -> int:
    """The number of texts that a former call for the same texts and teacher has encoded."""
    try:
        kept = json.loads((folder / "teacher.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return int(kept["done"]) if {key: kept.get(key) for key in about} == about else 0


def learn_from(
    spec: str | TeacherSpec, pairs: Store[Any], lang: str, dim: int, out: Path, processes: Processes
) -> TeacherVectors:
    """The vectors of `spec`'s model, with the prompt and the calibration of passages, for the side in `lang` of all
    `pairs`, in `dim` dimensions; kept in the folder that the spec names, or under `out`."""
    if isinstance(spec, str):
        spec = TeacherSpec(model=spec, vectors=None)
    folder = Path(spec.vectors) if spec.vectors else out / "data" / "teacher"
    made: dict[str, Any] | None = None
    if processes.first:
        teacher = DualEncoder.load(spec.model, device=str(processes.device))
        made = TeacherVectors.build(folder, teacher, (known_side(pairs[number], lang) for number in range(len(pairs))))
    processes.wait()
    vectors = TeacherVectors(folder, dim, processes.device)
    if made is not None and vectors.about != made:
        raise Stale(
            f"{folder}: another run has put other vectors there just now. Give each run a folder of "
            "its own (objectives.distillation.teacher.vectors)."
        )
    return vectors
