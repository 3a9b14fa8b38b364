"""The encoding of a text file: what its first bytes say, else UTF-8, else the likeliest one."""

from __future__ import annotations

import codecs
import io
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from interlingua.data.files.walk import BadFile, MissingExtra, Source
from interlingua.files import LONGEST_LINE, UNREADABLE, open_input
from interlingua.text.detection import detect_language

CHUNK = 1 << 20
SAMPLE = 1 << 16
"""Bytes by which an encoding is guessed."""
UTF8 = "utf-8-sig"
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
COMMON = (
    "cp1252 cp1250 iso8859_2 cp1251 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp874 koi8_r cp932 euc_jp cp949 gb18030 "
    "big5"
).split()
"""Encodings that are guessed: those that browsers know and people have written files in."""
CENTRAL = "cs sk pl hu ro hr sl bs sq"
LATIN = {"cp1252": "", "cp1250": CENTRAL, "iso8859_2": CENTRAL, "cp1254": "tr az", "cp1257": "lv lt et", "cp1258": "vi"}
"""Encodings that give nearly the same letters, and the languages that are written in each; all others in the first."""
HIGH = re.compile(rb"[\x80-\xff]+")
CONTROLS = re.compile(rb"[\x80-\x9f]")
"""Bytes that are letters in Windows' encodings, and control characters in ISO's."""
ONLY_WINDOWS = b"\xb9"  # ą, in ISO's š
MARKUP = re.compile(r"<[^<>]*>")
SINGLE = 0.8
"""Share of bytes beyond ASCII that stand alone, from which on a text is in Latin letters."""
DECLARED = re.compile(
    rb"(?:charset|encoding)\s*=\s*[\"']?\s*((?:windows|cp|iso|ibm|koi8|mac|shift|sjis|euc|gb|big5|tis)[\w.:-]*)",
    re.IGNORECASE,
)
"""An encoding of text: Python also calls some ways of packing bytes so."""


AS_BROWSERS = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
"""Encodings that pages name, and the larger ones that browsers read them in (WHATWG's Encoding Standard)."""


class NotDecodable(BadFile):
    """A file, or the rest of it, is in another encoding."""


def read_start(path: Path) -> tuple[bytes, bool]:
    """The first `SAMPLE` bytes of a file, gzipped or not, and whether it has no more. Raises BadFile for one that
    cannot be read."""
    try:
        with open_input(path) as stream:
            start = stream.read(SAMPLE)
    except UNREADABLE as error:
        raise BadFile(f"cannot be read ({error})") from error
    return start, len(start) < SAMPLE


def encoding_of(path: Path, start: bytes, *, rows: bool = False, markup: bool = False, lang: str = "") -> str | None:
    """The codec that decodes all of the file whose `start` was read; None for one that holds nothing but white space.

    `markup` may name its encoding; `lang` is the language of the text where it is known. Raises BadFile, with line and
    byte, where no encoding fits, for a NUL, a broken gzip file, and in a file of `rows` a line of more than 64 MiB.
    """
    bom_encoding = _of_bom(start)

    def opened() -> IO[bytes]:
        return open_input(path) if len(start) == SAMPLE else io.BytesIO(start)

    try:
        return _checked(opened, bom_encoding or UTF8, rows)
    except NotDecodable:
        if bom_encoding or start.startswith(codecs.BOM_UTF8):
            raise
        guess = _guess(path, markup, lang)
        if guess is None:
            raise
        return _checked(opened, guess, rows)


def page_text(page: bytes) -> str:
    """The text of a whole web page, in the encoding of its BOM, else UTF-8, else the one that it declares. Bytes that
    do not fit become U+FFFD."""
    encoding = _of_bom(page) or (not _decodes(page, UTF8) and declared_encoding(page)) or UTF8
    return page.decode(encoding, "replace")


def declared_encoding(start: bytes) -> str | None:
    """The codec that markup with this `start` names for itself; None where it names none that is known."""
    if declared := DECLARED.search(start[:4096]):
        with suppress(LookupError):
            name = codecs.lookup(declared[1].decode("ascii")).name
            return AS_BROWSERS.get(name, name)
    return None


def text_lines(source: Source) -> Iterator[tuple[int, str]]:
    """`(line number from 1, line without its end)`; lines end at \\n only."""
    with io.TextIOWrapper(source.open(), encoding=source.encoding, newline="\n") as stream:
        for number, line in enumerate(stream, 1):
            yield number, line.rstrip("\r\n")


def _of_bom(start: bytes) -> str | None:
    return next((name for mark, name in MARKS.items() if start.startswith(mark)), None)


