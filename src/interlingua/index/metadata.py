"""Metadata of an index, the check of its encoder, and the check of its questions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain, islice, zip_longest
from math import inf, isnan
from numbers import Integral, Real
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import numpy as np

from interlingua import checksums
from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput, Damaged, NotFound, suggestion
from interlingua.files import atomic_write
from interlingua.models.protocols import AnyEncoder, Encoder, has_token_vectors
from interlingua.retrieval.retriever import Vectors, embed_queries
from interlingua.text import phonetic
from interlingua.text.analyzers import analyzer
from interlingua.text.analyzers.segment import term_nfkc
from interlingua.text.detection import detect_language
from interlingua.text.languages import find_code, language_key, normalise_code

if TYPE_CHECKING:
    from interlingua.data.files.walk import SourceNames


FORMAT = 4
MARKER = "index.json"
SOURCES = "sources.json"


@dataclass(frozen=True)
class IndexMetadata:
    """The metadata of an index. `model` is the name or folder of the encoder ("" if none was given), `fingerprint` that
    of the encoder; `k1` and `b` are BM25's. `made` is unique to each index that is built."""

    model: str
    fingerprint: dict[str, Any]
    similarity: str
    dim: int
    k1: float
    b: float
    made: str = field(default_factory=lambda: uuid4().hex)

    def write(self, folder: Path) -> None:
        """Write index.json."""
        content = json.dumps(checksums.signed({"format": FORMAT, **asdict(self)}), ensure_ascii=False, indent=1)
        (folder / MARKER).write_text(content + "\n", encoding="utf-8")


@dataclass(frozen=True)
class IndexInfo:
    """`version` of the store and the version that the `cache` was made from; `newer` and `deleted` are the rows that
    the cache does not know yet. `analyzers` by language: which one, and its version."""

    passages: int
    languages: dict[str, int]
    model: str
    similarity: str
    dim: int
    version: int
    cache: int
    newer: int
    deleted: int
    k1: float
    b: float
    analyzers: dict[str, str]


def read_metadata(folder: Path) -> IndexMetadata:
    """Read index.json. Raises NotFound when `folder` is no index, Damaged or BadInput for one that cannot be read."""
    file = folder / MARKER
    if not file.is_file():
        raise NotFound(f"{folder}: is not an index (no {MARKER}). Make one with `interlingua index`.")
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(record, dict) or "format" not in record:
        raise damaged(file, "no 'format'")
    if (version := record["format"]) != FORMAT:
        raise BadInput(f"{folder}: has index format {version}, {FORMAT} is known. Build it again with --overwrite.")
    kinds = {"model": str, "fingerprint": dict, "similarity": str, "dim": int, "k1": float, "b": float, "made": str}
    for key, kind in kinds.items():
        if not isinstance(record.get(key), kind):
            raise damaged(file, f"'{key}' is missing or no {kind.__name__}")
    try:
        checksums.check_signed(record, {"format", *kinds})
    except ValueError as error:
        raise damaged(file, error) from error
    return IndexMetadata(**{key: record[key] for key in kinds})


def read_sources(folder: Path) -> dict[str, str]:
    """The names and paths of the files and folders that an index was made from; none for one that was made of
    passages."""
    file = folder / SOURCES
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(record, dict):
            raise ValueError("no object")
        names = record.get("names")
        if isinstance(names, dict):
            checksums.check_signed(record, ("names",))
        else:
            names = record  # of an earlier version: without a checksum
        if not all(isinstance(place, str) for place in names.values()):
            raise ValueError("a path is no text")
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise damaged(file, error) from error
    return names


def write_sources(folder: Path, names: SourceNames) -> None:
    """Write the names, atomically, with a checksum."""
    if names.known != read_sources(folder):
        content = json.dumps(checksums.signed({"names": names.known}), ensure_ascii=False, indent=1)
        with atomic_write(folder / SOURCES) as stream:
            stream.write(content + "\n")


def signature(folder: Path) -> tuple[int, int]:
    """Inode and time of index.json: another pair for each index that is built."""
    try:
        status = (folder / MARKER).stat()
    except OSError:
        return (0, 0)  # an index that is just being replaced, or gone
    return status.st_ino, status.st_mtime_ns


def damaged(path: Path, reason: object) -> Damaged:
    """The error for a part of an index that cannot be what was written."""
    return Damaged(f"{path}: is damaged ({reason}). Build it again with --overwrite.")


