from __future__ import annotations

import json
import weakref

import numpy as np
import pytest
import torch

from interlingua.errors import Damaged, InterlinguaError
from interlingua.models.encode import TokenVectors
from interlingua.models.static.encoder import int8_rows
from interlingua.retrieval.late_interaction.token_store import DTYPES, TokenStore


def vectors(counts, dim=8, seed=0):
    return TokenVectors(torch.randn(sum(counts), dim, generator=torch.Generator().manual_seed(seed)), list(counts))


def chunks():
    return [
        (["a", "é\u2028"], vectors([3, 0])),
        (["c"], vectors([1], seed=1)),
        ([], vectors([])),
        (["d", "e"], vectors([5, 2], seed=2)),
    ]


WHOLE = TokenVectors.join(part for _, part in chunks())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_folder_holds_what_memory_holds(dtype, tmp_path):
    held = TokenStore.build(iter(chunks()), dtype=dtype)
    TokenStore.build(iter(chunks()), dtype=dtype, path=tmp_path / "tokens")
    opened = TokenStore.open(tmp_path / "tokens")
    assert isinstance(opened.tokens.base, np.memmap)
    assert opened.ids == held.ids == ["a", "é\u2028", "c", "d", "e"]
    assert opened.dtype == held.dtype == dtype == opened.tokens.dtype
    assert opened.dim == held.dim == 8
    assert len(opened) == len(held) == 5
    assert opened.counts.tolist() == held.counts.tolist() == [3, 0, 1, 5, 2]
    for name in ("tokens", "scales", "offsets"):
        np.testing.assert_array_equal(getattr(opened, name), getattr(held, name))
    assert held.tokens.nbytes == 11 * 8 * np.dtype(dtype).itemsize  # nothing is padded


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_rounding_loses_is_bounded(dtype):
    store = TokenStore.build(chunks(), dtype=dtype)
    for row, true in enumerate(WHOLE):
        found, true = store[row], true.numpy()
        assert found.dtype == np.float32
        assert found.shape == true.shape
        if dtype == "float32":
            np.testing.assert_array_equal(found, true)
        elif dtype == "float16":
            np.testing.assert_allclose(found, true, rtol=2**-11, atol=2**-25)
        else:
            assert (np.abs(found - true) <= np.abs(true).max(axis=1, keepdims=True, initial=0) / 254 * 1.0001).all()
    np.testing.assert_array_equal(store[-1], store[4])
    with pytest.raises(IndexError):
        store[5]


def test_int8_is_symmetric_and_knows_zero():
    given = np.array([[0, 0, 0], [1, -1, 0.5], [-2, 1, 0], [1e-43, -2.6e-43, 0]], dtype=np.float32)
    rounded, scales = int8_rows(given)
    assert rounded[:3].tolist() == [[0, 0, 0], [127, -127, 64], [-127, 64, 0]]  # rint(63.5) is 64
    assert scales[:3].tolist() == [0, np.float32(1) / np.float32(127), np.float32(2) / np.float32(127)]
    assert rounded[3].tolist() == [71, -127, 0]  # a scale that cannot be exact does not wrap around
    mirrored, same = int8_rows(-given)
    assert (mirrored == -rounded).all()
    assert (same == scales).all()


def test_chunks_go_to_the_disk_one_after_another(tmp_path):
    seen = []

    def source():
        for number in range(6):
            array = np.full((4, 3), number, dtype=np.float32)
            seen.append(weakref.ref(array))
            part = TokenVectors(torch.from_numpy(array), [4])
            del array
            yield [str(number)], part
            del part
            assert sum(chunk() is not None for chunk in seen) <= 1

    store = TokenStore.build(source(), path=tmp_path / "tokens")
    assert [store[row][0, 0] for row in range(len(store))] == [0, 1, 2, 3, 4, 5]


def test_passages_without_any_token(tmp_path):
    for dtype in DTYPES:
        store = TokenStore.build([(["a", "b"], vectors([0, 0]))], dtype=dtype, path=tmp_path / dtype)
        assert store[1].shape == (0, 8)
        assert store.dim == 8


def test_vectors_may_be_moved_to_a_device(tmp_path):
    store = TokenStore.build(chunks(), dtype="int8", path=tmp_path / "tokens")
    moved = store.to("cpu")
    assert isinstance(moved.tokens, torch.Tensor)
    assert moved.dtype == "int8"
    np.testing.assert_array_equal(moved[3], store[3])


def test_a_failure_leaves_the_older_store_and_a_success_replaces_it(tmp_path):
    path = tmp_path / "tokens"
    TokenStore.build(chunks(), path=path)

    def broken():
        yield from chunks()[:1]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        TokenStore.build(broken(), dtype="int8", path=path)
    assert len(TokenStore.open(path)) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["tokens"]
    TokenStore.build(chunks()[:1], dtype="int8", path=path)
    assert TokenStore.open(path).ids == ["a", "é\u2028"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        TokenStore.build(chunks(), path=tmp_path / "mine")


HUGE = TokenVectors(torch.tensor([[1.0], [1e5]]), [1, 1])
NAN = TokenVectors(torch.tensor([[1.0], [2.0], [float("nan")]]), [2, 0, 1])


@pytest.mark.parametrize(
    ("given", "dtype", "message"),
    [
        ([(["a"], vectors([1])), (["b", "a"], vectors([1, 1]))], "float32", "'a' occurs twice"),
        ([(["a"], vectors([1, 2]))], "float32", "2 passages of size 8 came with 1 ids"),
        ([(["a"], vectors([1])), (["b"], vectors([1], dim=9))], "float32", "size 9 .* the size is 8"),
        ([(["a", "b", "c"], NAN)], "float32", "passage 'c'"),
        ([(["a", "b", "c"], NAN)], "int8", "passage 'c'"),
        ([(["a", "b"], HUGE)], "float16", "passage 'b'.*float16"),
        ([], "float32", "no passage"),
        ([([], vectors([]))], "int8", "no passage"),
        ([], "bfloat16", "Did you mean 'float16'"),
    ],
)
def test_what_cannot_be_stored_is_refused(given, dtype, message, tmp_path):
    for path in (None, tmp_path / "tokens"):
        with pytest.raises(InterlinguaError, match=message):
            TokenStore.build(given, dtype=dtype, path=path)
    assert not list(tmp_path.iterdir())


def test_what_does_not_belong_together_is_damage(tmp_path, without_checksums):
    path = tmp_path / "tokens"
    TokenStore.build(chunks(), dtype="int8", path=path)
    without_checksums(path)
    about = json.loads((path / "tokens.json").read_text())
    facts = about["facts"]
    for change in ({"ids": ["a"]}, {"dtype": "float32"}, {"dtype": "object"}, {"ids": 3}, {"ids": None}):
        (path / "tokens.json").write_text(json.dumps({**about, "facts": {**facts, **change}}))
        with pytest.raises(Damaged, match="is damaged"):
            TokenStore.open(path)
    (path / "tokens.json").write_text(json.dumps(about))
    np.save(path / "offsets.npy", TokenStore.open(path).offsets[::-1])
    with pytest.raises(Damaged, match="do not agree"):
        TokenStore.open(path)


def test_a_part_takes_one_open_file(tmp_path):
    """An index may have a great many."""
    TokenStore.build(chunks(), dtype="int8", path=tmp_path / "tokens")
    store = TokenStore.open(tmp_path / "tokens")
    assert isinstance(store.tokens.base, np.memmap)
    assert not any(isinstance(array.base, np.memmap) for array in (store.offsets, store.scales))
