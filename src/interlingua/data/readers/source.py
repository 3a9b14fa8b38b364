"""Sources of rows: files, folders and globs; how a format is recognised; a source's identity."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import Field

from interlingua.data.encyclopedia import is_encyclopedia, topic_files
from interlingua.data.readers.rows import BadRows
from interlingua.errors import BadInput, suggestion
from interlingua.files import UNREADABLE, UTF16, check_packing, existing, is_input, open_input, read_lines
from interlingua.settings import Settings
from interlingua.text.languages import code_in_name, normalise_code

logger = logging.getLogger(__name__)

PathLike = str | Path
HEAD_BYTES = 1 << 16


def expand(path: PathLike | Iterable[PathLike]) -> list[Path]:
    """The files meant by a path: itself (a pipe too; `-` is /dev/stdin), the files of a folder (not of its sub-folders,
    no hidden ones), or the matches of a glob, in sorted order. What else a folder holds, a pipe or a broken link, is
    said. An iterable of paths is expanded one by one, in the order given."""
    if not isinstance(path, (str, Path)):
        return [file for one in path for file in expand(one)]
    location = Path(path)
    if is_input(location):
        return [existing(location)]
    if location.is_dir():
        entries = sorted(entry for entry in location.iterdir() if not entry.name.startswith(".") and not entry.is_dir())
        files = [entry for entry in entries if entry.is_file()]
        if irregular := [entry.name for entry in entries if not entry.is_file()]:
            logger.warning(f"{path}: not read, as they are no regular files: {', '.join(irregular)}")
        problem = "the folder holds no file"
    elif glob.has_magic(str(path)):
        files = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if not Path(name).is_dir())
        problem = "no file matches"
    else:
        return [existing(location)]
    if not files:
        raise BadInput(f"{path}: {problem}. Check the path.")
    return files


def head(path: Path) -> str:
    """The first 64 KiB as text, to recognise a format by. Raises BadInput for an empty file, and for one that is
    compressed with something else than gzip."""
    try:
        with open_input(path) as stream:
            start = stream.read(HEAD_BYTES)
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be read ({error}).") from error
    check_packing(path, start)
    text = start.decode("utf-16" if start.startswith(UTF16) else "utf-8-sig", errors="ignore")
    if not text.strip():
        raise BadInput(f"{path}: is empty. Check how the file was made, or remove it.")
    return text


def whole_json(path: Path) -> Any:
    """The parsed JSON of a file that fits in memory (SQuAD), with errors that name the line."""
    text = "\n".join(line for _, line in read_lines(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: not JSON ({error}). Fetch the file again.") from error


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a jsonl file or a table that are not blank: a blank line carries no row."""
    return ((number, line) for number, line in read_lines(path) if line.strip())


def first_lines(start: str) -> list[str]:
    """The first twenty complete lines that hold text: what a format is recognised by, though one of them be bad."""
    lines = start.split("\n")
    return list(islice(filter(str.strip, lines[:-1] or lines), 20)) or lines[:1]


def first_keys(start: str) -> set[str]:
    """The keys that the first JSON object has, or half of the first twenty, one a line; where none is whole, those of
    the object that `start` begins with and is cut in."""
    rows = []
    for line in () if start.lstrip().startswith("[") else first_lines(start):
        with suppress(ValueError, RecursionError):
            rows.append(json.loads(line))
    if rows and all(isinstance(row, dict) for row in rows):
        counts = Counter(key for row in rows for key in row)
        return {key for key, count in counts.items() if key in rows[0] or 2 * count >= len(rows)}
    try:
        row, _ = json.JSONDecoder().raw_decode(start.lstrip())
    except (ValueError, RecursionError):
        return set(re.findall(r'"(\w+)"\s*:', start)) if start.lstrip().startswith("{") else set()
    return set(row) if isinstance(row, dict) else set()


def columns(start: str) -> int:
    """The number of tab-separated columns of most of the first lines; 0 for JSON and XML."""
    if start.lstrip().startswith(("{", "[{", "<")):
        return 0
    return Counter(line.count("\t") + 1 for line in first_lines(start)).most_common(1)[0][0]


def plain_name(path: Path) -> str:
    """The file name without `.gz`."""
    return path.name[:-3] if path.name.endswith(".gz") else path.name


def kind_of(path: Path) -> str:
    """The suffix of the file name without `.gz`, in small letters: `.csv`, also of Table.CSV.gz. A pipe without a
    suffix (`/dev/stdin`, `/dev/fd/63`) is `.jsonl` where it begins with an object."""
    suffix = Path(plain_name(path)).suffix.lower()
    return ".jsonl" if not suffix and not path.is_file() and head(path).lstrip().startswith("{") else suffix


