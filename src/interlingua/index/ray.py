"""Encode and build on several machines with Ray.

All machines share one folder (a network file system), as Ray Data expects, and can load the model by the same name.
A part is a Parquet file of `interlingua.index.export`, named by its number and by a hash of its passages and of the
model. So the order in which parts come does not matter, a part that is there is never made again, and a run that was
stopped goes on with the missing parts, also where passages have changed meanwhile.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from interlingua.data.keys import Keys
from interlingua.data.records import Passage, decode, encode
from interlingua.errors import BadInput, NotFound
from interlingua.index.export import EncodedParts, encoded, write_parquet
from interlingua.index.index import Index, build_index
from interlingua.index.ranking import distinct
from interlingua.index.store import CHUNK, already_there, chunks, is_address
from interlingua.models.dual import DualEncoder
from interlingua.models.folder import canonical_model_name, fingerprint
from interlingua.progress import track

logger = logging.getLogger(__name__)

WAITING = "waiting"
"""The folder, inside that of the parts, of passages that are not encoded yet."""
PART = f"part-{'[0-9]' * 7}-{'[0-9a-f]' * 16}.parquet"
"""The pattern of the parts' names: files of other software in the same folder do not have it."""
BLOCKS = 10_000  # pieces of work that Ray is to keep books on
PATIENCE = 20
"""Seconds that a cluster has to let this machine in; Ray itself would try for a quarter of an hour."""
ATTEMPT = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"
LOOPBACK = {"_node_ip_address": "127.0.0.2"} if sys.platform == "linux" else {}
"""Ray reads 127.0.0.1 as this machine's outer address, which a firewall may close to the machine itself. Elsewhere than
on Linux a local node is bound to the loopback address anyway."""


class Model(NamedTuple):
    """The name or folder of the model that every machine loads, and the precision of its weights."""

    name: str
    precision: str | None = None

    def load(self) -> DualEncoder:
        """Load it."""
        return DualEncoder.load(self.name, precision=self.precision)


def encode_on_ray(
    model: str,
    passages: Iterable[Passage],
    folder: str | Path,
    *,
    address: str | None = None,
    workers: int | None = None,
    size: int = CHUNK,
    precision: str | None = None,
    **options: Any,
) -> list[Path]:
    """Encode `passages` (read once) with the model of this name or folder on the machines of a Ray cluster; the parts
    in `folder`, which hold `size` passages each and together all of them in their order.

    `address` is the cluster's ("auto", "host:6379", "ray://host:10001"), or "local" for this machine alone; without
    one, a cluster that this machine belongs to, else this machine alone. `workers` is the number of processes that
    load the model: by default one a GPU, or without GPUs one a machine. `precision` is that of `DualEncoder.load`, the
    same on all machines. `options` go to `encode_document`. A worker or machine that is lost costs only the parts that
    it was at, which others take over. Raises BadInput for duplicate ids, when there is no passage, for the precision
    "auto", where the cluster is not reached, and where a worker fails by itself.
    """
    if precision == "auto":
        raise BadInput("precision auto: each machine of a cluster may choose another. Name float32, bfloat16 or int8.")
    folder = Path(folder).resolve()
    (folder / WAITING).mkdir(parents=True, exist_ok=True)
    spec = Model(canonical_model_name(model), precision)
    parts: list[str] = []
    todo: list[str] = []
    cluster: RayCluster | None = None
    for part in _spool(passages, folder, size, _made_with(spec, options)):
        parts.append(part)
        if not (folder / part).exists():
            if not todo:  # before the rest is read: a cluster that is not there is to be told at once
                cluster = connected(address)
            todo.append(part)
    if len(todo) < len(parts):
        logger.info(f"{folder}: {len(parts) - len(todo):,} of {len(parts):,} parts are there already")
    if cluster is not None:
        cluster.encode(spec, folder, todo, workers, options)
    if missing := [part for part in parts if not (folder / part).exists()]:
        raise BadInput(
            f"{folder}: {len(missing):,} of {len(parts):,} parts were not written. Is this one "
            "folder on all machines? The same command goes on with them."
        )
    for file in {*folder.glob(PART)} - {folder / part for part in parts}:
        file.unlink()  # of other passages or another model
    for file in (folder / WAITING).iterdir():
        file.unlink()
    (folder / WAITING).rmdir()
    return [folder / part for part in parts]


