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
from interlingua.retrieval.index_writer import FORMAT, write_index
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
        self.vectors: NDArray[np.float32] = np.load(path / "vectors.npy", mmap_mode="r", allow_pickle=False)
        self._offsets, self._languages, self._ties = (
            np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            for name in ("offsets", "languages", "ties"))

    @classmethod
    def build(cls, encoder: TextEncoder, passages: Iterable[Passage], path: str | Path, *, model_path: str | Path = "",
              overwrite: bool = False, **encode_options: Any) -> Index:
        """Encode `passages` (any iterable, read once) into a new folder at `path`, whole or not at all.

        `model_path` is the name or folder from which `open` may load the encoder. Raises InterlinguaError when the
        folder exists and `overwrite` is not set, for duplicate ids, and when there is no passage.
        """
        path = Path(path)
        if path.exists() and not overwrite:
            raise InterlinguaError(f"{path}: already exists. Choose another folder or pass overwrite=True.")
        if path.exists() and not (path / "index.json").exists():
            raise InterlinguaError(f"{path}: is not an index, so it is not overwritten. Choose another folder.")
        model = str(Path(model_path).resolve()) if model_path and Path(model_path).exists() else str(model_path)
        about = write_index(encoder, passages, path, model, encode_options)
        return cls(path, about, encoder)

    @classmethod
    def open(cls, path: str | Path, encoder: TextEncoder | None = None) -> Index:
        """Open an index. Without `encoder`, the model it was built with is loaded at the first search.

        Raises InterlinguaError for a folder that is no index, or an encoder that gives other vectors than
        the one it was built with.
        """
        path = existing(path, "index folder")
        if not (path / "index.json").is_file():
            raise InterlinguaError(f"{path}: is not an index (no index.json). Make one with `interlingua index`.")
        try:
            about = json.loads((path / "index.json").read_text(encoding="utf-8"))
            known = about["format"] == FORMAT
        except (ValueError, KeyError, TypeError) as error:
            raise InterlinguaError(f"{path / 'index.json'}: cannot be read ({error!r}). Build it again.") from error
        if not known:
            raise InterlinguaError(f"{path}: has index format {about['format']}, {FORMAT} is known. Build it again.")
        index = cls(path, about, encoder)
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
        with open(self.path / "passages.jsonl", "rb") as stream:
            stream.seek(int(self._offsets[position]))
            return Passage(**json.loads(stream.readline()))

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
            if not self.about["model"]:
                raise InterlinguaError(f"{self.path}: does not say which model made it. Pass encoder= to Index.open.")
            from interlingua.models.dual import DualEncoder

            encoder = DualEncoder.load(self.about["model"])
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
