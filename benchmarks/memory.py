"""Peak memory of one retrieval step: a batch of 64 with its graph kept, and 4,096 through the gradient cache.

    python benchmarks/memory.py
    python benchmarks/memory.py --small 32 --large 2048 --cache 64      # the two batches, texts per chunk

Each step runs in a process of its own and reports its largest resident memory (getrusage): with model and texts loaded,
and after the step. The model is random and small, its vocabulary learned from the bundled encyclopedia; questions are
its questions, passages two to four of its sentences, in eleven languages. Also printed: the scores of all questions
with all passages, which no gradient cache cuts.
"""

# A new process starts with its parent's peak (Linux), so nothing heavy may be imported here, in the parent.
from __future__ import annotations

import random
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from common import encyclopedia_encoder, options

MB = 1e6


def peak() -> float:
    """The largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / MB


def save_model(folder: str, layers: int, hidden: int) -> None:
    """Save a random encoder with a vocabulary of the encyclopedia."""
    encyclopedia_encoder(layers, hidden).save(folder)


def measure(folder: str, size: int, cache: int | None, threads: int) -> tuple[float, float, float, int]:
    """MB before, MB after, seconds, and tokens of one step with `size` questions and as many passages."""
    import torch

    from interlingua.data import encyclopedia
    from interlingua.data.records import Passage, QuestionPassage
    from interlingua.models.dual import DualEncoder
    from interlingua.objectives import Retrieval
    from interlingua.training.encoding import Chunking
    from interlingua.training.processes import Processes
    from interlingua.training.step import backward
    from interlingua.training.weighted import WeightedObjective

    torch.set_num_threads(threads)
    choose = random.Random(0)
    sentences = [sentence.text for sentence in encyclopedia.sentences()]
    asked = [question.question for lang in encyclopedia.languages() for question in encyclopedia.questions(None, lang)]
    questions = []
    for number in range(size):
        passage = Passage(str(number), " ".join(choose.choices(sentences, k=choose.randint(2, 4))))
        questions.append(QuestionPassage(f"{choose.choice(asked)} {number}", (passage,)))
    model = DualEncoder.load(folder, device="cpu", for_training=True)
    tokens = sum(len(ids) for q in questions for ids in model.query.tokenize([q.question, q.positives[0].text]))
    before, start = peak(), time.perf_counter()
    backward(
        [WeightedObjective("retrieval", Retrieval(temperature=0.05))],
        model,
        {"questions": questions},
        0,
        Chunking(cache=cache),
        Processes(0, 1, torch.device("cpu")),
    )
    return before, peak(), time.perf_counter() - start, tokens


def main() -> None:
    given = options(__doc__, small=64, large=4_096, cache=32, layers=2, hidden=128).parse_args()
    print(f"{given.layers} layers x {given.hidden}, tied, float32, {given.threads} threads", flush=True)
    found = []
    with (
        tempfile.TemporaryDirectory() as place,
        ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool,
    ):
        folder = str(Path(place) / "model")
        pool.submit(save_model, folder, given.layers, given.hidden).result()
        for size, cache in ((given.small, None), (given.large, given.cache)):
            before, after, seconds, tokens = pool.submit(measure, folder, size, cache, given.threads).result()
            found.append((after, after - before))
            print(
                f"batch {size:6,}, {f'cache of {cache}' if cache else 'no cache':12} {after:7,.0f} MB in all, "
                f"{after - before:6,.0f} MB above the {before:,.0f} MB before the step; {tokens:9,} tokens, "
                f"{seconds:.1f} s; scores {4 * size * size / MB:.1f} MB",
                flush=True,
            )
    (small, small_step), (large, large_step) = found
    print(f"ratio: {large / small:.2f} in all, {large_step / small_step:.2f} above the memory before the step")


if __name__ == "__main__":
    main()
