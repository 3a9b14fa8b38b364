"""Languages: codes, names and scripts (`languages.tsv`), and the normal form of a text."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from itertools import chain, groupby
from unicodedata import combining, normalize

import regex

from interlingua.errors import BadInput

RIGHT_TO_LEFT = frozenset({"Arab", "Avst", "Hebr", "Thaa"})
WITHOUT_SPACES = frozenset({"Hani", "Jpan", "Thai", "Khmr", "Laoo", "Mymr", "Tibt"})
CHARACTERS = {"Hani": 3.0, "Jpan": 2.2, "Kore": 1.9}
"""English characters that one character of the script stands for: median over the 1,997 professionally
translated sentences of NTREX-128 (zh 2.94, ja 2.19, ko 1.90). Alphabets and abugidas lie between 0.8 and 1.5: 1."""


@dataclass(frozen=True, slots=True)
class Language:
    """`code` is ISO 639-1 where there is one, else ISO 639-3; `script` is ISO 15924, the usual one of the language.
    `in_names`: whether its code means it in the name of a file; those of the others are words, countries and suffixes,
    too (new, za, sh)."""

    code: str
    name: str
    script: str
    aliases: tuple[str, ...] = ()
    in_names: bool = True

    @property
    def right_to_left(self) -> bool:
        return self.script in RIGHT_TO_LEFT

    @property
    def spaced(self) -> bool:
        """Whether the script puts spaces between words."""
        return self.script not in WITHOUT_SPACES

    @property
    def sentence_gap(self) -> str:
        """The text between two sentences: nothing in Chinese and Japanese, else a space (also in Thai)."""
        return "" if self.script in ("Hani", "Jpan") else " "

    @property
    def character_weight(self) -> float:
        """The number of English characters that one character of this language stands for."""
        return CHARACTERS.get(self.script, 1.0)


@cache
def languages() -> dict[str, Language]:
    """Every known language by its code, in the order of the codes."""
    rows = files("interlingua.text").joinpath("languages.tsv").read_text("utf-8").splitlines()[1:]
    table = {}
    for row in rows:
        code, aliases, name, script, names = row.split("\t")
        table[code] = Language(code, name, script, tuple(aliases.split()), names == "yes")
    return table


@cache
def _codes() -> dict[str, str]:
    codes = {alias: code for code, entry in languages().items() for alias in entry.aliases}
    return codes | {code: code for code in languages()}


@cache
def _names() -> dict[str, str]:
    return {entry.name.casefold(): code for code, entry in languages().items()}


@lru_cache(maxsize=4096)
def find_code(tag: str) -> str | None:
    """`normalise_code`, or None for something that is no language tag."""
    return _codes().get(re.split(r"[-_.@]", tag.strip().lower(), maxsplit=1)[0])


def language_key(tag: str) -> str:
    """`find_code`, with one key for Norwegian and its common standard, Bokmål, which detection does not tell apart; ""
    for what is no language tag."""
    code = find_code(tag) or ""
    return "no" if code == "nb" else code


def normalise_code(tag: str) -> str:
    """The code of a language tag: "zh-TW" → "zh", "ara" → "ar", "en_US.UTF-8" → "en"; "yue" stays.

    Accepts ISO 639-1, 639-2 and 639-3 codes, deprecated codes (iw, in) and any region or script after `-` or `_`.
    Raises BadInput with a suggestion for an unknown tag.
    """
    code = find_code(tag)
    if code is None:
        near = " or ".join(f"'{code}' ({languages()[code].name})" for code in _near(tag))
        hint = f"Did you mean {near}?" if near else "Write a code such as 'en', 'sw' or 'yue'."
        raise BadInput(f"'{tag}' is not a language code (ISO 639). {hint}")
    return code


def _near(tag: str) -> list[str]:
    """Up to three codes that someone who wrote `tag` may have meant: by name, else by a code with the same start."""
    word = tag.strip().casefold()
    names = [word] if word in _names() else get_close_matches(word, _names(), n=2, cutoff=0.7)
    if names:
        return [_names()[name] for name in names]
    start = word[:1] if len(word) <= 4 else ""
    codes = get_close_matches(word, [code for code in _codes() if code[0] == start], n=9, cutoff=0.5)
    return list(dict.fromkeys(_codes()[code] for code in codes))[:3]


def language(tag: str) -> Language:
    """The language of a tag, whatever its spelling. Raises BadInput with a suggestion for an unknown tag."""
    return languages()[normalise_code(tag)]


def find_name(name: str) -> str | None:
    """The code of a language named in English ("Arabic" → "ar"), as folders of Mr.TyDi are; None when unknown."""
    return _names().get(name.strip().casefold())


def code_in_name(part: str) -> str | None:
    """`find_code` of a part of a file's name, or None where it means no language there."""
    code = find_code(part)
    return code if code and languages()[code].in_names else None