def source_fingerprint(path: PathLike | Iterable[PathLike], **options: object) -> str:
    """Identifies what would be read from `path` (whatever the readers accept) with `options`: 16 hex digits over the
    names, sizes and modification times (ns) of the files and the options. An id of ir_datasets stands for itself. For
    `RecordStore.build`. Raises BadInput for a pipe: nothing tells whether it would give the same again."""
    parts: list[object] = [sorted((key, repr(value)) for key, value in options.items())]
    for source in [path] if isinstance(path, (str, bytes)) or not isinstance(path, Iterable) else path:
        if is_encyclopedia(source):
            parts += [source, *topic_files()]
            continue
        if str(source).startswith("ir_datasets:"):
            parts.append(source)
            continue
        for file in _with_partners(files_of(source)):
            if not file.is_file():
                raise BadInput(
                    f"{file}: is a pipe. Training must find the same data when it goes on after a "
                    "stop. Save what the pipe gives to a file."
                )
            facts = file.stat()
            parts.append((str(file.resolve()), facts.st_size, facts.st_mtime_ns))
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()[:16]


TwoFiles = tuple[Path, Path]
_PAIR = re.compile(r"(?:^|[._])([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)-([A-Za-z]{2,3}(?:_[A-Za-z]{2,4})?)(?=[._]|$)")
_LOCALE, _PLAIN = r"([a-z]{2,3}-[A-Z]{2})", r"([a-z]{2,3})"
_LOCALES = [
    re.compile(rf"(?:^|[._-]){first}[._-]{second}(?=[._-]|$)")
    for first, second in ((_LOCALE, _LOCALE), (_LOCALE, _PLAIN), (_PLAIN, _LOCALE))
]
_SMALL = re.compile(r"(?:^|\.)([a-z]{2,3}-[a-z]{2})_([a-z]{2,3}-[a-z]{2})(?=\.|$)")
"""Two locales in small letters. "de-en_fr-en" are none: one of their halves must be no language."""


def languages_in_name(path: Path) -> tuple[str, str] | None:
    """The pair of codes in a file name, in its order: "WikiMatrix.en-fi.tsv.gz" → ("en", "fi"), "en-US_pt-BR.tsv" →
    ("en", "pt"), or None. One locale ("pt-BR") is no pair."""
    name = plain_name(path)
    pairs = [(first, second) for first, second in _PAIR.findall(name) if first.isupper() or not second.isupper()]
    stem = Path(name).stem  # "txt" is a language, too
    small = [pair for pair in _SMALL.findall(stem) if any(code_in_name(locale[-2:]) is None for locale in pair)]
    for first, second in [*(pair for pattern in _LOCALES for pair in pattern.findall(stem)), *small, *pairs]:
        codes = code_in_name(first), code_in_name(second)
        if codes[0] and codes[1] and codes[0] != codes[1]:
            return codes[0], codes[1]
    return None


def languages_of(path: Path, options: PairOptions) -> tuple[str, str]:
    """The languages of the first and the second column: those given, else those in the file name."""
    codes = languages_in_name(path) or (None, None)
    source, target = options.source_lang or codes[0], options.target_lang or codes[1]
    if not source or not target:
        raise BadInput(
            f"{path}: the file name tells no pair of languages (like ar-en.tsv). Give source_lang and target_lang, "
            "among the `options` of a recipe's data, or on the command line as --option source_lang=…."
        )
    return normalise_code(source), normalise_code(target)


def language_suffix(path: Path) -> str | None:
    """The language that a Moses file name ends in: "corpus.ar.gz" → "ar", "tatoeba.ara-eng.ara" → "ar", else None."""
    suffix = Path(plain_name(path)).suffix
    return code_in_name(suffix[1:]) if suffix else None


def group(paths: PathLike | Iterable[PathLike], *, alone: bool = False) -> list[Path | TwoFiles]:
    """The files of a path with Moses files put together two by two: the one that is not English with the English one
    (of two that are not English, in the order of their names). A path may be their common beginning: "corpus" for
    corpus.ar and corpus.en. Raises BadInput for a file without a partner, unless one may be `alone`, and for partners
    that cannot be told.
    """
    files = [file for one in ([paths] if isinstance(paths, (str, Path)) else paths) for file in files_of(one)]
    stems: dict[Path, list[Path]] = defaultdict(list)
    for file in files:
        if language_suffix(file):
            stems[_stem(file)].append(file)
    units: list[Path | TwoFiles] = []
    for file in files:
        if not language_suffix(file):
            units.append(file)
        elif (sides := stems.pop(_stem(file), None)) is not None:
            units += _couples(sides, alone)
    return units


def files_of(path: PathLike) -> list[Path]:
    """`expand`, where the common beginning of Moses files means all of them."""
    stem = Path(path)
    if not stem.exists() and stem.parent.is_dir():
        sides = sorted(file for file in stem.parent.iterdir() if _stem(file) == stem and language_suffix(file))
        if sides:
            return sides
    return expand(path)


def _with_partners(files: list[Path]) -> list[Path]:
    """The files, and those beside them that `group` reads with them."""
    try:
        units = group(files)
    except BadInput:  # none is there, as of files that are no side of a pair
        return files
    partners = {file for unit in units if isinstance(unit, tuple) for file in unit} - set(files)
    return [*files, *sorted(partners)]


def _stem(file: Path) -> Path:
    return file.parent / Path(plain_name(file)).stem


