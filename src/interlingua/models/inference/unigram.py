"""A Unigram tokenizer whose vocabulary is memory-mapped: ready at once, and small.

`tokenizers` takes most of a second and 290 MB to read a vocabulary of 250,000 pieces. Here the pieces are a trie in
arrays, one node for each prefix of a piece, and `best_cut` is the search of `tokenizers` (Kudo 2018) in the same
arithmetic: the ids are the same. Normalisation and words still come from `tokenizers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import Unigram

from interlingua.errors import Stale
from interlingua.lazy import by_numba
from interlingua.models.folder import PROBE
from interlingua.models.static.encoder import mapped
from interlingua.models.subwords import Subwords

PENALTY = 10.0
"""The difference between the log probabilities of the least probable piece and of an unknown character."""
WORDS, TRIE = "words.json", "trie.safetensors"
FEW = 2_000
"""Characters of a call up to which the search is not compiled: loading numba takes longer."""
TOGETHER = 256  # texts cut at a time
Ints = NDArray[np.int32]


class Trie(NamedTuple):
    """Node 0 is the root; the children of node n are `starts[n]` to `starts[n + 1]`, in order of `characters`.
    `pieces` is the id of the piece that ends at a node, or −1, and `scores` [ids] the log probabilities (float64)."""

    characters: Ints
    starts: Ints
    pieces: Ints
    scores: NDArray[np.float64]

    @classmethod
    def of(cls, vocabulary: Sequence[tuple[str, float]]) -> Trie:
        """Build a trie of pieces with their log probabilities; of equal pieces the last counts, as in `tokenizers`."""
        numbers = {piece: number for number, (piece, _) in enumerate(vocabulary) if piece}
        names = sorted(numbers)
        lengths = np.array([len(name) for name in names])
        order = np.array([numbers[name] for name in names], np.int32)
        longest = int(lengths.max(initial=0))
        letters = np.array(names, f"<U{max(1, longest)}").view(np.int32).reshape(len(names), -1)
        characters, pieces, counts = [np.zeros(1, np.int32)], [np.full(1, -1, np.int32)], []
        node = np.zeros(len(names), np.int64)  # of each piece, among the nodes of its first `depth` characters
        size = 1
        for depth in range(longest + 1):
            rows = np.flatnonzero(lengths > depth)
            parents, labels = node[rows], letters[rows, min(depth, longest - 1)]
            is_new = np.ones(len(rows), bool)
            is_new[1:] = (parents[1:] != parents[:-1]) | (labels[1:] != labels[:-1])
            counts.append(np.bincount(parents[is_new], minlength=size))
            node[rows] = np.cumsum(is_new) - 1
            size = int(is_new.sum())
            characters.append(labels[is_new])
            ends = np.full(size, -1, np.int32)
            terminals = rows[lengths[rows] == depth + 1]
            ends[node[terminals]] = order[terminals]
            pieces.append(ends)
        starts = np.concatenate([[1], 1 + np.cumsum(np.concatenate(counts))]).astype(np.int32)
        scores = np.array([score for _, score in vocabulary], np.float64)
        return cls(np.concatenate(characters), starts, np.concatenate(pieces), scores)


def best_cut(
    text: Ints,
    ends: NDArray[np.int64],
    characters: Ints,
    starts: Ints,
    pieces: Ints,
    scores: NDArray[np.float64],
    unknown: int,
    penalty: float,
    found: Ints,
    counts: NDArray[np.int64],
) -> None:
    """The most probable ids of each word: of `text`, code points of words laid end to end that end at `ends` [words],
    into `found`, as long as `text`, and how many of them each word has into `counts` [words]. Neighbouring unknown
    characters are one id. Plain Python that numba can compile."""
    begin, total = 0, 0
    longest = 0
    for word in range(len(ends)):
        longest = max(longest, ends[word] - begin)
        begin = ends[word]
    best = np.zeros(longest + 1, np.float64)
    backpointers, ids = np.zeros(longest + 1, np.int64), np.zeros(longest + 1, np.int64)
    begin = 0
    for word in range(len(ends)):
        size = ends[word] - begin
        best[: size + 1] = 0.0
        backpointers[: size + 1] = -1
        for at in range(size):
            single = False
            node, end = 0, at
            while end < size:
                character = text[begin + end]
                low, high = starts[node], starts[node + 1]
                stop = high
                while low < high:
                    middle = (low + high) // 2
                    if characters[middle] < character:
                        low = middle + 1
                    else:
                        high = middle
                if low >= stop or characters[low] != character:
                    break
                node = low
                end += 1
                piece = pieces[node]
                if piece >= 0:
                    score = scores[piece] + best[at]
                    if backpointers[end] < 0 or score > best[end]:
                        best[end], backpointers[end], ids[end] = score, at, piece
                    if end == at + 1:
                        single = True
            if not single:
                score = penalty + best[at]
                if backpointers[at + 1] < 0 or score > best[at + 1]:
                    best[at + 1], backpointers[at + 1], ids[at + 1] = score, at, unknown
        start, end, previous = total, size, -1
        while end > 0:
            piece = ids[end]
            if piece != unknown or previous != unknown:
                found[total] = piece
                total += 1
            previous = piece
            end = backpointers[end]
        counts[word] = total - start
        for step in range((total - start) // 2):
            left, right = start + step, total - 1 - step
            value = found[left]
            found[left] = found[right]
            found[right] = value
        begin = ends[word]


@cache
def _compiled() -> Callable[..., None] | None:
    """`best_cut` compiled; None where numba is missing or unusable."""
    try:
        return by_numba(best_cut, nogil=True)  # type: ignore[no-any-return]
    except ImportError:
        return None


class MappedSubwords(Subwords):
    """`Subwords` with the special tokens around a text, from a folder that `keep` wrote. What it does not know (pairs,
    texts that hold an added token, long calls without numba) is left to the tokenizer, which is read then, and used
    for all later texts: a caller may have changed it."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.special, self._pieces = True, None
        self._known, self._file = None, str(folder / "tokenizer.json")
        self._words = Tokenizer.from_file(str(folder / WORDS))
        tensors = mapped(folder / TRIE)
        self._trie = Trie(*(tensors[name] for name in Trie._fields))
        self._around: list[list[int]] = about["around"]
        self._overhead, self._closing = sum(map(len, self._around)), len(self._around[1])
        self._added: list[str] = about["added"]
        self._unknown: int = about["unknown"]
        self._penalty = float(self._trie.scores.min()) - PENALTY

    def _load(self) -> Tokenizer:
        if not Path(self._file).exists():
            raise Stale(f"{self._file}: the model was replaced after it was loaded. Load it again.")
        return Tokenizer.from_file(self._file)

    def _ids(self, inputs: Sequence[str | tuple[str, str]]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(inputs), TOGETHER):
            cuts = None if self._known is not None else self._cut_words(inputs[start : start + TOGETHER])
            ids += super()._ids(inputs[start : start + TOGETHER]) if cuts is None else cuts
        return ids

    def _cut_words(self, inputs: Sequence[str | tuple[str, str]]) -> list[list[int]] | None:
        """The ids of texts; None for what only the tokenizer knows."""
        texts = [text for text in inputs if isinstance(text, str)]
        search = best_cut if sum(map(len, texts)) <= FEW else _compiled()
        if search is None or len(texts) < len(inputs):
            return None
        words: list[str] = []
        text_ends = [0]  # words until the end of each text
        for text in texts:
            normal = self._words.normalizer.normalize_str(text) if self._words.normalizer is not None else text
            if any(token in text or token in normal for token in self._added):
                return None
            words += [word for word, _ in self._words.pre_tokenizer.pre_tokenize_str(normal)]
            text_ends.append(len(words))
        letters = np.frombuffer("".join(words).encode("utf-32-le"), np.int32)
        ends = np.cumsum(np.array([len(word) for word in words], np.int64))
        ids, counts = np.empty(len(letters), np.int32), np.zeros(len(words), np.int64)
        search(letters, ends, *self._trie, self._unknown, self._penalty, ids, counts)
        bounds = np.concatenate([[0], np.cumsum(counts)])[text_ends]
        flat = ids[: bounds[-1]].tolist()
        opening, closing = self._around
        return [[*opening, *flat[begin:end], *closing] for begin, end in pairwise(bounds.tolist())]


