"""Mr.TyDi (Zhang et al. 2021) and MIRACL (Zhang et al. 2023) as they are published.

`collection/docs.jsonl.gz` or `docs-0.jsonl.gz …`, `topic.<split>.tsv` or `topics.….<split>.tsv`, `qrels.<split>.txt`
or `qrels.….<split>.tsv`; all in the folder itself or in a sub-folder of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from interlingua.data.collections.rows import jsonl_passages, read_qrels, tsv_queries
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.files import is_input


def matches(path: Path) -> bool:
    return bool(_named(path, "docs*.jsonl*"))


def complete(path: Path) -> bool:
    """Whether all is there that a collection needs, of some split."""
    return all(_named(path, pattern) for pattern in ("docs*.jsonl*", "topic*.tsv*", "qrels*"))


def load(path: Path, split: str, lang: str) -> Collection:
    """The collection of one language: all its passages, the questions and judgements of one split."""
    seen: set[str] = set()
    passages = [one for file in _named(path, "docs*.jsonl*") for one in jsonl_passages(file, lang, seen=seen)]
    queries = list(tsv_queries(_of_split(path, "topic*.tsv*", split), lang))
    return Collection(path.name, passages, queries, read_qrels(_of_split(path, "qrels*", split)))


def _named(path: Path, pattern: str) -> list[Path]:
    return sorted(file for where in (pattern, f"*/{pattern}") for file in path.glob(where) if is_input(file))


def _of_split(path: Path, pattern: str, split: str) -> Path:
    files = _named(path, pattern)
    found = [file for file in files if split in re.split(r"[.\-_]", file.name)]
    if len(found) != 1:
        there = ", ".join(file.name for file in files) or "none"
        problem = "no" if not found else "more than one"
        raise InterlinguaError(f"{path}: {problem} file {pattern} of the split '{split}' (there is: {there}). "
                               "Say which split with split=….")
    return found[0]
