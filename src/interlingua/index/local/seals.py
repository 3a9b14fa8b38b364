"""A record, in an index folder, of the files that the index holds as they are (`FileMemory`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interlingua import checksums
from interlingua.data.files.unchanged import Held
from interlingua.files import atomic_write
from interlingua.index.filters import Mask
from interlingua.index.local.rows import AT_ONCE
from interlingua.index.local.segment import Segment

logger = logging.getLogger(__name__)

FILE = "files.json"


def read_seals(index: Path) -> dict[str, str]:
    """The seal of each file, by name. Nothing where the note is missing or damaged: all files are then read."""
    try:
        record = json.loads((index / FILE).read_text(encoding="utf-8"))
        checksums.check_signed(record, ("files",))
        return {str(name): str(seal) for name, seal in record["files"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        logger.info(f"{index / FILE}: cannot be used, so all files are read ({' '.join(str(error).split())})")
        return {}


def write_seals(index: Path, seals: Mapping[str, str]) -> None:
    """Write the seals, atomically, with a checksum."""
    if dict(seals) != read_seals(index):
        with atomic_write(index / FILE) as stream:
            stream.write(json.dumps(checksums.signed({"files": dict(seals)}), ensure_ascii=False) + "\n")


def held_by(segments: Iterable[tuple[Segment, Mask | None]]) -> dict[str, Held]:
    """The rows of each source in segments, of those that a mask tells: their number, and the sum of their mixed numbers
    modulo 2⁶⁴."""
    sources: dict[str, Held] = {}
    for segment, live in segments:
        names, codes = segment.sources()
        counts, sums = np.zeros(len(names), dtype=np.int64), np.zeros(len(names), dtype=np.uint64)
        for start in range(0, len(codes), AT_ONCE):
            chunk = slice(start, start + AT_ONCE)
            chunk_codes, numbers = codes[chunk], segment.numbers[chunk]
            if live is not None:
                chunk_codes, numbers = chunk_codes[live[chunk]], numbers[live[chunk]]
            counts += np.bincount(chunk_codes, minlength=len(names))
            np.add.at(sums, chunk_codes, _mixed(numbers))
        for code in np.flatnonzero(counts).tolist():
            total = sources.get(names[code], Held(0, 0))
            digest = (total.digest + int(sums[code])) % (1 << 64)
            sources[names[code]] = Held(total.passages + int(counts[code]), digest)
    return sources


def _mixed(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """SplitMix64 of each number (Steele et al. 2014): sums of these tell sets of numbers apart."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
