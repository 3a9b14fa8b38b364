"""The quality and the cost of each model: scores on collections of many languages, size, speed, peak memory.

    python benchmarks/models.py default multilingual-e5-small multilingual-e5-small:int8 --data DATA/dev
    python benchmarks/models.py default multilingual-e5-small:int8 --data DATA/dev --languages     # and each language

A model may have a precision behind a colon; without one a transformer is loaded as for training. Each is measured in
a process of its own: peak memory of that process after
loading the model (from the cache, where it has been converted before) and encoding passages, passages a second of
processor time, then RR@100 on XQuAD (questions and passages of one language, questions of the others on English
passages, English questions on theirs) and the mean accuracy of both directions on 14 languages of Tatoeba. With
--questions 0 the quality is left out. With --languages a second table has each language, collections of questions that
native speakers asked, and the means over the languages that choices are made on and over those that they are not
(common.py).
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from tabulate import tabulate

from common import HELD, is_held, options

LANGS = "ar de el en es hi ro ru th tr vi zh".split()
TATOEBA = "ara cmn deu ell fin hin ind jpn kor rus swh tha tur vie".split()
NATIVE = ["arcd_ar", "iapp_valid_th", "tydiqa_train_ko", "tydiqa_train_sw", "drcd_dev_zhtw"]
COLUMNS = ["same language", "to English", "from English", "Tatoeba-14", "passages/s", "peak MB", "disk MB"]


def part(folder: Path, questions: int) -> Any:
    """The collection with its first questions alone."""
    from interlingua.data.collections import load_collection

    whole = load_collection(folder)
    asked = whole.queries[:questions]
    return replace(whole, queries=asked, qrels={query.id: whole.qrels[query.id] for query in asked})


def quality(
    model: Any, data: Path, questions: int, native: Sequence[str]
) -> tuple[list[float], dict[str, list[float]]]:
    """The first four columns; the first three of each language, and RR@100 of each native collection."""
    import numpy as np

    from interlingua.evaluation import evaluate
    from interlingua.evaluation.languages import language_matrix
    from interlingua.evaluation.tatoeba import tatoeba_file
    from interlingua.retrieval import DenseRetriever

    scores = language_matrix(model, {lang: part(data / f"xquad_{lang}", questions) for lang in LANGS}, "RR@100").values
    english, others = LANGS.index("en"), [n for n, lang in enumerate(LANGS) if lang != "en"]
    pairs = {lang: tatoeba_file(model, data / f"tatoeba/{lang}-eng.tsv.gz").mean for lang in TATOEBA}
    columns = [
        scores.diagonal().mean(),
        scores[others, english].mean(),
        scores[english, others].mean(),
        fmean(pairs.values()),
    ]
    rows = {lang: [scores[n, n], scores[n, english], scores[english, n]] for n, lang in enumerate(LANGS)}
    means = {}
    for held, name in ((False, "choices are made on"), (True, "no choice is made on")):
        some = [n for n in others if (LANGS[n] in HELD) == held]
        sentences = fmean(value for code, value in pairs.items() if is_held(code) == held)
        means[f"XQuAD and Tatoeba, languages that {name}"] = [
            *(float(np.mean(found)) for found in (scores[some, some], scores[some, english], scores[english, some])),
            sentences,
        ]
    for name in native:
        one = part(data / name, questions)
        rows[name] = [
            evaluate(DenseRetriever(model, one.passages).search(one.queries, 100), one.qrels, ["RR@100"])["RR@100"]
        ]
    rows |= means
    return [float(value) for value in columns], {name: [float(value) for value in row] for name, row in rows.items()}


def measure(name: str, given: Namespace) -> dict[str, Any]:
    """All columns of one model, and its languages."""
    from interlingua.index.metadata import load_to_encode
    from interlingua.models.folder import model_folder

    folder, colon, precision = name.rpartition(":")
    folder = folder if colon else name
    texts = []  # read without the package, whose collections would count as the model's memory
    for lang in LANGS:
        with gzip.open(given.data / f"xquad_{lang}/passages.jsonl.gz", "rt", encoding="utf-8") as stream:
            texts += [json.loads(line)["text"] for line in islice(stream, 20)]
    model: Any = load_to_encode(folder, precision if colon else None)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(given.threads)
    start = 0.0
    for _ in range(2):  # kernels are compiled in the first round
        start = time.process_time()
        model.encode_document(texts[: given.passages])
    speed = len(texts[: given.passages]) / (time.process_time() - start) * given.threads
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    encoder = model if hasattr(model, "backbone") else model.query
    weights = getattr(getattr(encoder, "backbone", None), "weights_file", "")
    files = [path for path in model_folder(folder).rglob("*") if path.is_file()]
    if weights:
        files = [path for path in files if path.suffix != ".safetensors"] + [Path(weights)]
    disk = sum(path.stat().st_size for path in files) / 1e6
    worth, languages = [float("nan")] * 4, {}
    if given.questions:
        worth, languages = quality(model, given.data, given.questions, NATIVE if given.languages else [])
    return {**dict(zip(COLUMNS, [*worth, speed, peak, disk], strict=True)), "languages": languages}


def main() -> None:
    """Measure each in its own process and print."""
    parser = options(__doc__, questions=100, passages=240)
    parser.add_argument("models", nargs="+", metavar="MODEL[:PRECISION]")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--languages", action="store_true", help="print a table of languages, too")
    parser.add_argument("--one", action="store_true", help="the first model in this process, as JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.models[0], given)))
        return
    rows, languages = [], {}
    for name in given.models:
        command = [sys.executable, __file__, name, "--one", "--data", str(given.data)]
        command += [f"--{key}={getattr(given, key)}" for key in ("questions", "passages", "threads")]
        command += ["--languages"] * given.languages
        on_cpu = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=on_cpu).stdout
        found = json.loads(out.splitlines()[-1])
        languages[name] = found["languages"]
        rows.append([name, *(f"{found[column]:.3f}" for column in COLUMNS[:4])])
        rows[-1] += [f"{found[column]:,.0f}" for column in COLUMNS[4:]]
        print(rows[-1], flush=True)
    print(tabulate(rows, headers=["", *COLUMNS], disable_numparse=True))
    if given.languages and given.questions:
        print("\nRR@100: same language / to English / from English; of native questions, in their language; of means,")
        print("without English, Tatoeba's accuracy in the end:")
        written = {
            name: [" / ".join(f"{value:.3f}" for value in languages[model][name]) for model in given.models]
            for name in languages[given.models[0]]
        }
        table = [[name, *cells] for name, cells in written.items()]
        print(tabulate(table, headers=["", *given.models], disable_numparse=True))


if __name__ == "__main__":
    main()
