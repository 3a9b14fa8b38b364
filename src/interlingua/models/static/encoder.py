"""Static encoding without torch: a text is the mean of its subword vectors, which a file holds and memory maps.

`interlingua.models.static.embedding` trains such vectors, and makes those of many texts at once in half the time. This
module is ready when torch would still be loading: for a question, and for the few passages that are added to an index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from interlingua.errors import BadInput, Damaged
from interlingua.files import read_json
from interlingua.models.folder import (
    Module,
    Settings,
    check,
    model_folder,
    read_routes,
    read_settings,
    require_safetensors,
    stored_role,
    subfolder,
)
from interlingua.models.protocols import AnyEncoder, Encoder, as_texts, check_dimensions
from interlingua.models.subwords import Subwords, Text

Floats = NDArray[np.float32]
KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1"}
"""NumPy's names of the number formats of safetensors, but for bfloat16, which NumPy lacks."""
WINDOW = 16_384  # texts tokenised at a time
TINY = np.float32(1e-12)  # torch's least length of a vector that is brought to unit length


class StaticTable:
    """Subword vectors `[vocabulary, dim]`: `rows`, float32 or int8, times `scales` `[vocabulary]` if there are any. A
    `mapping` `[vocabulary]`, if there is one, says which of the rows is a subword's."""

    def __init__(
        self, rows: NDArray[Any], scales: Floats | None = None, mapping: NDArray[np.int64] | None = None
    ) -> None:
        self.rows, self.scales, self.mapping = rows, scales, mapping

    @property
    def shape(self) -> tuple[int, int]:
        """Subwords, and the size of a vector."""
        return len(self.rows if self.mapping is None else self.mapping), self.rows.shape[1]

    @classmethod
    def open(cls, folder: Path) -> StaticTable:
        """Memory-map the table that sentence-transformers, model2vec or `StaticEmbedding.save` wrote into a folder.
        Raises BadInput for other weights and a damaged file."""
        require_safetensors(folder)
        try:
            tensors = mapped(folder / "model.safetensors")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"{folder}: cannot be read as a static embedding ({error}).") from error
        rows = tensors.get("embedding.weight", tensors.get("embeddings"))
        if rows is None or not (
            set(tensors) == {"embedding.weight"} or set(tensors) <= {"embeddings", "weights", "mapping"}
        ):
            raise BadInput(
                f"{folder}: model.safetensors holds {', '.join(sorted(tensors))}; a static embedding "
                "has embedding.weight, or embeddings with weights and a mapping as model2vec "
                "writes."
            )
        scales, mapping = tensors.get("weights"), tensors.get("mapping")
        table = cls(
            rows if rows.dtype in (np.float32, np.int8) else rows.astype(np.float32),
            None if scales is None else scales.astype(np.float32),
            None if mapping is None else mapping.astype(np.int64),
        )
        fits = rows.ndim == 2 and (scales is None or scales.shape == (table.shape[0],))
        if not fits or (mapping is not None and not ((mapping >= 0) & (mapping < len(rows))).all()):
            raise Damaged(f"{folder}: cannot be read as a static embedding (its tensors do not fit together).")
        return table

    def take(self, ids: NDArray[np.int64]) -> Floats:
        """The vectors `[ids, dim]` of some subwords."""
        vectors: Floats = self.rows[self._places(ids)].astype(np.float32)
        if self.scales is not None:
            vectors *= self.scales[ids][:, None]
        return vectors

    def folded(self) -> Floats:
        """All vectors, float32, in memory."""
        return self.take(np.arange(self.shape[0]))

    def means(self, ids: Sequence[Sequence[int]]) -> Floats:
        """Subword ids of each text → float32 `[texts, dim]`: the mean of its vectors, each text summed by itself and in
        order; zeros for a text without subwords."""
        counts = [len(text) for text in ids]
        flat = np.fromiter(chain.from_iterable(ids), np.int64, sum(counts))
        places, scales = self._places(flat), None if self.scales is None else self.scales[flat][:, None]
        result: Floats = np.zeros((len(ids), self.shape[1]), dtype=np.float32)
        # one buffer for the vectors of each text in turn: to ask the system for it takes longer than the sum
        buffer = np.empty((max(counts, default=0), self.shape[1]), dtype=self.rows.dtype)
        scaled: Floats = np.empty(buffer.shape if scales is not None else (0, 0), dtype=np.float32)
        start = 0
        for mean, count in zip(result, counts, strict=True):
            if count:
                part = slice(start, start + count)
                vectors = self.rows.take(places[part], axis=0, out=buffer[:count], mode="clip")  # "raise" would copy
                if scales is not None:
                    vectors = np.multiply(vectors, scales[part], out=scaled[:count])
                np.add.reduce(vectors, axis=0, out=mean)
                mean /= np.float32(count)
            start += count
        return result

    def _places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        return ids if self.mapping is None else self.mapping[ids]

    def sample(self, step: int) -> Floats:
        """Every so many components of all vectors laid end to end."""
        positions = np.arange(0, self.shape[0] * self.shape[1], step)
        ids, columns = np.divmod(positions, self.shape[1])
        values = self.rows[self._places(ids), columns].astype(np.float32)
        return values if self.scales is None else values * self.scales[ids]


