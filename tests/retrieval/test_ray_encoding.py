from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.retrieval import Index, ray_encoding
from interlingua.retrieval.encoded_parts import EncodedParts
from interlingua.retrieval.ray_encoding import PartEncoder, encode_on_ray
from interlingua.retrieval.ray_index import build_index_on_ray
from interlingua.retrieval.vector_files import read_parquet
from interlingua.retrieval.vectors import embed_passages


def passages(sentences, count):
    return [Passage(f"p{i}", sentences[i % len(sentences)][: 5 + i], title="T" * (i % 2), lang="fi",
                    metadata={"n": str(i)}) for i in range(count)]


@pytest.fixture(scope="module")
def model(tiny_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_encoder(pooling="mean").save(folder)
    return folder


def here(model, folder, todo, address, workers, options):
    """In the place of Ray: one worker, in this process, from the last part to the first."""
    worker = PartEncoder(model, str(folder), options)
    for name in reversed(todo):
        worker({"part": [name]})


def contents(parts):
    chunks = [chunk for part in parts for chunk in read_parquet(part)]
    return [p for held, _ in chunks for p in held], np.concatenate([vectors for _, vectors in chunks])


def test_parts_hold_all_passages_in_order_whoever_came_first(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_encoding, "_encode", here)
    given = passages(sentences, 23)
    parts = encode_on_ray(str(model), iter(given), tmp_path / "parts", size=5)
    found, vectors = contents(parts)
    assert found == given
    assert np.allclose(vectors, embed_passages(DualEncoder.load(model), given), atol=1e-6)
    assert sorted((tmp_path / "parts").iterdir()) == parts  # nothing else is left


def test_only_what_is_missing_or_has_changed_is_encoded_again(model, sentences, tmp_path, monkeypatch):
    done = []

    def stops(model, folder, todo, *rest):
        here(model, folder, todo[:2], *rest)
        done.append(list(todo))
        raise KeyboardInterrupt

    given = passages(sentences, 23)
    monkeypatch.setattr(ray_encoding, "_encode", stops)
    with pytest.raises(KeyboardInterrupt):
        encode_on_ray(str(model), given, tmp_path / "parts", size=5)
    monkeypatch.setattr(ray_encoding, "_encode", lambda *told: (done.append(list(told[2])), here(*told)))
    changed = [*given[:-1], Passage("p22", "other", lang="fi")]
    parts = encode_on_ray(str(model), changed, tmp_path / "parts", size=5)
    assert [len(names) for names in done] == [5, 3]
    assert contents(parts)[0] == changed
    parts = encode_on_ray(str(model), given, tmp_path / "parts", size=5)
    assert [len(names) for names in done] == [5, 3, 1]
    assert sorted((tmp_path / "parts").iterdir()) == parts  # the part of the other text is gone
    DualEncoder.load(model, max_length=8).save(tmp_path / "short")
    encode_on_ray(str(tmp_path / "short"), given, tmp_path / "parts", size=5)
    assert len(done[-1]) == 5  # another model: all of them


def test_parts_that_nobody_wrote_are_an_error(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_encoding, "_encode", lambda *told: None)
    with pytest.raises(InterlinguaError, match="5 of 5 parts were not written"):
        encode_on_ray(str(model), passages(sentences, 23), tmp_path / "parts", size=5)
    with pytest.raises(InterlinguaError, match="'p0' occurs twice"):
        encode_on_ray(str(model), passages(sentences, 3) * 2, tmp_path / "twice", size=5)
    with pytest.raises(InterlinguaError, match="no passage"):
        encode_on_ray(str(model), [], tmp_path / "none")
    with pytest.raises(InterlinguaError, match="not seen on this machine"):
        PartEncoder(str(model), str(tmp_path / "elsewhere"), {})({"part": ["part-0.parquet"]})


def test_files_of_others_beside_the_parts_stay(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_encoding, "_encode", here)
    theirs = tmp_path / "part-00000-9d1c.snappy.parquet"
    theirs.write_bytes(b"of Spark")
    encode_on_ray(str(model), passages(sentences, 3), tmp_path)
    assert theirs.read_bytes() == b"of Spark"


def test_a_slash_behind_the_place_does_not_move_the_parts_into_it(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_encoding, "_encode", here)
    assert len(build_index_on_ray(str(model), passages(sentences, 3), f"{tmp_path}/idx/")) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["idx"]


def test_an_index_of_parts_is_the_index_of_the_passages(model, sentences, tmp_path, monkeypatch):
    monkeypatch.setattr(ray_encoding, "_encode", here)
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


class Cluster:
    """Two machines of Ray on this one, each with a processor of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        self.nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        try:
            self.start("--head", f"--port={self.port}", "--include-dashboard=false")
            self.start(f"--address=127.0.0.1:{self.port}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, *options: str) -> None:
        ray = Path(sys.executable).with_name("ray")
        log = open(self.folder / f"node{len(os.listdir(self.folder))}.log", "wb")  # noqa: SIM115 (the process keeps it)
        node = subprocess.Popen([ray, "start", *options, "--num-cpus=1", "--num-gpus=0", "--block",
                                 "--object-store-memory=80000000", "--disable-usage-stats",
                                 "--node-ip-address=127.0.0.1"],
                                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=self.environment)
        self.nodes.append(node)
        deadline = time.monotonic() + 90
        while b"Ray runtime started" not in Path(log.name).read_bytes():
            assert node.poll() is None, Path(log.name).read_text()
            assert time.monotonic() < deadline, Path(log.name).read_text()
            time.sleep(0.2)

    def kill(self, node: int) -> None:
        os.killpg(self.nodes[node].pid, signal.SIGKILL)
        self.nodes[node].wait()

    def __exit__(self, *raised: object) -> None:
        for number, node in enumerate(self.nodes):
            if node.poll() is None:
                self.kill(number)


def encoded_while_killing(cluster, model, sentences, tmp_path):
    """Encode 200 parts on the cluster, of which one machine is killed after 40; what the person was told."""
    script = f"""
from interlingua.data.records import Passage
from interlingua.retrieval.ray_encoding import encode_on_ray
sentences = {sentences!r}
given = [Passage(f"q{{i}}", " ".join(sentences)[: 40 + i], lang="fi") for i in range(600)]
encode_on_ray({str(model)!r}, given, {str(tmp_path / 'parts')!r}, address="127.0.0.1:{cluster.port}", size=3)
"""
    driver = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True,
                              env=cluster.environment)
    try:
        deadline = time.monotonic() + 180
        while (written := len(list((tmp_path / "parts").glob("part-*")))) < 40:
            assert driver.poll() is None, driver.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        cluster.kill(1)
        assert written < 150  # it was half way
        told = driver.communicate(timeout=240)[1]
        assert driver.returncode == 0, told
        return told
    finally:
        driver.kill()
        driver.wait()


@pytest.mark.slow
def test_a_machine_that_is_killed_half_way_loses_nothing(model, sentences, tmp_path):
    pytest.importorskip("ray")
    given = [Passage(f"q{i}", " ".join(sentences)[: 40 + i], lang="fi") for i in range(600)]
    (tmp_path / "logs").mkdir()
    with Cluster(tmp_path / "logs") as cluster:
        told = encoded_while_killing(cluster, model, sentences, tmp_path)
    assert "Ray: 2 machines, 2 workers, 200 parts" in told
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) == 200
    found, vectors = contents(parts)
    assert found == given
    assert np.allclose(vectors, embed_passages(DualEncoder.load(model), given), atol=1e-6)
