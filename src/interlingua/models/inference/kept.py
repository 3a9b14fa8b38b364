"""A transformer as it is kept in the user's cache for inference: where it lies, and what is read without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from interlingua.errors import BadInput
from interlingua.files import cache_folder
from interlingua.models.inference.packing import OFFSET_POSITIONS, PACKABLE
from interlingua.models.inference.unigram import MappedSubwords
from interlingua.models.subwords import Subwords

FORMAT = 3
MARKER = "inference.json"
WEIGHTS = "model.safetensors"
TABLE = "embeddings.word_embeddings.weight"
SCALES = ".scales"
"""Ends the names of the scales of int8 weights."""
LEVELS = 127
"""The largest whole number of an int8 weight, or of a token beside it."""
SOURCES = ("*.safetensors", "*.json", "*.txt", "*.model")
SAMPLE = 1 << 16
"""Bytes read at either end of a file to tell it from another one."""


class Config(NamedTuple):
    """The part of a transformers configuration that the vectors depend on."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    layer_norm_eps: float
    pad_token_id: int

    @property
    def positions(self) -> int:
        """The most tokens of a text."""
        offset = self.pad_token_id + 1 if self.model_type in OFFSET_POSITIONS else 0
        return self.max_position_embeddings - offset

    @staticmethod
    def fits(config: Any) -> bool:
        """Whether a transformers configuration is of a model that is computed here."""
        packable = config.model_type in PACKABLE and not getattr(config, "is_decoder", False)
        return packable and config.hidden_act == "gelu" and config.hidden_size % config.num_attention_heads == 0

    @classmethod
    def of(cls, config: Any) -> Config:
        """Read a transformers configuration. Raises BadInput for a model that is computed in another way."""
        if not cls.fits(config):
            raise BadInput(
                f"a {config.model_type} model has no precision to choose: only BERT, RoBERTa and XLM-R with GELU are "
                "computed in bfloat16 or int8 weights. Leave the precision out."
            )
        return cls(*(getattr(config, name) for name in cls._fields))


class Kept(NamedTuple):
    """A conversion in `place`: configuration, most tokens, hashes of the float32 weights, least cosine with float32;
    the `weights_file`, and the prefix of the names in it; the tokenizer."""

    place: Path
    precision: str
    config: Config
    max_length: int
    lines: Mapping[str, str]
    agreement: float
    weights_file: Path
    prefix: str
    subwords: Subwords

    @classmethod
    def read(cls, folder: Path, precision: str) -> Kept:
        """Read the conversion of the model in `folder`. Raises FileNotFoundError where there is none, and OSError,
        ValueError, KeyError or TypeError for a damaged one."""
        place = place_of(folder, precision)
        about = json.loads((place / MARKER).read_text(encoding="utf-8"))
        prefix, vocabulary = about["prefix"], about["vocabulary"]
        return cls(
            place,
            precision,
            Config(**about["config"]),
            about["max_length"],
            about["lines"],
            about["agreement"],
            (place if prefix is None else folder) / WEIGHTS,
            prefix or "",
            _subwords(place, vocabulary),
        )


def _subwords(place: Path, vocabulary: Mapping[str, Any] | None) -> Subwords:
    try:
        if vocabulary is not None:
            return MappedSubwords(place, vocabulary)
        return Subwords(Tokenizer.from_file(str(place / "tokenizer.json")), special=True)
    except (OSError, ValueError, KeyError, TypeError):
        raise
    except Exception as error:  # tokenizers has no class of its own for a file that is damaged, or not there
        raise ValueError(f"its tokenizer cannot be read: {error}") from error


def place_of(folder: Path, precision: str) -> Path:
    """The place of a model folder's conversion. The first part of the name tells folders apart, the second their
    content: the names, sizes, times, and first and last bytes of files."""
    files = sorted({path for pattern in SOURCES for path in folder.glob(pattern)})
    digest = hashlib.sha256(str(FORMAT).encode())
    for path in files:
        size = path.stat().st_size
        digest.update(repr((path.name, size, path.stat().st_mtime_ns)).encode())
        with open(path, "rb") as stream:
            digest.update(stream.read(SAMPLE))
            stream.seek(max(0, size - SAMPLE))
            digest.update(stream.read())
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
    return cache_folder() / "models" / f"{name}-{digest.hexdigest()[:16]}-{precision}"
