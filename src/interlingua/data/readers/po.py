"""gettext PO files: the strings of a program and their translations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polib

from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.source import plain_name
from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.files import read_lines
from interlingua.text.languages import find_code, normalise_code


def matches(path: Path, start: str) -> bool:
    return plain_name(path).endswith((".po", ".pot")) or ("\nmsgid " in f"\n{start}" and "\nmsgstr" in start)


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """One record a translated entry, `msgid` as the source (English unless given). The target language is the
    header's `Language`, else the file name (`fr.po`), unless given. Fuzzy, obsolete and untranslated entries are
    counted. Of an entry with plurals the plural is paired with the last form, which is the general one."""
    content = "\n".join(line for _, line in read_lines(path)) + "\n"
    try:
        catalogue = polib.pofile(content)
    except (OSError, ValueError) as error:
        raise InterlinguaError(f"{path}: not a PO file ({error}). Check it with msgfmt -c.") from error
    source = normalise_code(source_lang or "en")
    target = target_lang or catalogue.metadata.get("Language") or find_code(plain_name(path).split(".")[0])
    if not target:
        raise InterlinguaError(f"{path}: neither the header (Language:) nor the file name tells the language. "
                               "Give target_lang.")
    return bad.parsed(path, _entries(path, catalogue, bad), _parser(source, normalise_code(target)))


def _entries(path: Path, catalogue: polib.POFile, bad: BadRows) -> Iterator[tuple[int, polib.POEntry]]:
    for entry in catalogue:
        if entry.obsolete:
            bad.passed_over(path, "obsolete entries not read")
        elif entry.fuzzy:
            bad.passed_over(path, "fuzzy entries not read")
        elif not entry.translated():
            bad.passed_over(path, "untranslated entries not read")
        else:
            yield entry.linenum, entry


def _parser(source: str, target: str) -> Callable[[polib.POEntry], ParallelPair]:
    def parse(entry: polib.POEntry) -> ParallelPair:
        texts = (entry.msgid, entry.msgstr)
        if entry.msgid_plural:
            texts = (entry.msgid_plural, entry.msgstr_plural[max(entry.msgstr_plural)])
        if not all(text.strip() for text in texts):
            raise BadRow("an empty side")
        return ParallelPair(texts[0], texts[1], source, target)

    return parse
