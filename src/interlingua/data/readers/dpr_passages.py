"""DPR's passages as TSV, such as `psgs_w100.tsv`: id, text, title; double quotes around fields that hold any."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.source import head
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.files import read_lines

COLUMNS = ["id", "text", "title"]


def read_tsv_passages(path: Path, lang: str = "") -> Iterator[Passage]:
    """The passages of a file of 100-word pieces of Wikipedia (Karpukhin et al. 2020), gzipped or not, all in `lang`.

    The first line may name the columns. Raises InterlinguaError naming file and line for other columns, an empty id or
    text, a stray quote, an id that occurs twice.
    """
    head(path)
    rows = csv.reader((f"{line}\n" for _, line in read_lines(path)), delimiter="\t", strict=True)
    seen: set[str] = set()
    try:
        for row in rows:
            where = f"{path}, line {rows.line_num}"
            if rows.line_num == 1 and row[:1] == ["id"]:
                if row != COLUMNS:
                    raise InterlinguaError(f"{where}: the columns are {', '.join(row)}; they must be id, text, title "
                                           "(DPR's). Write the file so, or as jsonl.")
                continue
            if len(row) != len(COLUMNS) or not row[0] or not row[1].strip():
                raise InterlinguaError(f"{where}: {len(row)} column(s); three are needed, id, text, title, and only "
                                       "the title may be empty. Mend the row.")
            if row[0] in seen:
                raise InterlinguaError(f"{where}: the passage id '{row[0]}' occurs twice. Ids must be unique.")
            seen.add(row[0])
            yield Passage(row[0], row[1], row[2], lang)
    except csv.Error as error:
        raise InterlinguaError(f"{path}, line {rows.line_num}: {error}. A field that begins with a double quote must "
                               "end with one, and have those inside it doubled.") from error
