"""Exact dense search over passages whose vectors lie on the disk in shards: for collections larger than the memory.

33 million passages of 1,024 float32 numbers are 135 GB. Here they are read, encoded, written and searched a shard at a
time. A shard that is there already for the same model and the same passages is not made again, so that an interrupted
run goes on. Several processes (`torchrun`) take turns: shard n belongs to process n mod their number, which encodes and
searches it; all of them return the one run that comes of it.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.data.records import Passage, Query, batched
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.files import atomic_write
from interlingua.models.encode import WINDOW
from interlingua.models.folder import fingerprint
from interlingua.models.protocols import Encoder
from interlingua.retrieval.dense.exact import search
from interlingua.retrieval.retriever import Vectors, embed_passages, embed_queries, passages_digest
from interlingua.retrieval.run import Run
from interlingua.training.processes import Processes

logger = logging.getLogger(__name__)

VECTORS = Layout("vectors", 1, "passage vectors")
SHARD = 1 << 17
"""Passages of a shard: 256 MiB of 1,024 float16 numbers each."""
ALONE = Processes(0, 1, torch.device("cpu"))


class PassageShards:
    """The vectors of one encoder for the passages of one collection, in `folder`.

    `dtype` is how they are stored; products are accumulated in float32 either way. `size` is the number of passages of
    a shard. In memory are never more than one shard's passages and ids, `WINDOW` vectors while encoding and a block of
    them while searching. The folder must be one that all `processes` see.
    """

    def __init__(
        self,
        folder: str | Path,
        encoder: Encoder,
        passages: Iterable[Passage],
        *,
        dtype: Literal["float16", "float32"] = "float32",
        size: int = SHARD,
        processes: Processes = ALONE,
        **encode_options: Any,
    ) -> None:
        if size < 1:
            raise BadInput(f"shards of {size} passages: at least 1 is needed.")
        self.folder, self.encoder, self.dtype, self.size, self.processes = Path(folder), encoder, dtype, size, processes
        self._options = encode_options
        # what was measured of a conversion may differ in its last digit from machine to machine
        of_model = {key: value for key, value in fingerprint(encoder).items() if key != "agreement"}
        self._model = json.dumps([of_model, dtype, repr(sorted(encode_options.items()))], sort_keys=True)
        self._mine: list[Path] = []
        self.made = 0
        """The number of shards that this process had to encode."""
        self._write(passages)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` most similar passages for each query, as `interlingua.retrieval.search` finds them: in every
        process the same."""
        vectors = embed_queries(self.encoder, queries, **self._options)
        names = [query.id for query in queries]
        run = Run.joined((self._search(shard, vectors, names, depth) for shard in self._mine), names, depth)
        if self.processes.count == 1:
            return run
        with atomic_write(self._results(self.processes.rank)) as stream:
            json.dump({name: dict(results) for name, results in run.items()}, stream)
        self.processes.wait()
        texts = (self._results(rank).read_text(encoding="utf-8") for rank in range(self.processes.count))
        run = Run.joined((Run.from_scores(json.loads(text)) for text in texts), names, depth)
        self.processes.wait()  # nobody writes the next results before all have read these
        return run

    def _write(self, passages: Iterable[Passage]) -> None:
        for number, shard in enumerate(batched(passages, self.size)):
            if number % self.processes.count != self.processes.rank:
                continue
            path = self.folder / f"shard-{number:06d}"
            self._mine.append(path)
            facts = {"model": self._model, "texts": passages_digest(shard)}
            if not self._is_there(path, facts):
                self._encode(path, shard, facts)
                self.made += 1
                logger.info(f"{path}: {len(shard):,} passages encoded, {number * self.size + len(shard):,} in all")
        self.processes.wait()

    def _is_there(self, path: Path, facts: dict[str, Any]) -> bool:
        """Whether the shard was made before by this model of these passages."""
        with suppress(NotFound, Damaged), ArrayFolder.open(path, VECTORS) as folder:
            return {key: folder.facts[key] for key in facts} == facts
        return False

    def _encode(self, path: Path, shard: Sequence[Passage], facts: dict[str, Any]) -> None:
        with ArrayFolder.write(path, VECTORS) as folder:
            for part in batched(shard, WINDOW):
                vectors = embed_passages(self.encoder, part, **self._options)
                with np.errstate(over="ignore"):  # said below
                    stored = vectors.astype(self.dtype, copy=False)
                if not np.isfinite(stored).all():
                    raise BadInput(f"{path}: vectors too long for {self.dtype}. Store them as float32.")
                folder.add("vectors", stored)
            folder.facts |= {**facts, "ids": [passage.id for passage in shard]}

    def _search(self, shard: Path, queries: Vectors, names: Sequence[str], depth: int) -> Run:
        with ArrayFolder.open(shard, VECTORS) as folder:
            ids, vectors = folder.facts["ids"], folder.array("vectors", self.dtype, (None, queries.shape[1]))
        return search(queries, names, vectors, ids, depth, device=self.processes.device)

    def _results(self, rank: int) -> Path:
        return self.folder / f"found-{rank}.json"


@dataclass(frozen=True)
class Shards:
    """Options for holding the passages of large collections: `folder` gets one folder a collection."""

    folder: Path
    dtype: Literal["float16", "float32"] = "float32"
    size: int = SHARD
    processes: Processes = ALONE
    least: int | None = None

    def wanted(self, passages: int) -> bool:
        """Whether so many passages are held in shards: more than `least` (those of one shard unless said), and of
        several processes all."""
        return passages > (self.size if self.least is None else self.least) or self.processes.count > 1

    def of(self, encoder: Encoder, passages: Iterable[Passage], name: str, **encode_options: Any) -> PassageShards:
        """The passages of the collection called `name`, encoded unless they were before."""
        slug = re.sub(r"\W+", "-", name).strip("-")[:80]
        folder = self.folder / f"{slug}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
        return PassageShards(
            folder, encoder, passages, dtype=self.dtype, size=self.size, processes=self.processes, **encode_options
        )

    def remove(self) -> None:
        """Delete the folder once every process is done with it."""
        self.processes.wait()
        if self.processes.first:
            shutil.rmtree(self.folder, ignore_errors=True)
