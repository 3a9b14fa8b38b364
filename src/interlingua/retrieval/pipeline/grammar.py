"""Pipelines in one line: the tree, and how it is read and written.

bm25                       bm25(k1=1.2, b=0.8, analyzer=char4, queries=translated.tsv)
    path/to/model              path/to/model(maxp=180/90, queries=translated.tsv)        "a path (with signs)"
    run(file.trec)             the results in a TREC run file
    A % 100                    the first 100 results of A                                 binds tightest
    A + 0.5 * B                Mr.TyDi's interpolation: sums of normalised scores
    rrf(A, B, k=60)            reciprocal rank fusion
    A >> B                     what A found, in the order of B's scores                   binds loosest
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from interlingua.errors import BadInput, suggestion

NAMED = ("bm25", "rrf", "run")
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE]-?\d+)?", re.ASCII)
WORD = re.compile(r"[^\s()%*+,=>'\"]+")


@dataclass(frozen=True)
class Lexical:
    """BM25 over the passages; `queries` is a file of translated queries."""

    k1: float = 0.9
    b: float = 0.4
    analyzer: str | None = None
    queries: str | None = None

    def __str__(self) -> str:
        standard = vars(Lexical())
        options = [f"{name}={_written(str(value))}" for name, value in vars(self).items() if value != standard[name]]
        return f"bm25({', '.join(options)})" if options else "bm25"


@dataclass(frozen=True)
class Model:
    """An encoder by its path or name. `maxp`: (window, stride) in subwords, for long documents."""

    name: str
    maxp: tuple[int, int] | None = None
    queries: str | None = None

    def __str__(self) -> str:
        options = [f"maxp={self.maxp[0]}/{self.maxp[1]}"] if self.maxp else []
        options += [f"queries={_written(self.queries)}"] if self.queries is not None else []
        name = f'"{self.name}"' if self.name in NAMED or NUMBER.fullmatch(self.name) else _written(self.name)
        return f"{name}({', '.join(options)})" if options else name


@dataclass(frozen=True)
class RunFile:
    """The results in a TREC run file."""

    path: str

    def __str__(self) -> str:
        return f"run({_written(self.path)})"


@dataclass(frozen=True)
class Cut:
    """The first `depth` results of each query."""

    stage: Pipeline
    depth: int

    def __str__(self) -> str:
        return f"{_inside(self.stage, WeightedSum, Rerank)} % {self.depth}"


@dataclass(frozen=True)
class WeightedSum:
    """Σ weight · normalised scores of a stage: Mr.TyDi's interpolation, where the first of two weighs 1."""

    terms: tuple[tuple[float, Pipeline], ...]

    def __str__(self) -> str:
        return " + ".join(
            ("" if weight == 1 else f"{weight!r} * ".replace("e+", "e")) + _inside(stage, WeightedSum, Rerank)
            for weight, stage in self.terms
        )


@dataclass(frozen=True)
class ReciprocalRank:
    """Reciprocal rank fusion of several stages."""

    stages: tuple[Pipeline, ...]
    k: int = 60

    def __str__(self) -> str:
        return f"rrf({', '.join(map(str, self.stages))}{'' if self.k == 60 else f', k={self.k}'})"


@dataclass(frozen=True)
class Rerank:
    """The results of `first`, reranked by the scores of `second`."""

    first: Pipeline
    second: Pipeline

    def __str__(self) -> str:
        return f"{self.first} >> {_inside(self.second, Rerank)}"


Pipeline = Lexical | Model | RunFile | Cut | WeightedSum | ReciprocalRank | Rerank
Leaf = Lexical | Model | RunFile


def leaves(pipeline: Pipeline) -> list[Leaf]:
    """The stages that name what searches, from left to right."""
    if isinstance(pipeline, Lexical | Model | RunFile):
        return [pipeline]
    return [leaf for stage in parts(pipeline) for leaf in leaves(stage)]


def parts(pipeline: Pipeline) -> list[Pipeline]:
    """The stages that a pipeline is made of."""
    match pipeline:
        case Cut(stage, _):
            return [stage]
        case WeightedSum(terms):
            return [stage for _, stage in terms]
        case ReciprocalRank(stages, _):
            return [*stages]
        case Rerank(first, second):
            return [first, second]
    return []


def cuts(pipeline: Pipeline) -> bool:
    """Whether there is a cut anywhere in it."""
    return isinstance(pipeline, Cut) or any(map(cuts, parts(pipeline)))


def _inside(stage: Pipeline, *loose: type) -> str:
    return f"({stage})" if isinstance(stage, loose) else str(stage)