def terms_of(passage: Passage) -> list[str]:
    """The terms of a passage by the analyzer of its language, and then its phonetic keys."""
    text = passage.whole_text
    return [*analyzer(find_code(passage.lang) or "")(text), *phonetic.phonetic_keys(text)]


def analyzers_of(languages: list[str]) -> dict[str, list[str]]:
    """Name and version of the analyzer of each language; the version of phonetic keys belongs to it."""
    analyzers = {lang: analyzer(find_code(lang) or "") for lang in languages}
    return {lang: [one.name, f"{one.version}, phonetic keys {phonetic.VERSION}"] for lang, one in analyzers.items()}


def load_encoder(
    made: IndexMetadata, place: object, *, model: str | None = None, precision: str | None = None
) -> Encoder:
    """The encoder that the index at `place` was `made` with, loaded by the name of its model, or by `model`; in the
    precision that the index was made in, or in `precision`.

    Raises BadInput where none is named, where it is not there any more, and where it has changed.
    """
    override, model = model, model or made.model
    if not model:
        raise BadInput(
            f"{place}: does not say which model made it. Give the model with --model "
            "(in Python: pass encoder= when you open it)."
        )
    if not override and Path(model).is_absolute() and not Path(model).exists():
        raise NotFound(
            f"{place}: was made with the model {model}, which is not there any more. "
            "Say where it is with --model (in Python: pass encoder= when you open it)."
        )
    encoder = of_one_vector(load_to_encode(model, precision or made_in(made)), model)
    check_encoder(encoder, made, place)
    return encoder


def made_in(made: IndexMetadata) -> str:
    """The precision of the index, or float32 where a GPU computes and where the processor does not have it."""
    from interlingua.models.inference.machine import cpu_has_bfloat16, has_no_gpu

    precision = str(made.fingerprint.get("precision", "float32"))
    if precision != "float32" and not (precision == "int8" and has_no_gpu()):
        from interlingua.models.encode import default_device  # loads torch

        if default_device(None).type != "cpu" or (precision == "bfloat16" and not cpu_has_bfloat16()):
            return "float32"
    return precision


def of_one_vector(encoder: AnyEncoder, model: str) -> Encoder:
    """`encoder`, called `model`, which must give one vector a text: such are the vectors of an index."""
    if has_token_vectors(encoder):
        raise BadInput(
            f"{model}: gives one vector a token, and an index holds one vector a passage. Give another model; this one "
            "reranks (--rerank)."
        )
    return encoder


def load_to_encode(name_or_path: str | Path, precision: str | None = "float32") -> AnyEncoder:
    """Load a model as `interlingua.models.late_interaction.load_any` does, for inference in a precision. A static
    one is a `StaticEncoder`, which takes a tenth of the time; a transformer is a `LightEncoder` where it can be, and
    without a precision what training uses."""
    from interlingua.models.inference.light import LightEncoder
    from interlingua.models.static.encoder import StaticEncoder

    encoder: AnyEncoder | None = StaticEncoder.load(name_or_path) if precision in (None, "float32", "auto") else None
    if encoder is None and precision is not None:
        encoder = LightEncoder.load(name_or_path, precision)
    if encoder is not None:
        return encoder
    from interlingua.models.late_interaction import load_any

    return load_any(name_or_path, precision=precision)


def check_options(options: Mapping[str, Any], similarity: str) -> None:
    """Raise BadInput for options of encoding that an index cannot keep for its later passages and its questions."""
    if "lang" in options:
        raise BadInput("lang: passages that are added later would be encoded without it. Give each passage its lang.")
    lasting = sorted({"truncate_dim", "prompt", "prompt_name"} & options.keys())
    if similarity == "dot" and options.get("normalize_embeddings"):
        lasting.append("normalize_embeddings")
    if lasting:
        raise BadInput(
            f"{lasting[0]}: passages that are added later, and questions, would be encoded without it. Build the index "
            "with a model that has it of itself."
        )


def check_encoder(encoder: Encoder, made: IndexMetadata, place: object) -> None:
    """Raise BadInput unless `encoder` is the one that the index at `place` was `made` with."""
    from interlingua.models.folder import check

    check(encoder, made.fingerprint, str(place))
    if encoder.similarity != made.similarity:
        raise BadInput(
            f"{place}: was made for similarity '{made.similarity}', the model says "
            f"'{encoder.similarity}'. Make the index again with this model."
        )


