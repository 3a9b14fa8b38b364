"""What calibration does to an encoder's sentence retrieval: every step, every language of Tatoeba, from one encoding.

    python benchmarks/calibration.py multilingual-e5-small:int8 --data DATA
    python benchmarks/calibration.py multilingual-e5-small:int8 --layer 6 --data DATA      # its lower six layers

The maps are fitted on raw sentences: of each language the first --texts of DATA/train/parallel (its side alone), where
that has none of DATA/train/parallel_localisation, and English ones; never on Tatoeba. Accuracy is the mean of both
directions; a step's effect is the mean over sentences of the difference in hits, with its 95% interval (normal). A step
helps or harms a language where that leaves zero out. Languages without raw text keep their vectors. With --adversarial
these languages are rotated by MUSE's game, too, which takes minutes each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from common import options
from interlingua.alignment import Calibration
from interlingua.alignment.rotation import Adversarial
from interlingua.data.readers import read_parallel
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.folder import model_folder
from interlingua.text.languages import find_code

Floats = NDArray[np.float32]
CCP = "fr es de el bg ru tr ar vi th zh hi sw ur".split()
STEPS: dict[str, dict[str, Any]] = {
    "shift": {"scale": None, "rotate": None},
    "+ scale": {"rotate": None},
    "+ rotate": {"rotate": "refine"},
    "+ rotate, ungated": {"rotate": "refine", "gate": False},
}


def texts_of(data: Path, lang: str, count: int) -> list[str]:
    """Distinct raw sentences of a language; none where there is no file."""
    for folder in ("parallel", "parallel_localisation"):
        path = data / f"train/{folder}/{lang}-en.tsv.gz"
        if path.exists():
            sides = (pair.source if pair.source_lang == lang else pair.target for pair in read_parallel(path))
            return list(islice(dict.fromkeys(sides), count))
    return []


def english(data: Path, count: int) -> list[str]:
    """English sentences of the same corpora, not those of one file alone."""

    def sides() -> Iterator[str]:
        for lang in CCP:
            pairs = read_parallel(data / f"train/parallel/{lang}-en.tsv.gz")
            yield from islice((p.target if p.target_lang == "en" else p.source for p in pairs), count // 4)

    return list(islice(dict.fromkeys(sides()), count))


def hits(x: Floats, y: Floats) -> Floats:
    """[sentences]: 1 where both directions find the translation, a half where one does."""
    x, y = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in (x, y))
    scores, right = x @ y.T, np.arange(len(x))
    return ((scores.argmax(1) == right).astype(np.float32) + (scores.argmax(0) == right)) / 2


def main() -> None:
    parser = options(__doc__, texts=1000)
    parser.add_argument("model", metavar="MODEL[:PRECISION]")
    parser.add_argument("--layer", type=int, help="the mean over the tokens of this layer")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--adversarial", nargs="*", default=[], metavar="LANG")
    given = parser.parse_args()
    name, colon, precision = given.model.rpartition(":")
    name, precision = (name, precision) if colon else (given.model, None)
    encoder = Encoder.load(model_folder(name), layer=given.layer, precision=precision, device="cpu")
    model = DualEncoder.tied(encoder)
    files = sorted((given.data / "dev/tatoeba").glob("*-eng.tsv.gz"))
    langs = {file: find_code(file.name.split("-")[0]) or file.name.split("-")[0] for file in files}
    raw = {lang: texts_of(given.data, lang, given.texts) for lang in dict.fromkeys(langs.values())}
    raw = {lang: texts for lang, texts in raw.items() if len(texts) >= 50} | {"en": english(given.data, given.texts)}
    vectors = {lang: np.asarray(model.encode_query(texts)) for lang, texts in raw.items()}
    tatoeba = {}
    for file, lang in langs.items():
        pairs = list(read_parallel(file))
        sides = [[p.source for p in pairs], [p.target for p in pairs]]
        tatoeba[file.name.split("-")[0]] = lang, [np.asarray(model.encode_query(side)) for side in sides]
    fitted = {step: Calibration.fit(vectors, **how) for step, how in STEPS.items()}
    if given.adversarial:
        some = {lang: vectors[lang] for lang in [*given.adversarial, "en"]}
        short = Adversarial(epoch_size=20_000, hidden=256)
        fitted["+ rotate adversarially (short)"] = Calibration.fit(
            some, rotate="adversarial", gate=False, adversarial=short
        )
    rows, effects = [], {step: [] for step in fitted}
    means: dict[str, list[float]] = {"raw": [], **{step: [] for step in fitted}}
    ours: dict[str, list[float]] = {"raw": [], **{step: [] for step in fitted}}
    for code, (lang, (x, y)) in tatoeba.items():
        before = hits(x, y)
        row: list[str] = [code, f"{len(x):,}", f"{before.mean():.3f}"]
        found = {"raw": before}
        for step, calibration in fitted.items():
            known = lang in vectors and (not step.startswith("+ rotate adv") or lang in given.adversarial)
            after = hits(calibration.transform(x, lang), calibration.transform(y, "en")) if known else before
            found[step] = after
            if known:
                change = after - before
                reach = 1.96 * change.std(ddof=1) / np.sqrt(len(change))
                effects[step].append((code, float(change.mean()), float(reach)))
                sign = "*" if abs(change.mean()) > reach else " "
                row.append(f"{after.mean():.3f} {change.mean():+.3f} ±{reach:.3f}{sign}")
            else:
                row.append("–")
        for step, value in found.items():
            means[step].append(float(value.mean()))
            if lang in CCP and code != "yue":
                ours[step].append(float(value.mean()))
        rows.append(row)
    print(tabulate(rows, headers=["language", "pairs", "raw", *fitted], disable_numparse=True, tablefmt="github"))
    print()
    summary = []
    for step in means:
        line = [step, f"{np.mean(ours[step]):.4f}", f"{np.mean(means[step]):.4f}"]
        if step in effects:
            up = [code for code, mean, reach in effects[step] if mean > reach]
            down = [code for code, mean, reach in effects[step] if mean < -reach]
            change = np.mean([mean for _, mean, _ in effects[step]])
            line += [
                f"{change:+.4f}",
                f"{len(effects[step])}",
                f"{len(up)}: {' '.join(up)}",
                f"{len(down)}: {' '.join(down)}",
            ]
        summary.append(line)
    headers = ["step", f"mean of {len(ours['raw'])}", f"mean of {len(rows)}", "effect", "calibrated", "helps", "harms"]
    print(tabulate(summary, headers=headers, disable_numparse=True, tablefmt="github"))


if __name__ == "__main__":
    main()