def _written(name: str) -> str:
    """A path or value as the notation takes it: bare, or in the quotes that it does not hold."""
    if WORD.fullmatch(name):
        return name
    if '"' in name and "'" in name:
        raise BadInput(f"{name}: holds both kinds of quotes, which the notation of pipelines cannot write.")
    return f"'{name}'" if '"' in name else f'"{name}"'


_TOKEN = re.compile(r"""\s*(?:(?P<sign>>>|[()%*+,=])|(?P<quoted>"[^"]*"|'[^']*')|(?P<word>[^\s()%*+,=>'"]+))""")
_LEXICAL, _MODEL = ("k1", "b", "analyzer", "queries"), ("maxp", "queries")


MOST_TOKENS = 400
"""Words and signs of a pipeline."""
MOST_BRACKETS = 50
"""Brackets that are open at once: each is read within the one before it."""


def parse_pipeline(text: str) -> Pipeline:
    """The pipeline that `text` writes; `str` of it reads as the same pipeline.

    A cut at the end of a second stage is one of the whole: `A >> B % 10` is `(A >> B) % 10`. Raises BadInput
    with the position of what cannot be read, and what was expected there.
    """
    return _Parser(text).whole()


class _Token(NamedTuple):
    kind: str
    text: str
    start: int

    def is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.text in signs