MODES = ("hybrid", "dense", "lexical")
LONGEST = 10_000
"""Characters that a question may have, as it is written and in NFKC."""
READ, ELSEWHERE = 4_000, 500
"""Terms of a question that the analyzer of its language finds, and that of each other language, the first of them; what
comes again is found once."""
TERMS = 2_000
"""Distinct terms of a question that are compared with passages, the first that the analyzers find."""


class OutOfTime(BadInput):
    """A question took more time than it was given."""


class Question:
    """A question, normalised once (NFKC), whose terms are found once for each language, and encoded once.

    `text` is as it was written, which is what encoders read; `lang` is its language, "" where it is not sure. Pass one
    object to an index and to `Highlights`, so that both use the same terms. Raises BadInput for a text of more
    than `LONGEST` characters, and for what is no language.
    """

    def __init__(self, text: str, lang: str | None = None) -> None:
        """`lang` None: it is detected."""
        self.text, self.normal = text, normal_question(text)
        self.lang = detect_language(text) if lang is None else normalise_code(lang) if lang else ""
        self.is_cut = False
        """Whether terms beyond `READ`, `ELSEWHERE` or `TERMS` were left out so far."""
        self._counts: dict[str, Counter[str]] = {}
        self.encoded: tuple[Encoder, Any] | None = None
        """The encoder that read it last, and its vector."""

    def counts(self, lang: str) -> Counter[str]:
        """The terms that the analyzer of a language finds, the first of them, and how often each occurs."""
        code = find_code(lang) or ""
        if code not in self._counts:
            limit = READ if code == (find_code(self.lang) or "") else ELSEWHERE
            self._counts[code], whole = analyzer(code).counts(self.normal, limit)
            self.is_cut |= not whole
        return self._counts[code]

    @cached_property
    def sounds(self) -> Counter[str]:
        """Its phonetic keys, the first `ELSEWHERE` of them, and how often each occurs."""
        counts = Counter(phonetic.phonetic_keys(self.normal))
        self.is_cut |= len(counts) > ELSEWHERE
        return Counter(dict(islice(counts.items(), ELSEWHERE)))

    def is_foreign(self, lang: str) -> bool:
        """Whether `lang` is another language than the question's; true where that is not known."""
        own = language_key(self.lang)
        return not own or language_key(lang) != own

    def sought(self, langs: Names[str], languages: Names[str]) -> dict[str, str]:
        """For each of `langs` the language of the analyzer that finds the terms for passages in it, among passages in
        `languages`: the question's, where there are passages in it, else the passages' own. Passages in no known
        language have been cut by no language's analyzer, and are looked for by that one."""
        key = language_key(self.lang)
        own = next((find_code(lang) for lang in sorted(languages) if key and language_key(lang) == key), None)
        return {lang: own if own and find_code(lang) else find_code(lang) or "" for lang in langs}

    def terms(self, languages: Names[str]) -> Counter[str]:
        """The terms to look for in passages in `languages`, at most `TERMS`: by the analyzer of the question's language
        where there are passages in it, else by all analyzers of the passages (`sought`), each term as often as the one
        that finds it most often says."""
        all_counts = [self.counts(lang) for lang in sorted(set(self.sought(languages, languages).values()))]
        terms: Counter[str] = Counter()
        for counts in all_counts:
            terms |= counts
        if len(terms) > TERMS:
            self.is_cut = True
            in_turn = dict.fromkeys(term for term in chain.from_iterable(zip_longest(*all_counts)) if term is not None)
            selection = set(islice(in_turn, TERMS))
            terms = Counter({term: times for term, times in terms.items() if term in selection})
        return terms


def codes_in(languages: Names[str], langs: str | Names[str] | None) -> list[str] | None:
    """`langs` (one, or several) by the codes that an index with passages in `languages` uses: "eng" is "en" there, and
    "no" is "no" and "nb"."""
    if langs is None:
        return None
    codes = dict[str, None]()
    for name in [langs] if isinstance(langs, str) else langs:
        key = language_key(name)
        same = [own for own in languages if own == name or (key and language_key(own) == key)]
        codes |= dict.fromkeys(same or [find_code(name) or name])
    return list(codes)


def check_limits(k: object, min_score: object) -> None:
    """Raise BadInput for a number of hits, or a score, that is none."""
    if not isinstance(k, Integral) or k < 1:
        raise BadInput(f"k={k!r}: must be a whole number, at least 1.")
    if min_score is not None and (not isinstance(min_score, Real) or isnan(min_score)):
        raise BadInput(f"min_score={min_score!r}: must be a number.")