def _couples(sides: list[Path], alone: bool) -> list[Path | TwoFiles]:
    if len(sides) == 1:
        others = sorted(
            file
            for file in sides[0].parent.iterdir()
            if _stem(file) == _stem(sides[0]) and language_suffix(file) and file != sides[0]
        )
        if not others and alone:
            return [*sides]
        if len(others) != 1:
            names = ", ".join(file.name for file in others) or "none"
            raise BadInput(
                f"{sides[0]}: one side of a parallel corpus; the other side cannot be told "
                f"(found: {names}). Give both files."
            )
        sides = [*sides, others[0]]
    by_lang = {language_suffix(file): file for file in sides}
    if len(by_lang) < len(sides):
        raise BadInput(f"{sides[0]}: two files beside each other are of the same language. Give the two files.")
    if len(sides) == 2:
        codes = languages_in_name(sides[0])
        order = codes if codes and set(codes) == set(by_lang) else sorted(by_lang, key=lambda code: code == "en")
        return [(by_lang[order[0]], by_lang[order[1]])]
    if "en" not in by_lang:
        raise BadInput(f"{sides[0]}: {len(sides)} languages and none is English. Give two files at a time.")
    return [(file, by_lang["en"]) for code, file in by_lang.items() if code != "en"]


Record = TypeVar("Record")


class NoOptions(Settings):
    """A format without options."""


class RowOptions(Settings):
    """A format whose rows may say their language."""

    lang: str | None = Field(None, description="the language of rows that do not name theirs")


class QuestionOptions(Settings):
    """A format of questions, whose rows may say their language."""

    lang: str = Field("en", description="the language of rows that do not name theirs")


class PairOptions(Settings):
    """A format of sentence pairs."""

    source_lang: str | None = Field(None, description="the language of the first text, where nothing tells it")
    target_lang: str | None = Field(None, description="the language of the second text, where nothing tells it")


@dataclass(frozen=True)
class Format(Generic[Record]):
    """`matches(path, first 64 KiB)` recognises it by content; `read(path, bad rows, options)` reads it. A format of two
    files has no `matches`: the files were found by their names."""

    name: str
    what: str
    read: Callable[..., Iterator[Record]]
    matches: Callable[[Path, str], bool] | None
    options: type[Settings] = NoOptions

    def checked(self, given: dict[str, Any]) -> Settings:
        """The options of this format, of which some are `given`. Raises BadInput for a value that cannot be, and for a
        value of an option that it does not have."""
        fields = self.options.model_fields
        for key, value in given.items():
            if key not in fields and value is not None:
                raise BadInput(f"the format '{self.name}' has no option '{key}'.{suggestion(key, fields)}")
        own = {key: value for key, value in given.items() if key in fields}
        return self.options.checked(own, f"the format '{self.name}'")


def matching(formats: Iterable[Format[Record]], path: Path, start: str) -> Format[Record] | None:
    """The first of the formats that the content of a file matches; `start` is its `head`."""
    return next((one for one in formats if one.matches and one.matches(path, start)), None)


def recognise(unit: Path | TwoFiles, formats: Sequence[Format[Record]], name: str | None) -> Format[Record]:
    """The format called `name`, else the first whose content matches. Raises BadInput for an unknown name,
    an empty file, or a file that no format matches."""
    if name is not None:
        chosen = next((one for one in formats if one.name == name), None)
        if chosen is None:
            raise BadInput(f"format='{name}' is unknown.{suggestion(name, [one.name for one in formats])}")
        if (chosen.matches is None) != isinstance(unit, tuple):
            needs = "two files (x.ar, x.en)" if chosen.matches is None else "one file"
            raise BadInput(f"{unit if isinstance(unit, Path) else unit[0]}: the format '{name}' needs {needs}.")
        return chosen
    if isinstance(unit, tuple):
        return next(one for one in formats if one.matches is None)
    if candidate := matching(formats, unit, head(unit)):
        return candidate
    descriptions = "; ".join(f"{one.name} ({one.what})" for one in formats)
    advice = "If it is one of them, say which with `format`."
    if plain_name(unit).lower().endswith(".csv"):
        advice = "Save a table with tabs between its columns, without a header (TSV), or as jsonl."
    raise BadInput(f"{unit}: none of the formats that are read here. Known: {descriptions}. {advice}")


def read_all(
    units: Iterable[Path | TwoFiles],
    formats: Sequence[Format[Record]],
    name: str | None,
    policy: str,
    options: dict[str, Any] | Callable[[Path | TwoFiles], dict[str, Any]],
) -> Iterator[Record]:
    """The records of every unit in order; `options` are those of all, or give those of each. Formats, options and empty
    files are checked at once, rows when they are read. What was left out is said at the end, also when the reader is
    closed early."""
    bad = BadRows(policy)
    chosen = []
    for unit in units:
        for file in unit if isinstance(unit, tuple) else (unit,):
            head(file)
        reader = recognise(unit, formats, name)
        chosen.append((unit, reader, reader.checked(options(unit) if callable(options) else options)))

    def records() -> Iterator[Record]:
        try:
            for unit, reader, unit_options in chosen:
                yield from reader.read(unit, bad, unit_options)
        finally:
            bad.report()

    return records()
