from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index.export import EncodedParts, encoded, read_parquet, write_npy, write_parquet
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.retriever import embed_passages


def passages(sentences):
    return [
        Passage(f"p{i}", text, title="T" * (i % 2), lang="xx", metadata={"n": str(i)} if i % 3 else {})
        for i, text in enumerate(sentences)
    ]


@pytest.fixture(scope="module")
def encoder(tiny_static):
    return tiny_static()


def test_vectors_are_those_an_index_keeps(encoder, sentences):
    rows = passages(sentences)
    chunks = list(encoded(encoder, iter(rows), 4))
    assert [len(part) for part, _ in chunks] == [4, 4, 4, 1]
    whole = encoder.encode_document([(p.title, p.text) if p.title else p.text for p in rows])
    assert np.allclose(np.concatenate([vectors for _, vectors in chunks]), whole, atol=1e-6)


def test_parquet_has_the_columns_and_gives_back_what_was_written(encoder, sentences, tmp_path):
    rows, file = passages(sentences), tmp_path / "deep/vectors.parquet"
    chunks = list(encoded(encoder, rows, 4))
    assert write_parquet(file, iter(chunks)) == len(rows)
    held = pq.ParquetFile(file)
    assert held.schema_arrow.names[:4] == ["id", "lang", "vector", "text"]
    assert held.schema_arrow.field("vector").type == pa.list_(pa.float32(), encoder.dim)
    assert held.num_row_groups == 4  # streamed: no row group is larger than a chunk
    again = list(read_parquet(file))
    assert [p for part, _ in again for p in part] == rows
    assert np.array_equal(np.concatenate([v for _, v in again]), np.concatenate([v for _, v in chunks]))


def test_npy_is_memory_mapped_and_line_i_is_row_i(encoder, sentences, tmp_path):
    rows = passages(sentences) * 1
    chunks = list(encoded(encoder, rows, 5))
    assert write_npy(tmp_path / "out", iter(chunks)) == len(rows)
    array = np.load(tmp_path / "out/vectors.npy", mmap_mode="r")
    assert isinstance(array, np.memmap)
    assert array.dtype == np.float32
    assert np.array_equal(array, np.concatenate([v for _, v in chunks]))
    lines = [json.loads(line) for line in (tmp_path / "out/ids.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [Passage(**line) for line in lines] == rows


@pytest.mark.parametrize("count", [1, 9, 10_000, 123_456])
def test_the_header_of_npy_has_room_for_any_number_of_rows(count, tmp_path):
    one = np.arange(2, dtype=np.float32)
    part = [Passage("x", "x")] * 1000
    sizes = [1000] * (count // 1000) + [count % 1000]
    write_npy(tmp_path / "out", ((part[:size], np.tile(one, (size, 1))) for size in sizes))
    assert np.array_equal(np.load(tmp_path / "out/vectors.npy"), np.tile(one, (count, 1)))


@pytest.mark.parametrize("write", [write_parquet, write_npy])
def test_a_failure_leaves_what_was_there(write, encoder, sentences, tmp_path):
    rows = passages(sentences)
    write(tmp_path / "out", encoded(encoder, rows[:3]))

    def broken():
        yield from encoded(encoder, rows[:2])
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError):
        write(tmp_path / "out", broken())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(InterlinguaError, match="no passage"):
        write(tmp_path / "out", iter([]))
    if write is write_parquet:
        assert [p for part, _ in read_parquet(tmp_path / "out") for p in part] == rows[:3]
    else:
        assert len(np.load(tmp_path / "out/vectors.npy")) == 3


def test_a_lone_surrogate_is_named_and_other_files_are_refused(tmp_path):
    with pytest.raises(InterlinguaError, match=r"passage 'b'.*valid Unicode"):
        write_parquet(tmp_path / "x", [([Passage("a", "fine"), Passage("b", "\ud800")], np.zeros((2, 3), np.float32))])
    (tmp_path / "photo.parquet").write_bytes(b"PAR1" + bytes(40))
    with pytest.raises(InterlinguaError, match=r"photo\.parquet: is damaged"):
        list(read_parquet(tmp_path / "photo.parquet"))
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(InterlinguaError, match="not a file of vectors"):
        list(read_parquet(tmp_path / "other.parquet"))


def test_parts_know_passages_of_one_id_by_their_sources(tiny_static, tmp_path):
    model = DualEncoder.tied(tiny_static())
    pages = [
        Passage("1", text, lang=lang, metadata={"source": f"{lang}.jsonl"})
        for lang, text in (("en", "a small blue book"), ("fi", "pieni sininen kirja"))
    ]
    write_parquet(tmp_path / "part.parquet", encoded(model, pages, 2))
    vectors = EncodedParts(model, [tmp_path / "part.parquet"]).passage_vectors(pages)
    assert np.array_equal(vectors, embed_passages(model, pages))
    assert not np.array_equal(vectors[0], vectors[1])