def _checked(opened: Callable[[], IO[bytes]], encoding: str, rows: bool) -> str | None:
    """`encoding`, or None where there is nothing but white space."""
    decoder = codecs.getincrementaldecoder("utf-8" if encoding == UTF8 else encoding)()
    filled, place, line, width = False, 0, 1, 0
    try:
        with opened() as stream:
            while True:
                raw = stream.read(CHUNK)
                zero = -1 if encoding in MARKS.values() else raw.find(b"\0")
                if zero >= 0:
                    at = line + raw.count(b"\n", 0, zero)
                    raise BadFile(f"a NUL at byte {place + zero:,} of the file, so this is no text", at)
                pending = len(decoder.getstate()[0])
                try:
                    text = decoder.decode(raw, final=not raw)
                except UnicodeDecodeError as error:
                    at = error.start - pending
                    name = "UTF-8" if encoding == UTF8 else encoding.upper()
                    raise NotDecodable(
                        f"not {name} ({error.reason} at byte {place + at:,} of the file), nor surely in another "
                        "encoding. Convert it with `iconv -t UTF-8`",
                        line + raw.count(b"\n", 0, max(0, at)),
                    ) from error
                if "\0" in text:
                    raise BadFile("a NUL, which no text has", line + text.count("\n", 0, text.find("\0")))
                filled = filled or bool(text.lstrip("\ufeff").strip())
                if not raw:
                    return encoding if filled else None
                longest, width = _widest(raw, width)
                if rows and longest > LONGEST_LINE:
                    raise BadFile(f"a line of more than {LONGEST_LINE >> 20} MiB", line)
                place, line = place + len(raw), line + raw.count(b"\n")
    except UNREADABLE as error:
        raise BadFile(f"cannot be read ({error})") from error


def _guess(path: Path, markup: bool, lang: str) -> str | None:
    """The encoding that markup declares, else the likeliest one by a sample around what is not UTF-8; None for UTF-8
    that is damaged, and where none is likely."""
    sample = _sample(path)
    if markup and (declared := declared_encoding(sample)) is not None and _decodes(sample, declared):
        return declared
    as_utf8 = sample.decode("utf-8", "replace")
    damaged = as_utf8.count("\ufffd")
    if sum(char > "\x7f" for char in as_utf8) - damaged > damaged:
        return None
    western = sample.decode("cp1252", "replace")
    if not any(char > "\x7f" and (char.isalpha() or char == "\ufffd") for char in western):
        return "cp1252"  # quotation marks and the like, which have the same place in most
    runs = [len(run) for run in HIGH.findall(sample)]
    is_latin = runs.count(1) > SINGLE * len(runs)  # elsewhere letters beyond ASCII stand together
    best = _likeliest(sample, list(LATIN) if is_latin else COMMON)
    if best is None or best not in LATIN:
        return best
    code = lang or detect_language(MARKUP.sub(" ", sample.decode(best)))
    names = [name for name, languages in LATIN.items() if code in languages.split()] or ["cp1252"]
    if "iso8859_2" in names and not CONTROLS.search(sample) and not (code == "pl" and ONLY_WINDOWS in sample):
        names.reverse()
    return next((encoding for encoding in (*names, best) if _decodes(sample, encoding)), None)


def _likeliest(sample: bytes, candidates: list[str]) -> str | None:
    """The encoding by charset-normalizer."""
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        raise MissingExtra("charset-normalizer", "index", "not in UTF-8, ") from None
    logging.getLogger("charset_normalizer").setLevel(logging.ERROR)
    best = from_bytes(sample, cp_isolation=candidates).best()
    return best.encoding if best else None


def _sample(path: Path) -> bytes:
    """Lines of the file from the first that is not ASCII on, `SAMPLE` bytes, the beginning of the file before them."""
    with open_input(path) as stream:
        lines, size = [stream.read(4096)], 0
        for line in stream:
            if size or not line.isascii():
                lines.append(line[:SAMPLE])
                size += len(line)
            if size > SAMPLE:
                break
    data = b"".join(lines)
    end = max(data.rfind(b"\n"), data.rfind(b" "))  # not within a character
    return data if size <= SAMPLE or end < 0 else data[:end]


def _decodes(sample: bytes, encoding: str) -> bool:
    try:
        sample.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _widest(raw: bytes, before: int) -> tuple[int, int]:
    """(bytes of the longest line in `raw`, or of the one that `before` bytes precede; bytes of the line at its end)."""
    first, last = raw.find(b"\n"), raw.rfind(b"\n")
    if first < 0:
        return before + len(raw), before + len(raw)
    return before + first, len(raw) - last - 1  # what lies between is shorter than `raw`