def code_of_name(name: str) -> str | None:
    """The code of a name that is nothing but a language tag: "ar", "pt_BR", "zh-Hant"; None for "my_texts"."""
    tag = r"[A-Za-z]{2,3}(?:[-_][A-Z][a-z]{3})?(?:[-_](?:[A-Z]{2}|\d{3}))?(?:@[a-z]+)?"
    return code_in_name(name) if re.fullmatch(tag, name) else None


LOCALES = frozenset(
    "ar-sa bs-ba de-ch el-cy en-ca es-ar es-bo es-co es-pa es-sv fr-ca fr-ch ga-ie hy-am it-ch ms-my fr-be nl-be pt-br "
    "sl-si sr-ba".split()
)
"""Tags of a language in a country whose code is that of another language, too: pt-br, Portuguese and Breton."""


def code_of_pair(tag: str) -> str | None:
    """The name of the pairs of two languages, neither of them English: "tr-ko", also for "tur-kor"; None for another
    tag. Raises BadInput for one that may mean a language in a country as well."""
    if tag in LOCALES:
        lang, other = tag.split("-")
        raise BadInput(
            f"'{tag}' may be the language '{lang}' of a country, or pairs of '{lang}' and '{other}'. "
            f"Write '{lang}' or '{other}-{lang}'."
        )
    codes = [code_in_name(code) for code in tag.split("-")] if re.fullmatch(r"[a-z]{2,3}-[a-z]{2,3}", tag) else []
    if len(set(codes)) < 2 or not all(codes) or tag.endswith(("-in", "-mo")):  # India, Macau: once codes of id and ro
        return None
    return "-".join(map(str, codes))


def language_at_end(name: str) -> str | None:
    """The code of the language that a name ends in: "xquad_ar", "drcd_dev_zhtw", "mrtydi-v1.1-arabic"; else None."""
    last = re.split(r"[-_.]", name)[-1]
    return code_in_name(last) or find_name(last)


MARKS = 31
"""More marks on one letter than any language writes (UAX 15 allows for 30)."""
STACKED = regex.compile(rf"[\p{{M}}\uff9e\uff9f]{{{MARKS},}}")
FULL_WIDTH = str.maketrans("\uff9e\uff9f", "\u3099\u309a")  # as NFKC writes these two marks


def nfkc(text: str) -> str:
    """`text` in NFKC, in time that grows with its length. Python sorts the marks of a letter by insertion, and 100,000
    of them for nine seconds; so many are put into their order before."""
    if len(text) < MARKS or max(map(len, text.split()), default=0) < MARKS:  # so there cannot be as many
        return normalize("NFKC", text)
    return normalize("NFKC", STACKED.sub(lambda match: _ordered(match[0]), text))


def is_unicode(text: str) -> bool:
    """Whether a text can be encoded: it holds no half of a surrogate pair, which JSON can write."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def paired(text: str) -> str:
    """`text` with the halves of a surrogate pair as one character, and U+FFFD for half a pair alone."""
    return text if is_unicode(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_key(text: str) -> str:
    """NFKC, casefolded, outer white space stripped, inner white space collapsed to one space."""
    # NFKC is applied again because casefolding can undo it (Unicode standard, section 3.13, D146).
    folded = nfkc(nfkc(text).casefold())
    return " ".join(folded.split())


def text_hash(*texts: str) -> int:
    """64 bits that are equal for texts with equal keys, in every process and release (BLAKE2b)."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text_key(text).encode("utf-8", "surrogatepass"))
        digest.update(b"\x00")  # a control character that text_key leaves only inside a text: ("ab", "c") ≠ ("a", "bc")
    return int.from_bytes(digest.digest(), "big")


def _ordered(marks: str) -> str:
    """Canonically equivalent `marks`, between two of class 0 by their combining class."""
    parts = groupby(marks.translate(FULL_WIDTH), key=lambda mark: combining(mark) > 0)
    return "".join(chain.from_iterable(sorted(part, key=combining) for _, part in parts))
