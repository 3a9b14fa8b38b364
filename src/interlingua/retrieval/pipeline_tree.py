"""What a pipeline is made of: a small tree, written by `str` as `interlingua.retrieval.pipeline_notation` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from interlingua.errors import InterlinguaError

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
        given = [f"{name}={_written(str(value))}" for name, value in vars(self).items() if value != standard[name]]
        return f"bm25({', '.join(given)})" if given else "bm25"


@dataclass(frozen=True)
class Model:
    """An encoder by its path or name. `maxp`: (window, stride) in subwords, for long documents."""

    name: str
    maxp: tuple[int, int] | None = None
    queries: str | None = None

    def __str__(self) -> str:
        given = [f"maxp={self.maxp[0]}/{self.maxp[1]}"] if self.maxp else []
        given += [f"queries={_written(self.queries)}"] if self.queries is not None else []
        name = f'"{self.name}"' if self.name in NAMED or NUMBER.fullmatch(self.name) else _written(self.name)
        return f"{name}({', '.join(given)})" if given else name


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
        return " + ".join(("" if weight == 1 else f"{weight!r} * ".replace("e+", "e"))
                          + _inside(stage, WeightedSum, Rerank) for weight, stage in self.terms)


@dataclass(frozen=True)
class ReciprocalRank:
    """Reciprocal rank fusion of several stages."""

    stages: tuple[Pipeline, ...]
    k: int = 60

    def __str__(self) -> str:
        return f"rrf({', '.join(map(str, self.stages))}{'' if self.k == 60 else f', k={self.k}'})"


@dataclass(frozen=True)
class Rerank:
    """What `first` found, in the order of the scores of `second`."""

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
        raise InterlinguaError(f"{name}: holds both kinds of quotes, which the notation of pipelines cannot write.")
    return f"'{name}'" if '"' in name else f'"{name}"'
