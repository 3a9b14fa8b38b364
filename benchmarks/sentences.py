"""Boundary F1 of sentence splitting on documents whose sentences are known: joined by spaces and split again.

python benchmarks/sentences.py --data DIR [FILE.jsonl.gz …]
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from interlingua.data.readers import read_documents
from interlingua.text.languages import language
from interlingua.text.sentences import split_sentences


def ends(sentences: list[str]) -> set[int]:
    """The ends of sentences, counted in characters that are no spaces, without the last end, which is given."""
    found, place = set(), 0
    for sentence in sentences:
        place += len("".join(sentence.split()))
        found.add(place)
    return found - {place}


def main() -> None:
    """Print boundary F1 for each language of the files, and the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="documents with sentences (NTREX-128 of --data)")
    parser.add_argument("--data", default=".", help="the folder that holds train/documents/ntrex_docs.jsonl.gz")
    arguments = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    for path in arguments.files or [Path(arguments.data) / "train/documents/ntrex_docs.jsonl.gz"]:
        for document in read_documents(path):
            gap = language(document.lang).sentence_gap or ("" if document.lang in ("ja", "zh") else " ")
            gold = ends(list(document.sentences))
            ours = ends(split_sentences(gap.join(document.sentences), document.lang))
            counts.setdefault(document.lang, Counter()).update(both=len(gold & ours), all=len(gold) + len(ours))
    scores = {lang: 200 * count["both"] / max(1, count["all"]) for lang, count in counts.items()}
    for lang, score in sorted(scores.items()):
        print(f"{lang:8}{score:6.1f}")
    print(f"{'mean':8}{sum(scores.values()) / len(scores):6.1f}")


if __name__ == "__main__":
    main()
