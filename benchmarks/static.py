"""Encoding with a static model against sentence-transformers: same folder, same texts, same vectors.

    python benchmarks/static.py --collections DATA/dev/* --threads 2

Encodes all passages (title and text) of the collections. "first" makes what finds the subwords, too; "again" has it, as
after the first thousands of passages of a large collection. Prints passages a second of the fastest run, and how many
times as long as "again" each took: the median of the rounds. Runs are interleaved.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from tabulate import tabulate

from common import in_turn, options, ratio
from interlingua.data.collections import load_collection
from interlingua.models.encoder import Encoder
from interlingua.models.folder import model_folder


def main() -> None:
    """Measure and print."""
    parser = options(__doc__, repeat=5)
    parser.add_argument("--model", default="default", help="a folder with a static model (the bundled model)")
    parser.add_argument("--collections", nargs="+", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    texts = [
        f"{passage.title} {passage.text}".strip()
        for path in arguments.collections
        if (Path(path) / "passages.jsonl.gz").is_file()
        for passage in load_collection(path).passages
    ]
    folder = model_folder(arguments.model)
    theirs, ours = SentenceTransformer(str(folder), device="cpu"), Encoder.load(folder, device="cpu")
    ours.encode(texts)
    fresh: list[Encoder] = []

    def first() -> None:
        fresh.pop().encode(texts)

    ways = {
        "sentence-transformers": lambda: theirs.encode(texts, batch_size=1024),
        "interlingua, first": first,
        "interlingua, again": lambda: ours.encode(texts),
    }
    fresh.append(Encoder.load(folder, device="cpu"))
    times = in_turn(ways, arguments.repeat, lambda name: fresh or fresh.append(Encoder.load(folder, device="cpu")))
    difference = float(np.abs(theirs.encode(texts) - ours.encode(texts)).max())
    print(f"{len(texts):,} passages, {arguments.threads} threads; largest difference of a number {difference:.1e}")
    print(
        tabulate(
            [
                (
                    name,
                    f"{len(texts) / min(one.elapsed for one in found):,.0f}",
                    ratio(found, times["interlingua, again"]),
                )
                for name, found in times.items()
            ],
            headers=["", "passages/s", "time / interlingua, again"],
        )
    )


if __name__ == "__main__":
    main()
