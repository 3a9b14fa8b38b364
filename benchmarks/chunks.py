"""Count the subwords of a model's tokenizer in chunks of one's own files, language by language.

    python benchmarks/chunks.py MODEL --data DIR [--chunk-chars 800]

Cuts the passages of the collections in DIR/dev, put together to one document a language.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from transformers import AutoTokenizer

from interlingua.data.files.chunks import CHUNK_CHARS, Block, chunk
from interlingua.data.passages import read_passages
from interlingua.text.languages import language_at_end


def main() -> None:
    """Print chunks, their mean number of subwords, the 95th percentile and the most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a folder with a tokenizer")
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds dev/")
    parser.add_argument("--chunk-chars", type=int, default=CHUNK_CHARS, help=f"default: {CHUNK_CHARS}")
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    documents: dict[str, list[Block]] = {}
    for path in sorted((arguments.data / "dev").glob("*/passages.jsonl.gz")):
        lang = language_at_end(path.parent.name) or ""
        documents.setdefault(lang, []).extend(Block(one.text, "", lang) for one in read_passages(path))
    print(f"{'':8}chunks    mean     95%    most")
    for lang, blocks in documents.items():
        texts = [one.text for one in chunk(blocks, arguments.chunk_chars)]
        counts = np.array([len(ids) for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]])
        print(f"{lang:8}{len(texts):6}{counts.mean():8.0f}{np.percentile(counts, 95):8.0f}{counts.max():8}")


if __name__ == "__main__":
    main()