class StaticSide:
    """The encoder of questions or of passages in a static model without further layers. `table` gives the subword
    vectors when they are first needed; `vectors` makes the vectors of texts, where that is not to be done here."""

    pooling, language_maps = None, None

    def __init__(
        self,
        table: Callable[[], StaticTable],
        subwords: Subwords,
        settings: Settings,
        normalize: bool,
        vectors: Callable[[Sequence[Sequence[int]]], Floats] | None = None,
    ) -> None:
        self._table, self.subwords, self.settings, self.normalize = table, subwords, settings, normalize
        self._vectors = vectors

    @cached_property
    def table(self) -> StaticTable:
        """The subword vectors."""
        return self._table()

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.table.shape[1]

    def is_like(self, other: StaticSide) -> bool:
        """Whether both belong to one encoder."""
        return self.subwords is other.subwords and self.settings is other.settings and self.normalize == other.normalize

    def tokenize(self, texts: Sequence[Text], role: str | None = None, *, prompt: str | None = None) -> list[list[int]]:
        """As `Encoder.tokenize`."""
        return self.subwords(
            texts,
            prompt=self.settings.prompt(role, None, prompt),
            template=self.settings.template,
            max_length=self.settings.length(role),
        )

    def vectors(self, ids: Sequence[Sequence[int]]) -> Floats:
        """Subword ids of each text → float32 `[texts, dim]`."""
        if self._vectors is not None:
            return self._vectors(ids)
        means = self.table.means(ids)
        if self.normalize:
            means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), TINY)
        return means


@runtime_checkable
class HasStaticSides(Protocol):
    """An encoder that may be static: it says how the vectors of questions and of passages are made."""

    def static_sides(self) -> tuple[StaticSide, StaticSide] | None:
        """The sides of questions and of passages, if vectors are means of static subword vectors and nothing else (no
        Dense layer, no calibration); else None."""


def static_sides(encoder: AnyEncoder | None) -> tuple[StaticSide, StaticSide] | None:
    """`HasStaticSides.static_sides`; None for an encoder without it."""
    return encoder.static_sides() if isinstance(encoder, HasStaticSides) else None


class StaticEncoder(Encoder):
    """A static model that only encodes: `DualEncoder` for one without Dense layers and calibration, without torch. Make
    one with `load`. Safe to use from several threads."""

    def __init__(self, query: StaticSide, passage: StaticSide | None = None) -> None:
        self.query, self.passage = query, passage or query

    @classmethod
    def load(cls, name_or_path: str | Path) -> StaticEncoder | None:
        """The model of a folder or name, as `DualEncoder.load` finds it; None for a model of another kind. Raises
        BadInput as `DualEncoder.load` does."""
        folder = model_folder(name_or_path)
        if not (folder / "modules.json").is_file() or any(folder.glob("*calibration.safetensors")):
            return None
        routes = read_routes(folder)
        if not all(
            [kind for kind, _ in modules] in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"])
            for _, modules in routes
        ):
            return None
        encoder = cls(*(_side(place, modules, folder) for place, modules in routes))
        if (fingerprint := read_json(folder / "fingerprint.json")) is not None:
            check(encoder, fingerprint, str(folder))
        return encoder

    @property
    def similarity(self) -> str:
        """ "cosine" or "dot"."""
        return self.query.settings.similarity

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.query.dim

    def encoder(self, role: str) -> StaticSide:
        """The side of a role: "query", or "passage" (also called "document")."""
        return self.query if stored_role(role) == "query" else self.passage

    def static_sides(self) -> tuple[StaticSide, StaticSide]:
        """Those of questions and of passages."""
        return self.query, self.passage

    def encode_query(self, sentences: str | Sequence[Text], **options: Any) -> Floats:
        """Vectors `[texts, dim]` of questions, float32; of a single string `[dim]`. Of the options of `Encoder.encode`
        it takes `prompt_name`, `prompt`, `normalize_embeddings` and `truncate_dim`, and has no use for `lang`,
        `batch_size` and `show_progress_bar`."""
        return encode_side(self.query, sentences, "query", **options)

    def encode_document(self, sentences: str | Sequence[Text], **options: Any) -> Floats:
        """Vectors of passages, as `encode_query`."""
        return encode_side(self.passage, sentences, "passage", **options)