class Questions(NamedTuple):
    """Questions, also as queries for encoders, and the languages to search in, with the passages of each."""

    asked: list[Question]
    queries: list[Query]
    searched: dict[str, int]


def questions(
    texts: Iterable[str | Question],
    lang: str | Sequence[str | None] | None,
    mode: str,
    langs: Names[str] | None,
    languages: Mapping[str, int],
    place: object,
) -> Questions:
    """`texts` as questions in `lang` (one for all or one for each; detected where None), for a search of `mode` among
    the passages in `langs` (None: all) of the index at `place`, which has `languages`. A `Question` stays as it is.

    Raises BadInput for an unknown mode, another number of languages than of questions, what is no language, one in
    which there is no passage, and a text that is empty or too long.
    """
    if isinstance(texts, str):
        raise BadInput("several questions are needed, this is one text: put it in a list.")
    texts = list(texts)
    if mode not in MODES:
        raise BadInput(f"mode '{mode}' is unknown.{suggestion(mode, MODES)}")
    question_langs = [lang] * len(texts) if lang is None or isinstance(lang, str) else list(lang)
    if len(question_langs) != len(texts):
        raise BadInput(f"{len(question_langs)} languages for {len(texts)} questions: give one for each.")
    for name in langs or ():
        if name not in languages:
            none = "" if find_code(name) else ", which is no code of a language"
            unknown = f" Of {languages['']:,} passages the language is unknown." if languages.get("") else ""
            raise BadInput(f"{place}: has no passage in language '{name}'{none}.{suggestion(name, languages)}{unknown}")
    question_list = [
        text if isinstance(text, Question) else Question(text, question_lang or None)
        for text, question_lang in zip(texts, question_langs, strict=True)
    ]
    for number, question in enumerate(question_list, 1):
        if not question.text.strip():
            raise BadInput(f"{f'question {number}' if len(texts) > 1 else 'the question'} is empty. Leave it out.")
    queries = [
        Query(f"question {number}", question.text, question.lang) for number, question in enumerate(question_list, 1)
    ]
    counts = {name: count for name, count in languages.items() if langs is None or name in langs}
    return Questions(question_list, queries, counts)


def question_vectors(encoder: Encoder, asked: Questions) -> Vectors:
    """The vectors of questions [questions, dim], as `encoder` read these objects before where it read all of them:
    indexes of one model are searched with one encoding."""
    cache = [one.encoded[1] for one in asked.asked if one.encoded is not None and one.encoded[0] is encoder]
    if len(cache) == len(asked.asked):
        return np.stack(cache)
    vectors = embed_queries(encoder, asked.queries)
    for question, vector in zip(asked.asked, vectors, strict=True):
        question.encoded = encoder, vector
    return vectors


def normal_question(text: str) -> str:
    """`text` in NFKC. Raises BadInput for what is no text, and for more than `LONGEST` characters, before or after."""
    if not isinstance(text, str):
        raise BadInput(f"a question is a text, this is a {type(text).__name__}.")
    if len(text) > LONGEST:
        raise BadInput(f"a question has at most {LONGEST:,} characters, this one has {len(text):,}. Shorten it.")
    normal = term_nfkc(text)
    if len(normal) > LONGEST:
        raise BadInput(
            f"a question has at most {LONGEST:,} characters after NFKC normalisation; this "
            f"one of {len(text):,} has {len(normal):,}. Shorten it."
        )
    return normal


class Budget:
    """The seconds of work that each question of a search may take. Work for several is shared among them evenly.

    `stage` measures; `clock` gives the time in seconds.
    """

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds, self._clock = seconds, clock
        self._spent: dict[Question, float] = {}

    @contextmanager
    def stage(self, work: str, *asked: Question) -> Iterator[None]:
        """Work for these questions. Raises OutOfTime after it where one of them has spent more than it may."""
        start = self._clock()
        yield
        for question in asked:
            self._spent[question] = self._spent.get(question, 0.0) + (self._clock() - start) / len(asked)
            if self._spent[question] > self.seconds:
                raise OutOfTime(
                    f"the question was given up during {work}: it took more than {self.seconds:g} seconds. "
                    "Ask a shorter question, or ask again when there is less to do."
                )