class _Parser:
    """Recursive descent: a method for each level of binding, from the loosest to the tightest."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text.rstrip(), 0
        self.tokens = self.read()
        if len(self.tokens) > MOST_TOKENS:
            raise self.error(f"a pipeline has at most {MOST_TOKENS} words and signs", self.tokens[MOST_TOKENS])
        depth = 0
        for token in self.tokens:
            depth += token.is_sign("(") - token.is_sign(")")
            if depth > MOST_BRACKETS:
                raise self.error(f"at most {MOST_BRACKETS} brackets may be open at once", token)

    def read(self) -> list[_Token]:
        tokens: list[_Token] = []
        place = 0
        while place < len(self.text):
            match = _TOKEN.match(self.text, place)
            if match is None:
                token = _Token("", "", len(self.text) - len(self.text[place:].lstrip()))
                raise self.error(
                    "'>>' was expected" if self.text[token.start] == ">" else "this quote is never closed", token
                )
            kind, place = str(match.lastgroup), match.end()
            tokens.append(_Token(kind, match[kind][1:-1] if kind == "quoted" else match[kind], match.start(kind)))
        return [*tokens, _Token("end", "", len(self.text))]

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    @property
    def after(self) -> _Token:
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def error(self, what: str, token: _Token | None = None) -> BadInput:
        """`what` is wrong, at `token` or else at the next one."""
        start = (token or self.next).start
        rest = self.text[start:]
        where = f"position {start + 1}, before '{rest[:40]}'" if rest else "the end"
        end = "" if what.endswith("?") else "."
        return BadInput(f"pipeline '{self.text.strip()}', at {where}: {what}{end}")

    def take(self, *signs: str) -> bool:
        found = self.next.is_sign(*signs)
        self.at += found
        return found

    def expect(self, sign: str, what: str) -> None:
        if not self.take(sign):
            raise self.error(f"{what} expected")

    def whole(self) -> Pipeline:
        tree = self.pipeline()
        if self.next.kind != "end":
            raise self.error("%, +, >> or the end was expected")
        return tree

    def pipeline(self) -> Pipeline:
        tree = self.sum()
        while self.take(">>"):
            start, second = self.next, self.sum()
            depths: list[int] = []
            while isinstance(second, Cut):
                depths.insert(0, second.depth)
                second = second.stage
            if cuts(second):
                raise self.error(
                    "what reranks scores all that it is given and cannot cut inside. Cut before it, "
                    "A % 100 >> B, or after it, (A >> B) % 10",
                    start,
                )
            tree = Rerank(tree, second)
            for depth in depths:
                tree = Cut(tree, depth)
        return tree

    def sum(self) -> Pipeline:
        start = self.next
        terms = [self.term()]
        while self.take("+"):
            terms.append(self.term())
        if len(terms) > 1:
            return WeightedSum(tuple((1.0 if weight is None else weight, stage) for weight, stage in terms))
        weight, stage = terms[0]
        if weight is not None:
            raise self.error("a weight is for a sum, A + 0.5 * B", start)
        return stage

    def term(self) -> tuple[float | None, Pipeline]:
        weight = None
        if self.next.kind in ("word", "quoted") and self.after.is_sign("*"):
            if self.next.kind == "quoted" or not NUMBER.fullmatch(self.next.text):
                raise self.error(
                    f"a number of 0 or more was expected before *, '{self.next.text}' is none. "
                    "The weight comes first, A + 0.5 * B"
                )
            weight = float(self.next.text)
            self.at += 2
        return weight, self.cut()

    def cut(self) -> Pipeline:
        tree = self.stage()
        while self.take("%"):
            tree = Cut(tree, self.whole_number("the number of results to keep, 1 or more, was expected after %", 1))
        return tree

    def stage(self) -> Pipeline:
        token = self.next
        if self.take("("):
            tree = self.pipeline()
            self.expect(")", "'%', '+', '>>' or ')' was")
            return tree
        if token.kind not in ("word", "quoted") or not token.text.strip():
            raise self.error("bm25, the path of a model, run(file), rrf(A, B) or '(' was expected")
        if token.kind == "word" and NUMBER.fullmatch(token.text):
            raise self.error(
                f"a stage was expected; a number is a weight, {token.text} * A, or the path of a model in quotes"
            )
        self.at += 1
        special = {"bm25": self.lexical, "rrf": self.rrf, "run": self.run_file}
        return special[token.text]() if token.kind == "word" and token.text in NAMED else self.model(token)

    def rrf(self) -> Pipeline:
        start = self.tokens[self.at - 1]
        self.expect("(", "rrf(A, B) was")
        stages, k = [self.pipeline()], 60
        while self.take(","):
            if self.next.text == "k" and self.after.is_sign("="):
                self.at += 2
                k = self.whole_number("a whole number, k=60, was expected", 0)
                break
            stages.append(self.pipeline())
        self.expect(")", "',' or ')' was")
        if len(stages) < 2:
            raise self.error("rrf needs at least two stages", start)
        return ReciprocalRank(tuple(stages), k)

    def run_file(self) -> Pipeline:
        self.expect("(", "run(file) was")
        path = self.value("the path of a TREC run file")
        self.expect(")", "')' was")
        return RunFile(path.text)

    def lexical(self) -> Pipeline:
        options = self.options("bm25", _LEXICAL)
        for name in {"k1", "b"} & options.keys():
            if not NUMBER.fullmatch(options[name].text):
                raise self.error(f"{name} must be a number of 0 or more", options[name])
        values = {
            name: token.text if name in ("analyzer", "queries") else float(token.text)
            for name, token in options.items()
        }
        return Lexical(**values)  # type: ignore[arg-type]

    def model(self, name: _Token) -> Pipeline:
        options = self.options(name.text, _MODEL)
        queries = options["queries"].text if "queries" in options else None
        if "maxp" not in options:
            return Model(name.text, None, queries)
        match = re.fullmatch(r"(\d+)/(\d+)", options["maxp"].text, re.ASCII)
        if match is None or not 0 < int(match[2]) <= int(match[1]):
            raise self.error(
                "maxp is window/stride in tokens, the stride no longer than the window: maxp=180/90", options["maxp"]
            )
        return Model(name.text, (int(match[1]), int(match[2])), queries)

    def options(self, of: str, names: tuple[str, ...]) -> dict[str, _Token]:
        """`(name=value, …)`, if it is there."""
        options: dict[str, _Token] = {}
        if not self.take("("):
            return options
        while True:
            name = self.next
            if name.kind != "word" or name.text not in names:
                # what is not an option may well be a stage, and the name before it a misspelt rrf or run
                hint = "" if of in NAMED else suggestion(of, NAMED)
                raise self.error(
                    f"an option of {of} was expected: {', '.join(f'{option}=…' for option in names)}"
                    + (f".{hint}" if "?" in hint else "")
                )
            if name.text in options:
                raise self.error(f"{name.text} is given twice")
            self.at += 1
            self.expect("=", f"'=' and the value of {name.text} were")
            options[name.text] = self.value(f"the value of {name.text}")
            if self.take(")"):
                return options
            self.expect(",", "',' or ')' was")

    def value(self, what: str) -> _Token:
        token = self.next
        if token.kind not in ("word", "quoted") or not token.text.strip():
            raise self.error(f"{what} was expected")
        self.at += 1
        return token

    def whole_number(self, what: str, minimum: int) -> int:
        token = self.next
        if token.kind != "word" or not re.fullmatch(r"\d{1,9}", token.text, re.ASCII) or int(token.text) < minimum:
            raise self.error(what)
        self.at += 1
        return int(token.text)
