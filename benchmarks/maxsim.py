"""MaxSim of one query with many passages against sentence-transformers' scorer: same token vectors, same scores.

    OMP_NUM_THREADS=1 python benchmarks/maxsim.py --threads 1
    python benchmarks/maxsim.py --model runs/colbert/model --collection path/to/collection …

Prints the median time and processor time of each way, measured in turn so that other load meets all alike, and how many
times as long as ours in float32 each took. Stops if the scores are not the same. Then the same of subwords, as hybrid
search matches them: questions on the bundled encyclopedia with 64 of its passages. With a model, instead, nDCG@10 with
token vectors held in float32, float16 and int8, and their size.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from sentence_transformers.util.similarity import maxsim
from torch.nn.functional import normalize

from common import in_turn, options, ratio
from interlingua.data.collections import load_collection
from interlingua.evaluation.measures import evaluate
from interlingua.models.encode import TokenVectors
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.models.static.encoder import StaticEncoder
from interlingua.retrieval.late_interaction import static
from interlingua.retrieval.late_interaction.maxsim import kernels, maxsim_scores
from interlingua.retrieval.late_interaction.retriever import LateInteractionRetriever, passage_tokens
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.late_interaction.token_store import DTYPES, TokenStore
from machine import say_least


def speed(passages: int, tokens: int, query_tokens: int, dim: int, repeat: int) -> None:
    """Random unit vectors; lengths spread around `tokens`."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randn(passages, generator=generator) * tokens / 5 + tokens
    counts = lengths.round().long().clamp(min=1).tolist()
    vectors = TokenVectors(normalize(torch.randn(sum(counts), dim, generator=generator), dim=1), counts)
    query = normalize(torch.randn(query_tokens, dim, generator=generator), dim=1)
    ragged, (padded, mask) = list(vectors), vectors.padded()
    stores = {dtype: TokenStore.build([([str(i) for i in range(passages)], vectors)], dtype=dtype) for dtype in DTYPES}
    found: dict[str, np.ndarray] = {}

    def way(name: str, score: Callable[[], object]) -> Callable[[], None]:
        def keep() -> None:
            found[name] = np.asarray(score()).reshape(-1)

        keep()  # what is compiled at the first call is not measured
        return keep

    ours = "interlingua, float32"
    scores: dict[str, Callable[[], object]] = {
        f"interlingua, {dtype}": lambda store=store: maxsim_scores(query, store) for dtype, store in stores.items()
    }
    on_tensors = stores["float32"].to("cpu")
    scores |= {
        "interlingua, float32, torch": lambda: maxsim_scores(query, on_tensors),
        "sentence-transformers": lambda: maxsim(query, ragged),
        "sentence-transformers, padded": lambda: maxsim(query, padded, b_mask=mask),
    }
    print(
        f"1 query of {query_tokens} tokens x {passages:,} passages of {sum(counts) / passages:.0f} x {dim}, "
        f"{torch.get_num_threads()} thread(s), {'numba' if kernels() else 'no numba'}; median of {repeat}; scores "
        "compared with sentence-transformers'",
        flush=True,
    )
    rounds = in_turn({name: way(name, score) for name, score in scores.items()}, repeat)
    for name, times in rounds.items():
        off = float(np.abs(found[name] - found["sentence-transformers"]).max())
        print(
            f"{name:30} {median(t.elapsed for t in times) * 1e3:7.1f} ms, processor "
            f"{median(t.processor for t in times) * 1e3:7.1f} ms; to ours: {ratio(times, rounds[ours])}; "
            f"scores within {off:.1g}",
            flush=True,
        )
        if name == ours and kernels() is not None:
            size = sum(counts) * dim
            say_least(min(one.elapsed for one in times), bytes_read=4 * size, products=size * query_tokens)
        assert off < 1e-4 or "16" in name or "int8" in name, "the scores are not the same"


def subwords(repeat: int) -> None:
    """Questions and passages by the bundled model, with the kernel and by NumPy."""
    collection = load_collection("encyclopedia:en")
    words = StaticMaxSim.of(StaticEncoder.load("default"))
    assert words is not None
    passages = words.subwords(collection.passages[:64])
    questions = [words.question(query.text) for query in collection.queries]
    found: dict[str, list[list[float]]] = {}

    def way(name: str, worth: float) -> Callable[[], None]:
        def ask() -> None:
            static.KERNEL.worth = worth
            found[name] = [words.scores(question, passages).tolist() for question in questions]

        ask()
        return ask

    rounds = in_turn({name: way(name, worth) for name, worth in (("kernel", 0), ("NumPy", np.inf))}, repeat)
    each, sizes = 1e3 / len(questions), [len(ids) for ids in passages]
    print(
        f"{len(questions)} questions x {len(passages)} passages of {np.mean(sizes):.0f} subwords, a question: "
        + ", ".join(f"{name} {each * median(t.processor for t in times):.2f} ms" for name, times in rounds.items())
        + f"; NumPy / kernel: {ratio(rounds['NumPy'], rounds['kernel'])}",
        flush=True,
    )
    assert found["kernel"] == found["NumPy"], "the scores are not the same"


def quality(model: str, collections: list[str]) -> None:
    """nDCG@10 of `model` with token vectors in each number format; the passages are encoded once."""
    encoder = LateInteractionEncoder.load(model)
    for path in collections:
        collection = load_collection(path)
        chunks = list(passage_tokens(encoder, collection.passages))
        for dtype in DTYPES:
            store = TokenStore.build(chunks, dtype=dtype)
            run = LateInteractionRetriever(encoder, collection.passages, store=store).search(collection.queries, 10)
            value = evaluate(run, collection.qrels, ["nDCG@10"])["nDCG@10"]
            size = (store.tokens.nbytes + store.scales.nbytes) / len(store) / 1024
            print(f"{collection.name:30} {dtype:8} nDCG@10 {value:.4f}   {size:,.1f} KiB a passage", flush=True)


def main() -> None:
    """Measure."""
    parser = options(__doc__, passages=1_000, tokens=180, query_tokens=32, dim=128, repeat=9)
    parser.add_argument("--model", help="a late-interaction model")
    parser.add_argument("--collection", nargs="+", help="test collections for it")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if bool(given.model) != bool(given.collection):
        parser.error("--model and --collection belong together")
    if given.model:
        quality(given.model, given.collection)
    else:
        speed(given.passages, given.tokens, given.query_tokens, given.dim, given.repeat)
        subwords(given.repeat)


if __name__ == "__main__":
    main()
