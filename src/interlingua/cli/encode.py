"""`interlingua encode`: texts to vectors."""

from __future__ import annotations

import argparse
import sys
from typing import Any

NAMES = ("encode",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("encode", help="turn lines of text into vectors", parents=[common])
    parser.add_argument("model", help="a model folder or name")
    parser.add_argument("texts", nargs="?", default="-",
                        help="a text file, one text a line, .gz too; - for standard input")
    parser.add_argument("--as", dest="role", choices=["query", "passage"], default="passage",
                        help="which encoder reads them")
    parser.add_argument("--out", required=True, metavar="FILE.npy", help="where the vectors go: float32 [texts, dim]")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Encode and save."""
    import numpy as np

    from interlingua.errors import InterlinguaError
    from interlingua.files import atomic_write, read_lines
    from interlingua.models.dual import DualEncoder
    from interlingua.progress import say

    try:
        lines = [line.rstrip("\n") for line in sys.stdin] if arguments.texts == "-" else [
            line for _, line in read_lines(arguments.texts)]
    except UnicodeDecodeError as error:
        raise InterlinguaError(f"standard input: not UTF-8 ({error.reason}). "
                               "Convert it with `iconv -t UTF-8`.") from error
    if not lines:
        where = "standard input" if arguments.texts == "-" else arguments.texts
        raise InterlinguaError(f"{where}: is empty. Give one text a line.")
    model = DualEncoder.load(arguments.model)
    encode = model.encode_query if arguments.role == "query" else model.encode_document
    vectors = np.asarray(encode(lines, show_progress_bar=True), dtype=np.float32)
    with atomic_write(arguments.out, "wb") as stream:
        np.save(stream, vectors)
    say(f"{arguments.out}: {vectors.shape[0]:,} vectors of {vectors.shape[1]} dimensions")
