"""Build an index, search it in any language, change it while it is open.

python examples/search.py [INDEX_FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import mkdtemp

from interlingua import DualEncoder, Index, load_collection
from interlingua.data.records import Passage


def main(folder: str) -> None:
    # Passages of your own: Passage(id, text, title, lang, metadata), from any iterable.
    passages = [
        Passage(f"{p.id}.{p.lang}", p.text, p.title, p.lang, {"shelf": "encyclopedia"})
        for lang in ("en", "fi", "ja")
        for p in load_collection(f"encyclopedia:{lang}").passages
    ]
    index = Index.build(DualEncoder.load("default"), passages, Path(folder) / "idx", model_path="default")

    for question in ("Who invented raised dots for reading?", "Kuka keksi sokeainkirjoituksen?"):
        print(question)
        for hit in index.search(question, k=3):
            print(f"  {hit.score:.2f} [{hit.passage.lang}] {hit.passage.title}: {hit.passage.text[:50]}…")

    print("only Japanese passages:")
    for hit in index.search("Who invented raised dots for reading?", k=2, langs=["ja"]):
        print(f"  {hit.score:.2f} [{hit.passage.lang}] {hit.passage.title}")

    index.add([Passage("note-1", "The reading room opens at nine.", "Opening hours", "en", {"shelf": "notes"})])
    (hit,) = index.search("À quelle heure ouvre la salle de lecture ?", k=1, where={"shelf": "notes"})
    print(f"in the notes: {hit.passage.text}")
    index.delete(["note-1"])
    print(f"{len(index)} passages")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
