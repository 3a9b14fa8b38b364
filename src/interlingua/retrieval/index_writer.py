"""Writing the folder of a dense index: streamed, and moved into place only when it is whole."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.files import atomic_folder
from interlingua.progress import track
from interlingua.retrieval.dense import tie_ranks
from interlingua.retrieval.vectors import TextEncoder, embed_passages

FORMAT = 1
CHUNK = 4096  # passages encoded and written at a time


def write_index(
    encoder: TextEncoder, passages: Iterable[Passage], path: Path, model: str, options: dict[str, Any]
) -> dict[str, Any]:
    """Write the index of `passages` (read once, never all in memory) to `path`, replacing an index there.

    Returns what index.json says. Raises InterlinguaError for duplicate ids, when there is no passage, and for a
    folder of something else; `path` is then as it was.
    """
    from interlingua.models.fingerprint import fingerprint

    with atomic_folder(path, "index.json") as folder:
        languages = _write_passages(folder, passages)
        dim = _write_vectors(folder, encoder, len(languages), options)
        counts = dict(sorted(Counter(languages).items()))
        number = {lang: i for i, lang in enumerate(counts)}
        np.save(folder / "languages.npy", np.array([number[lang] for lang in languages], dtype=np.int32))
        about = {"format": FORMAT, "model": model, "fingerprint": fingerprint(encoder),
                 "similarity": encoder.similarity, "passages": len(languages), "dim": dim, "languages": counts}
        (folder / "index.json").write_text(json.dumps(about, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return about


def _write_passages(folder: Path, passages: Iterable[Passage]) -> list[str]:
    """Write passages.jsonl, offsets.npy and ties.npy; the language of each passage."""
    ids: dict[str, None] = {}
    languages: list[str] = []
    offsets: list[int] = []
    with open(folder / "passages.jsonl", "wb") as stream:
        for passage in passages:
            if passage.id in ids:
                raise InterlinguaError(f"passage id '{passage.id}' occurs twice. Ids must be unique in an index.")
            ids[passage.id] = None
            languages.append(passage.lang)
            offsets.append(stream.tell())
            stream.write(json.dumps(asdict(passage), ensure_ascii=False).encode() + b"\n")
    if not ids:
        raise InterlinguaError("there is no passage to index.")
    np.save(folder / "offsets.npy", np.array(offsets, dtype=np.int64))
    np.save(folder / "ties.npy", tie_ranks(list(ids)))
    return languages


def _write_vectors(folder: Path, encoder: TextEncoder, count: int, options: dict[str, Any]) -> int:
    """Encode what passages.jsonl holds, a chunk at a time, into vectors.npy; the dimension of the vectors."""
    vectors: Any = None
    with open(folder / "passages.jsonl", encoding="utf-8", newline="\n") as stream:
        for start in track(range(0, count, CHUNK), "encode passages"):
            part = embed_passages(encoder, [Passage(**json.loads(line)) for line in islice(stream, CHUNK)], **options)
            if vectors is None:
                vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (count, part.shape[1]))
            vectors[start : start + len(part)] = part
    vectors.flush()
    return int(vectors.shape[1])
