"""A dense index in one folder that a person can move: passages, their places, their vectors, and what made them."""

from __future__ import annotations

import json
from collections.abc import Collection as Names
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError, suggestion
from interlingua.files import existing
from interlingua.retrieval.index_reader import damaged, read_about, read_arrays
from interlingua.retrieval.index_writer import write_index
from interlingua.retrieval.vectors import TextEncoder, embed_queries


class Hit(NamedTuple):
    """A passage found and its score (cosine or dot product, as the encoder's similarity says)."""

    passage: Passage
    score: float


class Index:
    """Passages of any languages, searchable by one encoder. Make one with `build`, reopen it with `open`.

    The folder holds `passages.jsonl`, `offsets.npy` (int64 [passages]: byte of each line), `vectors.npy`
    (float32 [passages, dim], unit length under cosine), `languages.npy` (int32 [passages]), `ties.npy`
    (int64 [passages]) and `index.json`. Vectors are memory-mapped and passages read when found.
    """

    def __init__(self, path: Path, about: dict[str, Any], encoder: TextEncoder | None) -> None:
        self.path, self.about, self._encoder = path, about, encoder
        self.vectors, self._offsets, self._languages, self._ties = read_arrays(path, about)

    @classmethod
    def build(cls, encoder: TextEncoder, passages: Iterable[Passage], path: str | Path, *, model_path: str | Path = "",
              overwrite: bool = False, **encode_options: Any) -> Index:
        """Encode `passages` (any iterable, read once) into a new folder at `path`, whole or not at all.

        `model_path` is the name or folder from which `open` may load the encoder. Raises InterlinguaError when the
        folder exists and `overwrite` is not set, for duplicate ids, and when there is no passage.
        """
        path = Path(path)
        if path.exists() and not overwrite:
            raise InterlinguaError(f"{path}: already exists. Choose another folder, or replace it with --overwrite "
                                   "(in Python: overwrite=True).")
        if path.exists() and not (path / "index.json").exists():
            raise InterlinguaError(f"{path}: is not an index, so it is not overwritten. Choose another folder.")
        model = str(Path(model_path).resolve()) if model_path and Path(model_path).exists() else str(model_path)
        about = write_index(encoder, passages, path, model, encode_options)
        return cls(path, about, encoder)

    @classmethod
    def open(cls, path: str | Path, encoder: TextEncoder | None = None) -> Index:
        """Open an index. Without `encoder`, the model it was built with is loaded at the first search.

        Raises InterlinguaError for a folder that is no index, a damaged one, or an encoder that gives other vectors
        than the one it was built with.
        """
        path = existing(path, "index folder")
        index = cls(path, read_about(path), encoder)
        index[len(index) - 1]  # a passages.jsonl that was cut lacks its end
        if encoder is not None:
            index._check(encoder)
        return index

    @property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(self.about["languages"])

    def __len__(self) -> int:
        return int(self.about["passages"])

    def __getitem__(self, position: int) -> Passage:
        file, start = self.path / "passages.jsonl", int(self._offsets[position])
        try:
            with open(file, "rb") as stream:
                stream.seek(start)
                return Passage(**json.loads(stream.readline()))
        except (OSError, ValueError, TypeError) as error:
            raise damaged(file, error) from error

    def search(self, text: str, k: int = 10, langs: Names[str] | None = None) -> list[Hit]:
        """The `k` best passages for a question in any language, best first; only those in `langs` if given."""
        from interlingua.retrieval.dense import search_exact

        query = embed_queries(self.encoder, [Query("question", text)])
        indices, scores = search_exact(query, self.vectors, k, rows=self._rows(langs), tie_order=self._ties)
        return [Hit(self[i], score) for i, score in zip(indices[0].tolist(), scores[0].tolist(), strict=True)]

    @property
    def encoder(self) -> TextEncoder:
        """The encoder of the questions, loaded by the name in index.json when none was given."""
        if self._encoder is None:
            model = self.about["model"]
            if not model:
                raise InterlinguaError(f"{self.path}: does not say which model made it. Give the model with --model "
                                       "(in Python: pass encoder= to Index.open).")
            if Path(model).is_absolute() and not Path(model).exists():
                raise InterlinguaError(f"{self.path}: was made with the model {model}, which is not there any more. "
                                       "Say where it is with --model (in Python: pass encoder= to Index.open).")
            from interlingua.models.dual import DualEncoder

            encoder = DualEncoder.load(model)
            self._check(encoder)
            self._encoder = encoder
        return self._encoder

    def _rows(self, langs: Names[str] | None) -> NDArray[np.int64] | None:
        if langs is None:
            return None
        names = list(self.about["languages"])
        for lang in langs:
            if lang not in names:
                raise InterlinguaError(f"{self.path}: has no passage in language '{lang}'.{suggestion(lang, names)}")
        return np.flatnonzero(np.isin(self._languages, [names.index(lang) for lang in langs]))

    def _check(self, encoder: TextEncoder) -> None:
        from interlingua.models.fingerprint import check

        check(encoder, self.about["fingerprint"], str(self.path))
        if encoder.similarity != self.about["similarity"]:
            raise InterlinguaError(f"{self.path}: was made for similarity '{self.about['similarity']}', the model says "
                                   f"'{encoder.similarity}'. Make the index again with this model.")