class PartEncoder:
    """A worker: loads the model once, then turns one file of passages after another into a part."""

    def __init__(self, model: Model, folder: str, options: Mapping[str, Any]) -> None:
        import torch

        if threads := int(os.environ.get("OMP_NUM_THREADS", "0")):  # Ray says how many are ours
            torch.set_num_threads(threads)
        self.model, self.folder, self.options = model.load(), Path(folder), dict(options)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Encode the parts that `batch` names in a column "part"; return the number of passages of each."""
        return {"part": batch["part"], "passages": [self._write(str(name)) for name in batch["part"]]}

    def _write(self, name: str) -> int:
        source = self.folder / WAITING / name.replace(".parquet", ".jsonl")
        if (self.folder / name).exists():  # another worker wrote it, and was lost before it could say so
            return 0
        if not source.exists():
            raise BadInput(f"{source}: is not seen on this machine. The folder must be one that all share.")
        with open(source, "rb") as stream:
            passages = [decode(Passage, line) for line in stream]
        return write_parquet(self.folder / name, encoded(self.model, passages, len(passages), **self.options))


def _spool(passages: Iterable[Passage], folder: Path, size: int, made_with: bytes) -> Iterator[str]:
    """Write passages to files for the workers, but for parts that are there; the names of all parts."""
    number = 0
    for part in chunks(distinct(track(passages, "read passages"), Keys()), size):
        lines = [encode(passage).encode("utf-8", "surrogatepass") + b"\n" for passage in part]
        digest = blake2b(made_with + b"".join(lines), digest_size=8).hexdigest()
        name = f"part-{number:07d}-{digest}.parquet"
        if not (folder / name).exists():
            (folder / WAITING / f"part-{number:07d}-{digest}.jsonl").write_bytes(b"".join(lines))
        yield name
        number += 1
    if not number:
        raise BadInput("there is no passage to encode.")


def _made_with(model: Model, options: Mapping[str, Any]) -> bytes:
    """The bytes to hash for everything but the texts that vectors depend on: model and options."""
    reprs = {key: repr(value) for key, value in options.items()}
    return json.dumps([fingerprint(model.load()), reprs], sort_keys=True).encode()


class RayCluster:
    """The machines of a cluster of Ray, whose module `ray` is connected."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray

    def encode(
        self, model: Model, folder: Path, todo: Sequence[str], workers: int | None, options: Mapping[str, Any]
    ) -> None:
        """Have `PartEncoder`s write the parts called `todo`, in any order. Raises BadInput where a worker fails by
        itself."""
        ray = self.ray
        data = ray.data.DataContext.get_current()
        data.enable_progress_bars = False
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        cpu_nodes = [node for node in nodes if node.get("CPU", 0) >= 1]
        count = workers or gpus or max(1, len(cpu_nodes))
        cpus = max(1, int(min((node["CPU"] for node in cpu_nodes), default=1)) // -(-count // max(1, len(cpu_nodes))))
        logger.info(f"Ray: {len(nodes)} machines, {count} workers, {len(todo):,} parts to encode")
        pool = ray.data.ActorPoolStrategy(min_size=1, initial_size=count, max_size=count)  # goes on when some are lost
        parts = ray.data.from_items(
            [{"part": name} for name in todo], override_num_blocks=min(len(todo), BLOCKS)
        ).map_batches(
            PartEncoder,
            batch_size=1,
            compute=pool,
            fn_constructor_args=(model, str(folder), dict(options)),
            num_cpus=1 if gpus else cpus,
            num_gpus=1 if gpus else 0,
        )
        names = (row["part"] for row in parts.iter_rows())
        try:
            for _ in track(names, "encode parts", len(todo)):
                pass
        except ray.exceptions.RayError as error:
            raise BadInput(
                f"Ray: encoding failed ({_last_line(str(error))}). What was written stays in {folder}, "
                "and the same command goes on with it."
            ) from error


def connected(address: str | None) -> RayCluster:
    """The cluster at an address, as `encode_on_ray` takes it. Raises BadInput where it is not reached."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise NotFound("encoding on several machines needs Ray: pip install 'interlingua[ray]'") from None
    if ray.is_initialized():
        return RayCluster(ray)
    address = address or _cluster_here() or "local"
    if address != "local":
        _attempt(address)
    options = {"include_dashboard": False, **LOOPBACK} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = "on this machine" if address == "local" else f"at '{address}'"
        raise BadInput(f"Ray: does not start {where} ({_last_line(str(error))}).") from error
    return RayCluster(ray)


def _cluster_here() -> str | None:
    """The cluster that this machine belongs to, by the two places where `ray.init` looks for it."""
    system = tempfile.gettempdir() if sys.platform == "win32" else "/tmp"
    shared = os.environ.get("TMPDIR", system) if sys.platform == "linux" else system
    file = Path(os.environ.get("RAY_TMPDIR", shared), "ray", "ray_current_cluster")
    return os.environ.get("RAY_ADDRESS") or (file.read_text().strip() if file.is_file() else None)


def _attempt(address: str) -> None:
    """Connect to a cluster in a process that can be ended: Ray tries for long, and tells why only in its log lines.
    Raises BadInput where it does not come about."""
    output = ""
    try:
        if (numeric := re.fullmatch(r"(?:\w+://)?([\d.]+):(\d+)", address)) and numeric[1] != "127.0.0.1":
            socket.create_connection((numeric[1], int(numeric[2])), PATIENCE / 2).close()
        process = subprocess.run(
            [sys.executable, "-c", ATTEMPT, address], stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE
        )
        if not process.returncode:
            return
        output = process.stderr.decode(errors="replace")
        reason = _last_line(output)
    except subprocess.TimeoutExpired as error:
        output = (error.stderr or b"").decode(errors="replace")
        reason = (
            f"no answer in {PATIENCE} seconds. Is it running, and does this machine belong to it? "
            f"`ray start --address={address}` joins it"
        )
    except OSError as error:
        reason = f"nobody listens there ({error.strerror or error})"
    if "InvalidAuthToken" in output:
        reason = (
            "it wants a token. Set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to what `ray get-auth-token` prints on "
            "its first machine"
        )
    raise BadInput(
        f"Ray: no cluster is reached at '{address}': {reason}. To encode on this machine alone: "
        "--ray=local (a cluster that is gone is forgotten by `ray stop`)."
    )


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else "no reason was given"


def build_index_on_ray(
    model: str,
    passages: Iterable[Passage],
    place: str | Path,
    *,
    address: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    precision: str | None = None,
    **options: Any,
) -> Index:
    """`build_index` with the model of this name or folder, which the machines of a Ray cluster load (`encode_on_ray`).

    The parts that they encode lie in `{place}.parts`, or for an index in Milvus in `{collection}.parts` here, until the
    index is there: a build that was stopped, in either half, goes on with them. This machine alone writes the index.
    """
    place = str(place)
    if not is_address(place) and Path(place).exists() and not overwrite:
        raise already_there(place)
    name = place.partition("?")[0].rpartition("/")[2] if is_address(place) else Path(place)
    folder = Path(f"{name}.parts")
    parts = encode_on_ray(model, passages, folder, address=address, workers=workers, precision=precision)
    loaded = Model(model, precision).load()
    encoder = EncodedParts(loaded, parts)
    index = build_index(encoder, encoder.passages(), place, model_path=model, overwrite=overwrite, **options)
    for part in parts:
        part.unlink()
    with suppress(OSError):  # somebody keeps something else in it
        folder.rmdir()
    return Index(index.store, loaded)  # which also encodes passages that come later
