"""Bitext mining by margin, one to one (Artetxe & Schwenk 2019).

Artetxe & Schwenk 2019, "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings", section 3.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from interlingua.alignment.neighbours import UnitVectors, check_pair, nearest_both
from interlingua.array_folder import mapped_array
from interlingua.data.readers.bitext import read_sentences
from interlingua.data.readers.rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.source import columns, head
from interlingua.errors import BadInput, suggestion
from interlingua.files import read_lines
from interlingua.models.protocols import Vectors
from interlingua.progress import track
from interlingua.text.languages import normalise_code

logger = logging.getLogger(__name__)

KINDS = ("ratio", "distance", "absolute")
MATRIX = 1 << 28  # margins held at once by margin_scores: 1 GiB of float32

Scores = NDArray[np.float32]


def margin(cosines: Scores, mean_x: Scores, mean_y: Scores, kind: str = "ratio") -> Scores:
    """Margins of `cosines`, whose shape `mean_x` and `mean_y` must fit (the mean cosine of each sentence to its k
    nearest on the other side).

    With b = (mean_x + mean_y) / 2: "ratio" cosine / b, "distance" cosine − b, "absolute" the cosine. Float32. Where b
    is 0 the ratio is infinite or NaN.
    """
    if kind not in KINDS:
        raise BadInput(f"margin '{kind}' is unknown.{suggestion(kind, KINDS)}")
    if kind == "absolute":
        return cosines
    mean = (mean_x + mean_y) / np.float32(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return cosines / mean if kind == "ratio" else cosines - mean


def margin_scores(x: Any, y: Any, k: int = 4, kind: str = "ratio") -> Scores:
    """Margins of all pairs of `x` [n, dim] and `y` [m, dim]: [n, m] float32.

    Each mean is over the min(k, other side) nearest. For collections that fit in memory; `mine_bitext` scores the
    nearest neighbours alone and takes millions. A ratio means nothing where the mean of the neighbours' cosines is not
    positive: it is then given as the formula has it.

    Raises BadInput naming side and row for NaN, infinity and zero vectors, for another kind, and for more than
    2²⁸ pairs.
    """
    sides = UnitVectors(x, "x"), UnitVectors(y, "y")
    check_pair(*sides, k)
    if len(sides[0]) * len(sides[1]) > MATRIX:
        raise BadInput(
            f"{len(sides[0]):,} × {len(sides[1]):,} margins do not fit in memory. Use mine_bitext, "
            "which scores each sentence with its nearest neighbours alone."
        )
    cosines = sides[0].unit(slice(None)) @ sides[1].unit(slice(None)).T
    return margin(cosines, _mean_of_best(cosines, k)[:, None], _mean_of_best(cosines.T, k)[None], kind)


def _mean_of_best(cosines: Scores, k: int) -> Scores:
    """The mean of the `k` largest of each row (of all, where there are fewer). Zeros where there are none."""
    k = min(k, cosines.shape[1])
    if not k:
        return np.zeros(len(cosines), dtype=np.float32)
    best = -np.partition(-cosines, k - 1, axis=1)[:, :k]
    mean: Scores = best.mean(axis=1)
    return mean


WINDOW = 16_384  # sentences encoded together


@dataclass
class CorpusSide:
    """Distinct sentences, in the order of their first occurrences. `ids` are those of the first occurrences, `repeated`
    says which sentences occur again. `rows` counts the given sentences, `empty` the blank ones, and `zero` those whose
    vector is zero (a static encoder that knows no part of them)."""

    name: str
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    repeated: list[bool] = field(default_factory=list)
    rows: int = 0
    empty: int = 0
    zero: int = 0

    @classmethod
    def of(cls, rows: Iterable[tuple[str, str]], name: str) -> CorpusSide:
        """From `(id, sentence)`. White space around a sentence does not count."""
        side = cls(name)
        places: dict[str, int] = {}
        for identifier, sentence in rows:
            side.rows += 1
            text = sentence.strip()
            if not text:
                side.empty += 1
            elif text in places:
                side.repeated[places[text]] = True
            else:
                places[text] = len(side.texts)
                side.texts.append(text)
                side.ids.append(identifier)
                side.repeated.append(False)
        return side

    @classmethod
    def read(cls, path: str | Path, lang: str | None = None) -> CorpusSide:
        """From a file of one sentence a line, of `id <tab> sentence`, or of jsonl, gzipped or not. A jsonl row has a
        `text` (a sentence) or is a document of `sentences`; with `lang`, rows that name another language are left to
        whoever reads that one. An id that is not given is the number of the line, from 1 (of a document's sentences
        `line.sentence`)."""
        side = cls.of(read_rows(Path(path), lang), str(path) if lang is None else f"{path} ({lang})")
        if not side.texts:
            raise BadInput(f"{side.name}: holds no sentence ({side.rows:,} lines, all blank).")
        return side

    def encode(
        self, encode: Callable[..., Vectors], path: Path, *, lang: str | None = None, half: bool = False
    ) -> NDArray[Any]:
        """Encode all sentences, a window at a time, into the .npy file at `path`: [sentences, dim] float32, or float16
        with `half`; returns it memory-mapped. `encode(texts)` gives vectors; it is told `lang` where that is given.
        A sentence whose vector is zero is left out of the side, and counted."""
        options = {} if lang is None else {"lang": lang}
        vectors: np.memmap[Any, Any] | None = None
        dtype = np.float16 if half else np.float32
        rows: list[int] = []
        for start in track(range(0, len(self.texts), WINDOW), f"encode {self.name} (of {WINDOW:,} sentences)"):
            block = np.asarray(encode(self.texts[start : start + WINDOW], **options), dtype=dtype)
            if vectors is None:
                vectors = mapped_array(path, dtype, (len(self.texts), block.shape[1]))
            nonzero = np.flatnonzero(block.any(axis=1))
            vectors[len(rows) : len(rows) + len(nonzero)] = block[nonzero]
            rows += (nonzero + start).tolist()
        if vectors is None or not rows:
            raise BadInput(f"{self.name}: the encoder knows no token of any of its sentences.")
        vectors.flush()
        self.zero = len(self.texts) - len(rows)
        self.texts, self.ids = [self.texts[i] for i in rows], [self.ids[i] for i in rows]
        self.repeated = [self.repeated[i] for i in rows]
        stored: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        return stored[: len(rows)]

    def said(self) -> str:
        """The counts of rows, for a message."""
        parts = [f"{self.rows:,} lines", f"{len(self.texts):,} distinct sentences"]
        repeats = self.rows - self.empty - self.zero - len(self.texts)
        parts += [
            f"{count:,} {label}"
            for count, label in ((repeats, "came again"), (self.empty, "blank"), (self.zero, "with a zero vector"))
            if count
        ]
        return f"{self.name}: {', '.join(parts)}"


def read_rows(path: Path, lang: str | None = None) -> Iterator[tuple[str, str]]:
    """`(id, sentence)` of each line, also of a blank one; the format is recognised by the beginning of the file."""
    start = head(path)
    if start.lstrip().startswith("{"):
        rows = ((number, (number, line)) for number, line in read_lines(path))
        for sentences in BadRows(advice="Mend the line or take it out.").parsed(
            path, rows, lambda row: _parsed(*row, lang)
        ):
            yield from sentences
    elif columns(start) == 2:
        yield from read_sentences(path)
    else:
        advice = "Give a file of one sentence a line, of id <tab> sentence, or of jsonl with text."
        for number, line in BadRows(advice=advice).placed(path, read_lines(path), _without_tab):
            yield str(number), line


def _parsed(number: int, line: str, lang: str | None) -> list[tuple[str, str]]:
    if not line.strip():
        return [(str(number), "")]
    row = json_object(line)
    if lang is not None and row.get("lang") and lang_of(row, None) != normalise_code(lang):
        return []
    name = string(row, "id", str(number))
    sentences = row.get("sentences")
    if sentences is None:
        return [(name, string(row, "text") if row.get("text") != "" else "")]
    if not isinstance(sentences, list) or not all(isinstance(sentence, str) for sentence in sentences):
        raise BadRow("'sentences' must be a list of texts")
    return [(f"{name}.{place}", sentence) for place, sentence in enumerate(sentences, 1)]


def _without_tab(line: str) -> str:
    if "\t" in line:
        raise BadRow("a tab")
    return line


RETRIEVALS = ("max", "intersection", "forward")
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bitext:
    """Mined pairs, the best first: `x` and `y` [pairs] int64 are rows of the two sides, `scores` [pairs] float32 their
    margins. Iterating gives `(x, y, score)`."""

    x: Rows
    y: Rows
    scores: Scores

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        return iter(zip(self.x.tolist(), self.y.tolist(), self.scores.tolist(), strict=True))

    def __getitem__(self, place: int) -> tuple[int, int, float]:
        return int(self.x[place]), int(self.y[place]), float(self.scores[place])


def mine_bitext(
    x: Any,
    y: Any,
    k: int = 4,
    threshold: float | None = None,
    kind: str = "ratio",
    retrieval: str = "max",
    *,
    device: str | torch.device | None = None,
) -> Bitext:
    """Pairs of rows of `x` [n, dim] and `y` [m, dim] whose vectors are likely translations, by falling margin.

    The sides may be of any and of unequal length, arrays, memory maps or tensors; no [n, m] matrix is made. Each
    sentence proposes the one of its `k` nearest with the largest `kind` of margin ("ratio", "distance", "absolute": see
    `margin`). `retrieval`: "max" takes the proposals of both sides, the best first, and leaves out those of which a
    sentence is taken already; "intersection" takes those that both sides make; "forward" takes those of `x`, so that a
    row of `y` may come several times. `threshold` drops lower margins; without it all are given. Equal margins are in
    order of the rows.

    Proposals whose neighbours' mean cosine is not positive have no ratio: they are left out, and a message says how
    many. Raises BadInput for an unknown option, and naming side and row for NaN, infinity and zero vectors.
    """
    for name, value, choices in (("margin", kind, KINDS), ("retrieval", retrieval, RETRIEVALS)):
        if value not in choices:
            raise BadInput(f"{name} '{value}' is unknown.{suggestion(value, choices)}")
    of_x, of_y = nearest_both(x, y, k, device=device)
    if not len(of_x.indices) or not len(of_y.indices):
        return Bitext(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    mean_x, mean_y = of_x.cosines.mean(axis=1), of_y.cosines.mean(axis=1)
    of_x_score = margin(of_x.cosines, mean_x[:, None], mean_y[of_x.indices], kind)
    of_y_score = margin(of_y.cosines, mean_x[of_y.indices], mean_y[:, None], kind)
    if kind == "ratio":
        of_x_score[mean_x[:, None] + mean_y[of_x.indices] <= 0] = -np.inf
        of_y_score[mean_x[of_y.indices] + mean_y[:, None] <= 0] = -np.inf
    rows_x, rows_y = np.arange(len(mean_x)), np.arange(len(mean_y))
    best_x, best_y = of_x_score.argmax(axis=1), of_y_score.argmax(axis=1)
    forward = rows_x, of_x.indices[rows_x, best_x], of_x_score[rows_x, best_x]
    backward = of_y.indices[rows_y, best_y], rows_y, of_y_score[rows_y, best_y]
    if retrieval == "max":
        proposals = tuple(np.concatenate(pair) for pair in zip(forward, backward, strict=True))
    else:
        mutual = backward[0][forward[1]] == rows_x if retrieval == "intersection" else slice(None)
        proposals = tuple(part[mutual] for part in forward)
    pairs_x, pairs_y, scores = proposals
    undefined = int(np.isneginf(scores).sum())
    if undefined:
        logger.warning(
            f"{undefined:,} of {len(scores):,} proposals left out: their neighbours' mean cosine is not positive, "
            "so the margin 'ratio' is undefined. Try the margin 'distance'."
        )
    indices = np.flatnonzero(scores > -np.inf if threshold is None else (scores >= threshold) & (scores > -np.inf))
    order = indices[np.lexsort((pairs_y[indices], pairs_x[indices], -scores[indices]))]
    if retrieval == "max":
        order = _one_to_one(pairs_x, pairs_y, order)
    return Bitext(pairs_x[order], pairs_y[order], scores[order])


def mine_sentences(
    x: CorpusSide,
    y: CorpusSide,
    encode: Callable[..., Vectors],
    *,
    half: bool = False,
    langs: tuple[str | None, str | None] = (None, None),
    **options: Any,
) -> Bitext:
    """`mine_bitext` of the sentences of `x` and `y`, with its `options`. Their vectors, `encode(texts)` or, where the
    side's lang is given, `encode(texts, lang=lang)`, are kept in temporary files, in float16 with `half`."""
    with tempfile.TemporaryDirectory(prefix="interlingua-mine-") as folder:
        return mine_bitext(
            x.encode(encode, Path(folder) / "x.npy", lang=langs[0], half=half),
            y.encode(encode, Path(folder) / "y.npy", lang=langs[1], half=half),
            **options,
        )


def _one_to_one(x: Rows, y: Rows, order: Rows) -> Rows:
    """The positions of `order` in `x` and `y` at which neither row has been taken by an earlier one."""
    taken_x, taken_y = bytearray(int(x.max()) + 1), bytearray(int(y.max()) + 1)
    positions = []
    for position, row_x, row_y in zip(order.tolist(), x[order].tolist(), y[order].tolist(), strict=True):
        if not taken_x[row_x] and not taken_y[row_y]:
            taken_x[row_x] = taken_y[row_y] = 1
            positions.append(position)
    return np.array(positions, dtype=np.int64)
