"""Encoding speed against sentence-transformers at its best batch size: same random model, same texts, same vectors.

    python benchmarks/encode.py --texts 4000
    python benchmarks/encode.py --file texts.txt --threads 2

Prints seconds, real tokens a second, and computed tokens per real token (1.00 = no padding) of each, then the ratio.
Runs are interleaved and the fastest of each counts, so that other load on the machine hits both alike.
"""

from __future__ import annotations

import argparse
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from transformers import XLMRobertaConfig, XLMRobertaModel

from interlingua.models.encoder import Encoder
from interlingua.models.layout import Parts
from interlingua.models.settings import Settings
from interlingua.models.tokenizer import unigram_tokenizer
from interlingua.models.transformer import Transformer


def passages(count: int, seed: int = 0) -> list[str]:
    """Random words in texts of lognormal length: median 60 words, a tenth over 160, as Wikipedia passages have."""
    choose = random.Random(seed)
    words = ["".join(choose.choices("abcdefghijklmnoprstuvwyz", k=choose.randint(2, 9))) for _ in range(4_000)]
    return [" ".join(choose.choices(words, k=max(3, int(choose.lognormvariate(math.log(60), 0.75)))))
            for _ in range(count)]


def build(texts: list[str], layers: int, hidden: int, max_length: int) -> Encoder:
    """A random XLM-R-shaped encoder with mean pooling and a vocabulary of the texts' own words."""
    counts = Counter(word for text in texts for word in text.split()).most_common(30_000)
    pieces = {"▁" + word: float(count) for word, count in counts}
    pieces |= {character: 1.0 for text in texts for character in text if character not in pieces}
    total = sum(pieces.values())
    tokenizer = unigram_tokenizer([(piece, math.log(n / total)) for piece, n in pieces.items() if piece != " "],
                                  max_length=max_length)
    torch.manual_seed(0)
    model = XLMRobertaModel(XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 32,
        intermediate_size=4 * hidden, max_position_embeddings=max_length + 2, type_vocab_size=1))
    return Encoder.of(Parts(Transformer(model, tokenizer), "mean", normalize=True, settings=Settings(
        max_length=max_length)), device="cpu")


def counting(model: Any, computed: Counter[str]) -> None:
    """Count the tokens that go through `model`, pad tokens too."""
    def count(_: Any, inputs: tuple[Any, ...]) -> None:
        computed["tokens"] += inputs[0].numel()

    model.get_input_embeddings().register_forward_pre_hook(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=4_000, help="how many")
    parser.add_argument("--file", type=Path, help="one text a line, instead of random words")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--max-length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[4, 8, 16, 32, 64])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    texts = passages(options.texts)
    if options.file:
        texts = options.file.read_text(encoding="utf-8").splitlines()[: options.texts]
    ours = build(texts, options.layers, options.hidden, options.max_length)
    with tempfile.TemporaryDirectory() as folder:
        ours.save(Path(folder) / "model")
        theirs = SentenceTransformer(str(Path(folder) / "model"), device="cpu")
    real = sum(len(ids) for ids in ours.tokenize(texts))
    print(f"{len(texts):,} texts, {real:,} tokens ({real / len(texts):.0f} a text), {options.layers} layers x "
          f"{options.hidden}, float32, {options.threads} threads, torch {torch.__version__}", flush=True)
    runs: dict[str, Callable[[], Any]] = {"interlingua": lambda: ours.encode(texts)}
    for size in options.batch_sizes:
        runs[f"sentence-transformers, batch {size}"] = lambda size=size: theirs.encode(texts, batch_size=size)
    computed: Counter[str] = Counter()
    counting(ours.backbone.model, computed)
    counting(theirs[0].auto_model, computed)
    seconds = dict.fromkeys(runs, math.inf)
    padding, vectors = {}, {}
    for _ in range(options.repeat):
        for name, run in runs.items():
            computed.clear()
            start = time.perf_counter()
            vectors[name] = run()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
            padding[name] = computed["tokens"] / real
    for name, taken in seconds.items():
        print(f"{name:38} {taken:7.2f} s {real / taken:9,.0f} tokens/s {padding[name]:6.2f} computed/real")
    best = min((name for name in runs if name != "interlingua"), key=seconds.__getitem__)
    cosine = float(np.min(np.sum(vectors["interlingua"] * vectors[best], axis=1)))
    print(f"ratio to {best}: {seconds[best] / seconds['interlingua']:.2f}; smallest cosine of the vectors {cosine:.7f}")


if __name__ == "__main__":
    main()