def keep(tokenizer: Tokenizer, folder: Path) -> dict[str, Any] | None:
    """Write what `MappedSubwords` reads beside the tokenizer.json in `folder`; what it is told, or None for
    another kind of tokenizer, which is left to `tokenizers`."""
    from safetensors.numpy import save_file

    description = json.loads(tokenizer.to_str())
    model = description["model"]
    plain = isinstance(tokenizer.model, Unigram) and tokenizer.pre_tokenizer is not None
    if not plain or model.get("byte_fallback") or model.get("unk_id") is None:
        return None
    parts = {key: description[key] for key in ("version", "normalizer", "pre_tokenizer")}
    words = {**parts, "added_tokens": [], "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]]}}
    (folder / WORDS).write_text(json.dumps(words), encoding="utf-8")
    save_file(Trie.of(model["vocab"])._asdict(), folder / TRIE)
    encoding = tokenizer.encode("a")
    places = [place for place, flag in enumerate(encoding.special_tokens_mask) if not flag]
    about = {
        "around": [encoding.ids[: places[0]], encoding.ids[places[-1] + 1 :]] if places else [[], []],
        "added": [token.content for token in tokenizer.get_added_tokens_decoder().values()],
        "unknown": model["unk_id"],
    }
    subwords = MappedSubwords(folder, about)
    return about if subwords(PROBE) == Subwords(tokenizer, special=True)(PROBE) and subwords._known is None else None