def encode_side(
    side: Any,
    sentences: str | Sequence[Text],
    role: str,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    normalize_embeddings: bool = False,
    truncate_dim: int | None = None,
    lang: object = None,
    batch_size: int | None = None,
    show_progress_bar: bool | None = None,
) -> Floats:
    """As `StaticEncoder.encode_query`, by the `settings`, `dim`, `tokenize` and `vectors` of `side`."""
    texts, single = as_texts(sentences)
    prompt = side.settings.prompt(role, prompt_name, prompt)
    vectors: Floats = np.zeros((len(texts), side.dim), dtype=np.float32)
    for start in range(0, len(texts), WINDOW):
        part = slice(start, start + WINDOW)
        vectors[part] = side.vectors(side.tokenize(texts[part], role, prompt=prompt))
    finite = np.isfinite(vectors).all(axis=1)
    if not finite.all():
        raise BadInput(f"text {int(finite.argmin())}: its vector holds NaN or infinity. The weights are damaged.")
    vectors = vectors if truncate_dim is None else vectors[:, : check_dimensions(truncate_dim, vectors.shape[1])]
    if normalize_embeddings:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)
    return vectors[0] if single else vectors


def mapped(file: Path, *, wide: bool = True) -> dict[str, NDArray[Any]]:
    """The tensors of a safetensors file by name, memory-mapped; bfloat16 as float32, in memory, or where not `wide` as
    its bits, uint16. Raises ValueError, KeyError or TypeError for a file that is none or is cut."""
    content = np.memmap(file, dtype=np.uint8, mode="r")
    start = 8 + int.from_bytes(content[:8].tobytes(), "little")
    if not 8 < start <= len(content):
        raise ValueError(f"{file.name} is cut")
    tensors: dict[str, NDArray[Any]] = {}
    for name, entry in json.loads(content[8:start].tobytes()).items():
        if name == "__metadata__":
            continue
        begin, end = (start + int(offset) for offset in entry["data_offsets"])
        if not start <= begin <= end <= len(content):
            raise ValueError(f"{file.name} is cut")
        part = np.asarray(content)[begin:end]
        half = entry["dtype"] == "BF16"
        tensor = part.view("<u2" if half else KINDS[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = widened(tensor) if half and wide else tensor
    return tensors


def widened(bits: NDArray[np.uint16]) -> Floats:
    """bfloat16 numbers, given by their bits, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def int8_rows(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Float32 rows `[rows, dim]` as int8, and the scale of each, a 127th of its largest component: `int8 · scale` is
    within scale / 2 of the row. Symmetric: zero stays zero. A row of zeros has scale 0."""
    scales = np.abs(rows).max(axis=1, initial=0) / np.float32(127)
    parts = rows / np.where(scales > 0, scales, 1)[:, None]
    return np.rint(parts).clip(-127, 127).astype(np.int8), scales.astype(np.float32)


def check_vocabulary(subwords: Subwords, rows: int) -> None:
    """Raise BadInput for a tokenizer with more subwords than there are `rows`."""
    if (size := subwords.tokenizer.get_vocab_size()) > rows:
        raise BadInput(f"the tokenizer has {size:,} subwords but the embedding only {rows:,} rows.")


def _side(place: Path, modules: Sequence[Module], folder: Path) -> StaticSide:
    module_folder = subfolder(place, modules[0][1])
    settings, table = read_settings(folder), StaticTable.open(module_folder)
    try:
        tokenizer = Tokenizer.from_file(str(module_folder / "tokenizer.json"))
    except Exception as error:  # tokenizers raises bare Exception
        raise Damaged(f"{module_folder}: cannot be read as a static embedding ({error}).") from error
    settings.max_length = (tokenizer.truncation or {}).get("max_length")
    subwords = Subwords(tokenizer, special=False)
    check_vocabulary(subwords, table.shape[0])
    return StaticSide(lambda: table, subwords, settings, len(modules) == 2)
