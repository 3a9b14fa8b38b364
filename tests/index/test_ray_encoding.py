from __future__ import annotations

import re
import socket
import sys

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import Index
from interlingua.index import ray as ray_encoding
from interlingua.index.export import EncodedParts, read_parquet
from interlingua.index.ray import PartEncoder, build_index_on_ray, encode_on_ray
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.retriever import embed_passages


def passages(sentences, count):
    return [
        Passage(f"p{i}", sentences[i % len(sentences)][: 5 + i], title="T" * (i % 2), lang="fi", metadata={"n": str(i)})
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def model(tiny_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_encoder(pooling="mean").save(folder)
    return folder


class Here:
    """In the place of Ray: one worker, in this process, from the last part to the first. Of several calls `stop_after`
    parts the first ends; `asked` counts the parts of each call."""

    def __init__(self, stop_after=None):
        self.stop_after, self.asked = stop_after, []

    def encode(self, model, folder, todo, workers, options):
        self.asked.append(len(todo))
        worker = PartEncoder(model, str(folder), options)
        for name in reversed(todo[: self.stop_after]):
            worker({"part": [name]})
        if self.stop_after is not None:
            self.stop_after = None
            raise KeyboardInterrupt


@pytest.fixture
def here(monkeypatch):
    cluster = Here()
    monkeypatch.setattr(ray_encoding, "connected", lambda address: cluster)
    return cluster


def contents(parts):
    chunks = [chunk for part in parts for chunk in read_parquet(part)]
    return [p for held, _ in chunks for p in held], np.concatenate([vectors for _, vectors in chunks])


@pytest.mark.slow
def test_parts_hold_all_passages_in_order_whoever_came_first(model, sentences, tmp_path, here):
    given = passages(sentences, 23)
    parts = encode_on_ray(str(model), iter(given), tmp_path / "parts", size=5)
    found, vectors = contents(parts)
    assert found == given
    assert np.allclose(vectors, embed_passages(DualEncoder.load(model), given), atol=1e-6)
    assert sorted((tmp_path / "parts").iterdir()) == parts  # nothing else is left


def test_every_machine_computes_in_the_precision_that_is_named(model, sentences, tmp_path, here):
    given = passages(sentences, 9)
    parts = encode_on_ray(str(model), given, tmp_path / "parts", precision="int8")
    _, vectors = contents(parts)
    assert np.allclose(vectors, embed_passages(DualEncoder.load(model, precision="int8"), given), atol=1e-6)
    encode_on_ray(str(model), given, tmp_path / "parts")
    assert here.asked == [1, 1]  # those of another precision are not these
    index = build_index_on_ray(str(model), given, tmp_path / "idx", precision="int8")
    assert index.search(given[0].text, 1)[0].passage == given[0]
    with pytest.raises(InterlinguaError, match="each machine of a cluster may choose another"):
        encode_on_ray(str(model), given, tmp_path / "parts", precision="auto")


def test_only_what_is_missing_or_has_changed_is_encoded_again(model, sentences, tmp_path, here):
    here.stop_after = 2
    given = passages(sentences, 23)
    with pytest.raises(KeyboardInterrupt):
        encode_on_ray(str(model), given, tmp_path / "parts", size=5)
    changed = [*given[:-1], Passage("p22", "other", lang="fi")]
    parts = encode_on_ray(str(model), changed, tmp_path / "parts", size=5)
    assert here.asked == [5, 3]
    assert contents(parts)[0] == changed
    parts = encode_on_ray(str(model), given, tmp_path / "parts", size=5)
    assert here.asked == [5, 3, 1]
    assert sorted((tmp_path / "parts").iterdir()) == parts  # the part of the other text is gone
    DualEncoder.load(model, max_length=8).save(tmp_path / "short")
    encode_on_ray(str(tmp_path / "short"), given, tmp_path / "parts", size=5)
    assert here.asked[-1] == 5  # another model: all of them


def test_parts_that_nobody_wrote_are_an_error(model, sentences, tmp_path, here, monkeypatch):
    monkeypatch.setattr(here, "encode", lambda *told: None)
    with pytest.raises(InterlinguaError, match="5 of 5 parts were not written"):
        encode_on_ray(str(model), passages(sentences, 23), tmp_path / "parts", size=5)
    with pytest.raises(InterlinguaError, match="'p0' occurs twice"):
        encode_on_ray(str(model), passages(sentences, 3) * 2, tmp_path / "twice", size=5)
    with pytest.raises(InterlinguaError, match="no passage"):
        encode_on_ray(str(model), [], tmp_path / "none")
    with pytest.raises(InterlinguaError, match="not seen on this machine"):
        PartEncoder(ray_encoding.Model(str(model)), str(tmp_path / "elsewhere"), {})({"part": ["part-0.parquet"]})


def test_files_of_others_beside_the_parts_stay(model, sentences, tmp_path, here):
    theirs = tmp_path / "part-00000-9d1c.snappy.parquet"
    theirs.write_bytes(b"of Spark")
    encode_on_ray(str(model), passages(sentences, 3), tmp_path)
    assert theirs.read_bytes() == b"of Spark"


@pytest.mark.slow
def test_a_slash_behind_the_place_does_not_move_the_parts_into_it(model, sentences, tmp_path, here):
    assert len(build_index_on_ray(str(model), passages(sentences, 3), f"{tmp_path}/idx/")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["idx"]


@pytest.mark.slow
def test_an_index_of_parts_is_the_index_of_the_passages(model, sentences, tmp_path, here, monkeypatch):
    given, encoder = passages(sentences, 23), DualEncoder.load(model)
    parts = encode_on_ray(str(model), given, tmp_path / "parts", size=5)
    known = EncodedParts(encoder, parts)
    monkeypatch.setattr(encoder.passage, "encode_document", None)  # no passage is encoded any more
    built = Index.build(known, known.passages(), tmp_path / "idx")
    monkeypatch.undo()
    plain = Index.build(encoder, given, tmp_path / "plain")
    for text in sentences:
        found, expected = built.search(text, 5), Index.open(tmp_path / "plain", encoder).search(text, 5)
        assert [hit.passage for hit in found] == [hit.passage for hit in expected]
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-5)
    assert len(plain) == 23
    rest = EncodedParts(encoder, parts)
    assert rest.passage_vectors(given[7:8]).shape == (1, 32)
    with pytest.raises(InterlinguaError, match="is not among those that were encoded"):
        rest.passage_vectors(given[:1])


@pytest.fixture
def listener():
    """A port that takes connections, and answers nothing."""
    with socket.create_server(("127.0.0.2" if sys.platform == "linux" else "127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "patience", "reason"),
    [
        ("127.0.0.2:1", 20, "nobody listens there (Connection refused)"),
        ("{listener}", 3, "no answer in 3 seconds"),
        ("ray://{listener}", 3, "no answer in 3 seconds"),
        ("somewhere", 20, "somewhere"),
    ],
)
def test_a_cluster_that_is_not_there_is_told(
    model, sentences, tmp_path, monkeypatch, listener, address, patience, reason
):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'interlingua[ray]')")
    monkeypatch.setattr(ray_encoding, "PATIENCE", patience)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    address = address.format(listener=":".join(map(str, listener)))
    with pytest.raises(InterlinguaError, match=f"no cluster is reached at '{address}': .*{re.escape(reason)}") as error:
        encode_on_ray(str(model), passages(sentences, 23), tmp_path / "parts", address=address)
    assert "\n" not in str(error.value)
