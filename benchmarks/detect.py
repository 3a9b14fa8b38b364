"""Language detection: py3langid against lingua on short sentences (Tatoeba) and whole passages (XQuAD, TyDi, DRCD, …).

    python benchmarks/detect.py --data DIR --library py3langid      # or lingua, lingua-low, ours

One library a process, so that the memory is its own. Accuracy is the mean over the languages that both libraries know,
each with up to --texts texts. Named are texts whose language is told with that probability.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import time
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

from interlingua.text.detection import SURE, detect_language
from interlingua.text.languages import find_code

Guess = tuple[str, float]
MACRO = {"arz": "ar", "ary": "ar", "arq": "ar", "wuu": "zh", "yue": "zh", "nb": "no", "nn": "no"}
"""Read as one language, whichever of them a library names."""


def samples(data: Path, texts: int) -> dict[tuple[str, str], list[str]]:
    """(kind, language) → texts."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted((data / "dev/tatoeba").glob("*.tsv.gz")):
        if code := find_code(path.name[:3]):
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                found["sentences", code] = [line.split("\t")[0].strip() for line in stream]
    for path in sorted((data / "dev").glob("*/passages.jsonl.gz")):
        if code := find_code(path.parent.name.rpartition("_")[2]):
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                found.setdefault(("passages", code), []).extend(json.loads(line)["text"] for line in stream)
    return {key: random.Random(0).sample(rows, min(texts, len(rows))) for key, rows in found.items()}


def open_library(name: str) -> tuple[Callable[[str], Guess], str]:
    """A function of a text, and the name of the distribution."""
    if name == "ours":
        return lambda text: (detect_language(text), 1.0), "py3langid"
    if name == "py3langid":
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True).classify, name
    import lingua

    builder = lingua.LanguageDetectorBuilder.from_all_languages()
    detector = (builder.with_low_accuracy_mode() if name == "lingua-low" else builder).build()

    def classify(text: str) -> Guess:
        best = detector.compute_language_confidence_values(text)[0]
        return best.language.iso_code_639_1.name.lower(), best.value

    return classify, "lingua-language-detector"


def known_to_both() -> set[str]:
    """Languages that neither library is asked for in vain."""
    import lingua
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    one = {merged(label) for label in LanguageIdentifier.from_model_file(MODEL_FILE).labels}
    return one & {merged(language.iso_code_639_1.name.lower()) for language in lingua.Language.all()}


def merged(code: str) -> str:
    """The code that is compared."""
    plain = find_code(code) or code
    return MACRO.get(plain, plain)


def peak() -> float:
    """The largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Print size, memory, speed and accuracy of one library."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds dev/")
    parser.add_argument("--library", default="ours", choices=("ours", "py3langid", "lingua-low", "lingua"))
    parser.add_argument("--texts", type=int, default=100, help="texts of each language (100)")
    arguments = parser.parse_args()
    sets, before, start = samples(arguments.data, arguments.texts), peak(), time.process_time()
    classify, package = open_library(arguments.library)
    classify("the first call loads the model")
    print(f"{arguments.library}: {time.process_time() - start:.1f} s to load", end=", ")
    guesses = {}
    for kind in ("sentences", "passages"):
        start = time.process_time()
        guesses |= {key: [classify(text) for text in texts] for key, texts in sets.items() if key[0] == kind}
        rows = [text for key, texts in sets.items() if key[0] == kind for text in texts]
        print(f"{len(rows) / (time.process_time() - start):,.0f} {kind}/s", end=", ")
    size = sum(Path(file.locate()).stat().st_size for file in distribution(package).files or ())
    print(f"{peak() - before:,.0f} MiB of memory, {size / 2**20:.0f} MiB installed")
    both = known_to_both()
    for kind in ("sentences", "passages"):
        right = {
            lang: [(merged(code) == merged(lang), bool(code) and sure >= SURE) for code, sure in found]
            for (one, lang), found in guesses.items()
            if one == kind and merged(lang) in both
        }
        macro = sum(sum(hit for hit, _ in rows) / len(rows) for rows in right.values()) / len(right)
        named = [hit for rows in right.values() for hit, sure in rows if sure]
        total = sum(map(len, right.values()))
        print(
            f"  {kind}: {100 * macro:.1f}% right in {len(right)} languages; with a probability of {SURE} or more: "
            f"{100 * len(named) / total:.1f}% named, {100 * sum(named) / len(named):.1f}% of them right"
        )


if __name__ == "__main__":
    main()
