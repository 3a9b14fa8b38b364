"""The quality and the cost of each model: scores on collections of many languages, size, speed, peak memory.

    python benchmarks/models.py default multilingual-e5-small multilingual-e5-small:int8 --data DATA/dev

A model may have a precision behind a colon; without one a transformer is loaded as for training. Each is measured in
a process of its own: peak memory of that process after
loading the model (from the cache, where it has been converted before) and encoding passages, passages a second of
processor time, then RR@100 on XQuAD (questions and passages of one language, questions of the others on English
passages, English questions on theirs) and the mean accuracy of both directions on 14 languages of Tatoeba. With
--questions 0 the quality is left out.
"""

from __future__ import annotations

import gzip
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tabulate import tabulate

from common import options

LANGS = "ar de el en es hi ro ru th tr vi zh".split()
TATOEBA = "ara cmn deu ell fin hin ind jpn kor rus swh tha tur vie".split()
COLUMNS = ["same language", "to English", "from English", "Tatoeba-14", "passages/s", "peak MB", "disk MB"]


def quality(model: Any, data: Path, questions: int) -> list[float]:
    """The first four columns."""
    from interlingua.data.collections import load_collection
    from interlingua.evaluation.languages import language_matrix
    from interlingua.evaluation.tatoeba import tatoeba_file

    held = {}
    for lang in LANGS:
        whole = load_collection(data / f"xquad_{lang}")
        asked = whole.queries[:questions]
        held[lang] = replace(whole, queries=asked, qrels={query.id: whole.qrels[query.id] for query in asked})
    scores = language_matrix(model, held, "RR@100").values
    english, others = LANGS.index("en"), [n for n, lang in enumerate(LANGS) if lang != "en"]
    return [
        scores.diagonal().mean(),
        scores[others, english].mean(),
        scores[english, others].mean(),
        fmean(tatoeba_file(model, data / f"tatoeba/{lang}-eng.tsv.gz").mean for lang in TATOEBA),
    ]


def measure(name: str, data: Path, questions: int, passages: int, threads: int) -> dict[str, float]:
    """All columns of one model."""
    from interlingua.index.metadata import load_to_encode
    from interlingua.models.folder import model_folder
    from interlingua.models.static.encoder import StaticEncoder

    folder, colon, precision = name.rpartition(":")
    folder = folder if colon else name
    texts = []  # read without the package, whose collections would count as the model's memory
    for lang in LANGS:
        with gzip.open(data / f"xquad_{lang}/passages.jsonl.gz", "rt", encoding="utf-8") as stream:
            texts += [json.loads(line)["text"] for line in islice(stream, 20)]
    model: Any = load_to_encode(folder, precision=precision) if colon else StaticEncoder.load(folder)
    if model is None:
        from interlingua.models.late_interaction import load_any

        model = load_any(folder, device="cpu")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    start = 0.0
    for _ in range(2):  # kernels are compiled in the first round
        start = time.process_time()
        model.encode_document(texts[:passages])
    speed = len(texts[:passages]) / (time.process_time() - start) * threads
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    encoder = model if hasattr(model, "backbone") else model.query
    weights = getattr(getattr(encoder, "backbone", None), "weights_file", "")
    files = [path for path in model_folder(folder).rglob("*") if path.is_file()]
    if weights:
        files = [path for path in files if path.suffix != ".safetensors"] + [Path(weights)]
    disk = sum(path.stat().st_size for path in files) / 1e6
    worth = quality(model, data, questions) if questions else [float("nan")] * 4
    return dict(zip(COLUMNS, [*worth, speed, peak, disk], strict=True))


def main() -> None:
    """Measure each in its own process and print."""
    parser = options(__doc__, questions=100, passages=240)
    parser.add_argument("models", nargs="+", metavar="MODEL[:PRECISION]")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="the first model in this process, as JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.models[0], given.data, given.questions, given.passages, given.threads)))
        return
    rows = []
    for name in given.models:
        command = [sys.executable, __file__, name, "--one", "--data", str(given.data)]
        command += [f"--{key}={getattr(given, key)}" for key in ("questions", "passages", "threads")]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(out.splitlines()[-1])
        rows.append([name, *(f"{found[column]:.3f}" for column in COLUMNS[:4])])
        rows[-1] += [f"{found[column]:,.0f}" for column in COLUMNS[4:]]
        print(rows[-1], flush=True)
    print(tabulate(rows, headers=["", *COLUMNS], disable_numparse=True))


if __name__ == "__main__":
    main()
