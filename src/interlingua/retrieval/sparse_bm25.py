"""BM25 as an inner product of two sparse vectors, for engines that store sparse vectors and know nothing of BM25.

    Σ over terms t of both   [count of t in the question · idf(t)]  ·  [tf / (tf + k1 · (1 − b + b · length / mean))]
                              the question's vector                     the passage's vector

The inverse document frequencies are on the side of the question, where they are as fresh as the counts. The passage's
side holds the mean length at the time it was written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import log

from interlingua.retrieval.term_table import digest

LARGEST = 2**32 - 2
"""The highest dimension of a sparse vector in Milvus."""
NONE = 0
"""The dimension of passages without a term, which no term has: Milvus takes no empty vector."""


def term_number(term: str) -> int:
    """The dimension of a term, from 1 to `LARGEST`, the same everywhere: a hash, so that many writers need no common
    list. Of a million terms about 230 share theirs with another one (n / 2³² of n)."""
    return 1 + int.from_bytes(digest(term), "big") % LARGEST


def document_vector(terms: Sequence[str], mean_length: float, k1: float, b: float) -> dict[int, float]:
    """The passage's side for its `terms`, repetitions included; `{NONE: 1}` where it has none."""
    norm = k1 * (1 - b + b * len(terms) / mean_length) if mean_length else k1
    counts = Counter(map(term_number, terms))
    return {number: count / (count + norm) for number, count in counts.items()} or {NONE: 1.0}


def query_vector(terms: Iterable[str], found_in: Mapping[int, int], passages: int) -> dict[int, float]:
    """The question's side: `found_in` says how many of the `passages` hold each term's dimension. Terms that none holds
    are left out, so it may be empty."""
    counts = Counter(map(term_number, terms))
    return {number: count * inverse_frequency(found_in[number], passages) for number, count in counts.items()
            if found_in.get(number, 0) > 0}


def most(terms: Iterable[str], found_in: Mapping[int, int], passages: int) -> float:
    """What a passage could score at the most, all `terms` counted, also those that no passage has."""
    return sum(inverse_frequency(found_in.get(term_number(term), 0), passages) for term in terms)


def inverse_frequency(found_in: int, passages: int) -> float:
    """Lucene's idf, ln(1 + (N − df + ½) / (df + ½)); never below 0, also while the two counts are being changed."""
    return log(1 + max(0.0, passages - found_in + 0.5) / (found_in + 0.5))
