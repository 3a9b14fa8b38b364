"""What makes an index quick: its rows as files that are mapped into memory, made from one version of the store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.files import atomic_folder
from interlingua.progress import say, track
from interlingua.retrieval.index_segment import Segment, longest, terms_of
from interlingua.retrieval.int8_search import Int8Matrix
from interlingua.retrieval.passage_rows import BATCH, PASSAGE, TEXTS, PassageRows, arrow, passage_of, text_schema
from interlingua.retrieval.passage_store import PassageStore, vectors_of
from interlingua.retrieval.postings import Postings
from interlingua.retrieval.postings_writer import write_postings
from interlingua.retrieval.subword_rows import COLUMN as SUBWORDS
from interlingua.retrieval.subword_rows import SubwordRows
from interlingua.retrieval.term_table import TermTable
from interlingua.text.analyzers import analyzer
from interlingua.text.languages import find_code

FOLDER = "caches"
MARKER = "complete.json"
FORMAT = 4
ARRAYS = {"numbers": np.int64, "langs": np.int32, "vectors": np.float32, "ties": np.int64, "terms": np.uint64,
          "passages": np.int32, "counts": np.int32, "starts": np.int64, "lengths": np.int32}


def write_cache(store: PassageStore, index: Path) -> Path:
    """Write the cache of the version that `store` reads, whole or not at all; where it is.

    It holds the rows in batches (`passages.arrow`, `subwords.arrow`), arrays (`numbers`, `langs`, `vectors`, `ties`),
    the same vectors as int8, and the postings of BM25 with their terms. The disk holds the version first: it would be
    another one that gets the number of a version that a power cut took.
    """
    store.sync()
    target = index / FOLDER / str(store.version)
    if target.exists():
        shutil.rmtree(target)  # it is incomplete, or nobody would write it again
    with atomic_folder(target, MARKER) as folder:
        languages = _write_rows(store, folder)
        vectors = np.load(folder / "vectors.npy", mmap_mode="r") if languages else np.zeros((0, store.dim), np.float32)
        Int8Matrix.build(vectors, folder / "int8")
        sizes = {str(file.relative_to(folder)): file.stat().st_size for file in sorted(folder.rglob("*"))
                 if file.is_file()}
        about = {"format": FORMAT, "version": store.version, "dim": store.dim, "languages": languages,
                 "analyzers": analyzers_of(languages), "reach": _reach(vectors), "approximate": store.approximate,
                 "sizes": sizes}
        (folder / MARKER).write_text(json.dumps(about, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def newest_cache(index: Path, version: int) -> Segment | None:
    """The newest cache that is no newer than `version`; None where there is none, and where it is damaged, which is
    said."""
    fitting = [held for held in cache_versions(index) if held <= version]
    if not fitting:
        return None
    path = index / FOLDER / str(fitting[-1])
    try:
        return _open(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, arrow().ArrowException) as error:
        if path.exists():  # else a writer has just removed it
            say(f"{path}: is not used, since it is damaged or out of date ({' '.join(str(error).split())})")
        return None


def remove_other_caches(index: Path, version: int) -> None:
    """Remove all caches but that of `version`, and what writers that were killed left behind."""
    for path in (index / FOLDER).glob("*"):
        if path.name != str(version):
            shutil.rmtree(path, ignore_errors=True)


def cache_versions(index: Path) -> list[int]:
    """The versions of the caches that look complete."""
    return sorted(int(path.parent.name) for path in (index / FOLDER).glob(f"*/{MARKER}")
                  if path.parent.name.isdecimal())


def analyzers_of(languages: list[str]) -> dict[str, list[str]]:
    """Name and version of the analyzer of each language."""
    codes = {lang: analyzer(find_code(lang) or "") for lang in languages}
    return {lang: [chosen.name, chosen.version] for lang, chosen in codes.items()}


def _write_rows(store: PassageStore, folder: Path) -> list[str]:
    """All files but the int8 vectors; the languages."""
    pa = arrow()
    numbers: list[NDArray[np.int64]] = []
    met: dict[str, int] = {}  # languages, in the order in which they are met
    langs: list[NDArray[np.int32]] = []
    shape, words = (len(store.numbers()), store.dim), pa.schema([store.schema.field(SUBWORDS)])

    with (open(folder / "vectors.npy", "wb") as stream,
          pa.OSFile(str(folder / "passages.arrow"), "wb") as sink, pa.ipc.new_file(sink, text_schema()) as file,
          pa.OSFile(str(folder / "subwords.arrow"), "wb") as other, pa.ipc.new_file(other, words) as second):
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": shape})

        def terms() -> Iterator[list[str]]:
            for batch in _whole_batches(store):
                numbers.append(batch.column("number").to_numpy().copy())  # a view would keep the whole batch
                langs.append(np.array([met.setdefault(lang, len(met)) for lang in batch.column("lang").to_pylist()],
                                      dtype=np.int32))
                stream.write(vectors_of(batch, store.dim).tobytes())
                file.write_batch(batch.select(TEXTS))
                second.write_batch(batch.select([SUBWORDS]))
                for row in batch.select(PASSAGE).to_pylist():
                    yield terms_of(passage_of(row))

        write_postings(track(terms(), "analyse passages", shape[0]), folder)
    languages = sorted(met)
    places = np.array([languages.index(lang) for lang in met], dtype=np.int32)
    _save(folder, "numbers", np.concatenate([np.empty(0, np.int64), *numbers]))
    _save(folder, "langs", np.concatenate([np.empty(0, np.int32), *(places[batch] for batch in langs)]))
    _save(folder, "ties", PassageRows.open(folder / "passages.arrow").ties())
    return languages


def _whole_batches(store: PassageStore) -> Iterator[Any]:
    """The rows of the store in batches of exactly `BATCH`, the last one shorter."""
    pa = arrow()
    held: list[Any] = []
    count = 0
    for batch in store.batches(("number", *TEXTS, "vector", SUBWORDS), BATCH):
        held.append(batch)
        count += batch.num_rows
        if count >= BATCH:
            table = pa.Table.from_batches(held).combine_chunks()
            for start in range(0, count - BATCH + 1, BATCH):
                yield table.slice(start, BATCH).combine_chunks().to_batches()[0]
            rest = table.slice(count - count % BATCH)
            held, count = rest.to_batches(), rest.num_rows
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _open(path: Path) -> Segment:
    about = json.loads((path / MARKER).read_text(encoding="utf-8"))
    if about["format"] != FORMAT:
        raise ValueError(f"format {about['format']}, {FORMAT} is known")
    for name, size in about["sizes"].items():
        if (path / name).stat().st_size != size:
            raise ValueError(f"{name} has {(path / name).stat().st_size:,} bytes in place of {size:,}")
    languages = list(about["languages"])
    if about["analyzers"] != analyzers_of(languages):
        raise ValueError("its passages were cut by other versions of the analyzers")
    held = {name: _load(path / f"{name}.npy", dtype) for name, dtype in ARRAYS.items()}
    postings = Postings(held["passages"], held["counts"], held["starts"], held["lengths"])
    rows, subwords = PassageRows.open(path / "passages.arrow"), SubwordRows.open(path / "subwords.arrow")
    return Segment(held["numbers"], rows, subwords, tuple(languages), held["langs"], held["vectors"],
                   TermTable(held["terms"]), postings, held["ties"], float(about["reach"]), int(path.name),
                   Int8Matrix.load(path / "int8"), about.get("approximate"))


def _reach(vectors: NDArray[np.float32]) -> float:
    return max((longest(vectors[start : start + BATCH]) for start in range(0, len(vectors), BATCH)), default=0.0)


def _save(folder: Path, name: str, array: NDArray[Any]) -> None:
    if name not in ARRAYS:
        raise InterlinguaError(f"'{name}' is no array of a cache.")
    np.save(folder / f"{name}.npy", array.astype(ARRAYS[name], copy=False))


def _load(file: Path, dtype: Any) -> NDArray[Any]:
    array = np.load(file, allow_pickle=False) if file.stat().st_size <= 256 else np.load(file, mmap_mode="r",
                                                                                         allow_pickle=False)
    if array.dtype != dtype:
        raise ValueError(f"{file.name}: {np.dtype(dtype).name} was expected")
    return np.asarray(array)
