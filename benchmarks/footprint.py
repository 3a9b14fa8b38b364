"""The cost of a passage: bytes of text, vector and postings, processor time to encode it, loss by smaller vectors.

    python benchmarks/footprint.py MODEL passages.jsonl [more …] [--questions questions.txt] [--limit 20000]

MODEL makes the vectors whose compression is measured: the share of the ten nearest by float32 that each form finds
again, alone and when its first 100 are scored again with float32. The rate is MODEL's, and that of a random encoder of
6 layers of 384 on the same texts. docs/scale.md multiplies these numbers up.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np

from common import encyclopedia_encoder, options
from interlingua.data.passages import read_passages
from interlingua.data.records import Passage
from interlingua.files import read_lines
from interlingua.index.export import write_parquet
from interlingua.index.metadata import terms_of
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.retriever import Vectors, embed_passages


def read(files: list[str], limit: int) -> list[Passage]:
    """The first passages of all files together, each text once."""
    texts: dict[str, Passage] = {}
    for number, file in enumerate(files):
        lang = Path(file).parent.name.rpartition("_")[2]  # a collection's folder ends in its language
        for one in islice(read_passages(file, lang if len(lang) == 2 else ""), limit):
            texts.setdefault(one.text, Passage(f"{number}:{one.id}", one.text, one.title, one.lang))
    return list(texts.values())[:limit]


def rate(encoder: DualEncoder, passages: list[Passage]) -> tuple[float, float]:
    """Passages, and tokens, for a second of one processor."""
    tokens = sum(map(len, encoder.passage.tokenize([(one.title, one.text) for one in passages], "passage")))
    embed_passages(encoder, passages[:64])
    start = time.process_time()
    embed_passages(encoder, passages)
    seconds = time.process_time() - start
    return len(passages) / seconds, tokens / seconds


def recall(queries: Vectors, vectors: Vectors) -> dict[str, tuple[float, float]]:
    """Recall@10 of each form of the vectors against float32: alone, and after scoring the first 100 again."""
    import faiss

    near = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :10]
    found = {}
    dim = vectors.shape[1]  # SQ8 is a byte a number, the others are a quarter, an eighth and a sixteenth of one
    for name in ("SQ8", *(f"PQ{dim // part}x8" for part in (4, 8, 16))):
        index = faiss.index_factory(dim, name, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        _, rows = index.search(queries, 100)
        again = [
            row[np.argsort(-(vectors[row] @ query), kind="stable")[:10]]
            for row, query in zip(rows, queries, strict=True)
        ]
        found[name] = tuple(
            float(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(near, those, strict=True)]))
            for those in (rows[:, :10], again)
        )
    return found  # type: ignore[return-value]


def main() -> None:
    parser = options(__doc__, limit=20_000, timed=1_000)
    parser.add_argument("model")
    parser.add_argument("passages", nargs="+")
    parser.add_argument("--questions", help="a text file, one a line; else the first sentences of 500 passages")
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(arguments.threads)
    passages = read(arguments.passages, arguments.limit)
    model = DualEncoder.load(arguments.model)
    size = len(passages)
    text = sum(len(f"{one.title}{one.text}".encode()) for one in passages)
    vectors = embed_passages(model, passages)
    with tempfile.TemporaryDirectory() as folder:
        write_parquet(f"{folder}/v.parquet", [(passages, vectors)])
        write_parquet(f"{folder}/t.parquet", [(passages, vectors[:, :1] * 0)])
        with_vectors, alone = (Path(f"{folder}/{name}.parquet").stat().st_size for name in "vt")
    terms = [Counter(terms_of(one)) for one in passages]
    print(
        f"{size:,} passages: {text / size:.0f} bytes of text each, {alone / size:.0f} in Parquet (zstd), "
        f"{with_vectors / size:.0f} with vectors of {vectors.shape[1]} (float32)"
    )
    print(
        f"{sum(map(len, terms)) / size:.0f} different terms a passage, {sum(c.total() for c in terms) / size:.0f} in "
        f"all; {len(set().union(*terms)):,} different ones in all passages"
    )
    timed = passages[: arguments.timed]
    for name, encoder in ((arguments.model, model), ("random, 6 × 384", DualEncoder(encyclopedia_encoder(6, 384)))):
        found = rate(encoder, timed)
        print(f"encode, {name}: {found[0]:,.0f} passages and {found[1]:,.0f} tokens a second of one processor")
    lines = (
        [line for _, line in read_lines(arguments.questions)]
        if arguments.questions
        else [one.text.split(".")[0] for one in passages[:: max(1, size // 500)]]
    )
    queries = model.encode_query(lines[:500])
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    for name, (plain, again) in recall(queries, vectors).items():
        print(f"{name}: recall@10 {plain:.3f}, {again:.3f} when the first 100 are scored again")


if __name__ == "__main__":
    main()
