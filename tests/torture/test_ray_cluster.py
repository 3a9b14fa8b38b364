"""Ray as a person types it: nodes that are started and killed, and a cluster that is gone."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.index import Index
from interlingua.index.export import read_parquet
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.retriever import embed_passages

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tiny_encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_encoder(pooling="mean").save(folder)
    return folder


def contents(parts):
    chunks = [chunk for part in parts for chunk in read_parquet(part)]
    return [p for held, _ in chunks for p in held], np.concatenate([vectors for _, vectors in chunks])


@pytest.fixture(scope="module")
def environment():
    """Of processes that know no cluster of this machine but those of each other. (Sockets want a short path.)"""
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'interlingua[ray]')")
    folder = Path(tempfile.mkdtemp(prefix="ray"))
    known = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    yield {**known, "RAY_TMPDIR": str(folder), "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def place(tiny_static, sentences, tmp_path_factory):
    """A folder with MODEL and handbook/."""
    folder = tmp_path_factory.mktemp("place")
    tiny_static().save(folder / "MODEL")
    (folder / "handbook").mkdir()
    for number, text in enumerate(sentences):
        (folder / "handbook" / f"{number}.md").write_text(f"# Page {number}\n\n{text}\n", encoding="utf-8")
    return folder


def interlingua(place, environment, *words, code=0):
    """What a command says in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "interlingua", *words],
        cwd=place,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=240,
    )
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_without_an_address_a_local_node_is_bound_to_loopback(place, environment, tmp_path):
    alone = {**environment, "RAY_TMPDIR": tempfile.mkdtemp(prefix="ray")}
    try:
        assert "Ray: 1 machines" in interlingua(place, alone, "index", "MODEL", "handbook/", "--out", "alone", "--ray")
        log = Path(alone["RAY_TMPDIR"], "ray/session_latest/logs/raylet.out").read_text(encoding="utf-8")
        assert "127.0.0.2" in log or sys.platform != "linux"
    finally:
        shutil.rmtree(alone["RAY_TMPDIR"], ignore_errors=True)
    assert len(Index.open(place / "alone")) == len(list((place / "handbook").iterdir()))


def runs_on(process: subprocess.Popen[Any], seconds: float) -> bool:
    """Whether it has not ended within this time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


class Cluster:
    """The nodes of docs/scale.md, with a port that is free here."""

    def __init__(self, environment: dict[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.2", 0))
            self.port = str(free.getsockname()[1])
        text = Path(__file__).parents[2].joinpath("docs/scale.md").read_text(encoding="utf-8")
        text = text.partition("## Ray\n")[2].partition("## Milvus\n")[0].replace("6379", self.port)
        self.lines = "".join(re.findall(r"^```\n(.*?)^```", text, re.S | re.M)).splitlines()
        self.environment = {
            **environment,
            # a machine that refuses connections is given up after 2 seconds, and not 15
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
            "RAY_health_check_timeout_ms": "30000",
        }
        self.nodes: list[subprocess.Popen[bytes]] = []

    def run(self, beginning: str) -> list[str]:
        """Words of the lines that begin so, without the first."""
        return [word for line in self.lines if line.startswith(beginning) for word in shlex.split(line)[1:]]

    def __enter__(self) -> Cluster:
        try:
            self.environment |= dict(word.split("=") for word in self.run("export "))
            ray = Path(sys.executable).with_name("ray")
            subprocess.run(
                [ray, *self.run("ray get-auth-token")], env=self.environment, check=True, capture_output=True
            )
            for line in ("ray start --head", "ray start --address"):
                self.start([str(ray), *self.run(line)])
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self, command: list[str]) -> None:
        log = Path(self.environment["RAY_TMPDIR"], f"node{len(self.nodes)}.log")
        with open(log, "wb") as stream:
            node = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True, env=self.environment
            )
        self.nodes.append(node)
        deadline = time.monotonic() + 90
        while b"Ray runtime started" not in log.read_bytes():
            assert runs_on(node, 0.2), log.read_text()
            assert time.monotonic() < deadline, log.read_text()

    def kill(self, node: int) -> None:
        os.killpg(self.nodes[node].pid, signal.SIGKILL)
        self.nodes[node].wait()

    def __exit__(self, *raised: object) -> None:
        for number, node in enumerate(self.nodes):
            if node.poll() is None:
                self.kill(number)


@pytest.fixture(scope="module")
def cluster(environment):
    if sys.platform != "linux":
        pytest.skip("127.0.0.2 and 127.0.0.3 are addresses of this machine on Linux only")
    with Cluster(environment) as cluster:
        yield cluster


def test_the_two_nodes_of_the_docs_encode(cluster, place):
    told = interlingua(place, cluster.environment, *cluster.run("interlingua index"))
    assert "Ray: 2 machines, 2 workers, 1 parts" in told
    assert len(Index.open(place / "idx")) == len(list((place / "handbook").iterdir()))
    # without the token
    told = interlingua(
        place,
        {**cluster.environment, "RAY_AUTH_MODE": "disabled"},
        "encode",
        "MODEL",
        "handbook/",
        "--out",
        "refused",
        f"--ray=127.0.0.2:{cluster.port}",
        code=2,
    )
    assert "it wants a token. Set RAY_AUTH_MODE=token" in told.splitlines()[-1]


def encoded_while_killing(cluster, model, sentences, tmp_path):
    """Encode 120 parts on the cluster that this machine belongs to, which is named nowhere; one machine is killed after
    25. What the person was told."""
    script = f"""
from interlingua.data.records import Passage
from interlingua.index.ray import encode_on_ray
from interlingua.progress import shown
sentences = {sentences!r}
given = [Passage(f"q{{i}}", " ".join(sentences)[: 40 + i], lang="fi") for i in range(360)]
with shown():
    encode_on_ray({str(model)!r}, given, {str(tmp_path / "parts")!r}, size=3)
"""
    driver = subprocess.Popen(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, env=cluster.environment
    )
    try:
        deadline = time.monotonic() + 180
        while (written := len(list((tmp_path / "parts").glob("part-*")))) < 25:
            assert runs_on(driver, 0.02), driver.stderr.read()
            assert time.monotonic() < deadline
        cluster.kill(1)
        assert written < 90  # it was half way
        told = driver.communicate(timeout=240)[1]
        assert driver.returncode == 0, told
        return told
    finally:
        driver.kill()
        driver.wait()


def test_a_machine_that_is_killed_half_way_loses_nothing(cluster, model, sentences, tmp_path):
    given = [Passage(f"q{i}", " ".join(sentences)[: 40 + i], lang="fi") for i in range(360)]
    told = encoded_while_killing(cluster, model, sentences, tmp_path)
    assert "Ray: 2 machines, 2 workers, 120 parts" in told
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) == 120
    found, vectors = contents(parts)
    assert found == given
    assert np.allclose(vectors, embed_passages(DualEncoder.load(model), given), atol=1e-6)


def test_a_cluster_that_this_machine_belonged_to_and_is_gone_is_told(place, environment, tmp_path):
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("127.0.0.2:1")
    told = interlingua(
        place,
        {**environment, "RAY_TMPDIR": str(tmp_path)},
        "encode",
        "MODEL",
        "handbook/",
        "--out",
        "never",
        "--ray",
        code=2,
    )
    assert "127.0.0.2:1': nobody listens there" in told.splitlines()[-1]
    assert "--ray=local" in told.splitlines()[-1]
    assert "Traceback" not in told
