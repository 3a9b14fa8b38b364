"""Tiny models for every test: an XLM-R-shaped transformer and a Unigram tokenizer, random but seeded, made offline."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # also of the processes that tests start: each core has a worker already

import contextlib
import gc
import json
import math
import multiprocessing
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # imported where a test asks: the process that only hands out tests needs none of it
    from transformers import PreTrainedTokenizerFast

    from interlingua.models.encoder import Encoder

SENTENCES = (
    "The lighthouse keeper wrote every storm into a small blue book.",
    "Who wrote the first book about the stars of the southern sky?",
    "Two rivers meet below the old town, and a bridge crosses both.",
    "يكتب حارس المنارة كل عاصفة في دفتر صغير أزرق.",
    "বাতিঘরের রক্ষক প্রতিটি ঝড়ের কথা একটি ছোট নীল খাতায় লিখতেন।",
    "Majakanvartija kirjoitti jokaisen myrskyn pieneen siniseen kirjaan.",
    "Penjaga mercusuar mencatat setiap badai di buku biru kecil.",
    "灯台守はすべての嵐を小さな青い本に書き留めた。",
    "등대지기는 모든 폭풍을 작은 파란 책에 적었다.",
    "Смотритель маяка записывал каждую бурю в маленькую синюю книгу.",
    "Mlinzi wa mnara aliandika kila dhoruba katika kitabu kidogo cha bluu.",
    "లైట్‌హౌస్ కాపలాదారు ప్రతి తుఫానును చిన్న నీలి పుస్తకంలో రాశాడు.",
    "คนเฝ้าประภาคารจดพายุทุกลูกลงในสมุดสีฟ้าเล่มเล็ก",
)


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_auto_num_workers() -> int:
    """One more than the cores that are ours, up to 8: tests often wait for processes that they started. Each worker
    imports everything once and builds what tests share."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    limit = Path("/sys/fs/cgroup/cpu.max")  # of a container: "200000 100000" is two cores
    if limit.exists() and (said := limit.read_text().split())[0] != "max":
        cores = min(cores, int(said[0]) / int(said[1]))
    return min(8, max(1, round(cores)) + 1)


gc.disable()  # until all modules are imported


def pytest_collection_finish() -> None:
    """What was imported stays. Looking through it for garbage again and again takes a fifth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


FIRST = "test_ray_cluster.py"
"""Its tests wait most of the time for processes of Ray: begun first, they wait while other tests run beside them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    items.sort(key=lambda item: item.path.name != FIRST)
    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device; on such a machine: make test TORCH=cuda"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What was not tested, a line for each reason."""
    if lines := not_tested(report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.section("not tested")
        terminalreporter.write("".join(f"{line}\n" for line in lines))


def not_tested(reasons: Iterable[str]) -> list[str]:
    """A line for each reason for which tests were skipped, the most common first. The reason of a test says which
    command adds it; for a package that `importorskip` did not find it is said here."""
    plain = (reason.removeprefix("Skipped: ") for reason in reasons)
    named = (
        re.sub(
            r"could not import '([^'.]+).*",
            lambda found: "needs a package: .venv/bin/pip install " + found[1].replace("_", "-"),
            reason,
            flags=re.DOTALL,
        )
        for reason in plain
    )
    return [f"{count} {'tests' if count > 1 else 'test'}: {reason}" for reason, count in Counter(named).most_common()]


_FORKED = """
import os, runpy, sys
for number, end in enumerate(ends):
    os.dup2(end.fileno(), number)
    end.close()
sys.stdin = open(0, closefd=False)
os.environ.clear()
os.environ.update(environment)
import torch
torch.set_num_threads(1)
if arguments[0] == "-c":
    sys.argv = ["-c", *arguments[2:]]
    exec(arguments[1], {"__name__": "__main__"})
elif arguments[0] == "-m":
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
else:
    sys.argv = arguments
    runpy.run_path(arguments[0], run_name="__main__")
"""


class Python:
    """Python in a process of its own, as `subprocess.Popen([sys.executable, *arguments])` starts it with its three
    streams as text. It is forked from a process that has imported the large packages and nothing else, which saves
    the seconds that every start would take for them. Not for what is about imports or memory."""

    def __init__(self, *arguments: str | Path, **environment: str) -> None:
        context = multiprocessing.get_context("forkserver")
        pipes = [context.Pipe(duplex=False) for _ in range(3)]
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
        theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
        self.process = context.Process(
            target=exec,
            args=(
                _FORKED,
                {"ends": theirs, "arguments": list(map(str, arguments)), "environment": {**os.environ, **environment}},
            ),
        )
        self.process.start()
        for end in theirs:
            end.close()
        self.stdin, self.stdout, self.stderr = (
            open(os.dup(end.fileno()), mode, encoding="utf-8")  # noqa: SIM115 (open as long as the process)
            for end, mode in zip(ours, "wrr", strict=True)
        )
        for end in ours:
            end.close()

    def poll(self) -> int | None:
        """How it ended: its code, minus the signal that ended it, or None while it runs."""
        return self.process.exitcode

    @property
    def returncode(self) -> int | None:
        return self.poll()

    def send_signal(self, number: int) -> None:
        os.kill(self.process.pid or 0, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        if self.poll() is None:
            self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """End it, if it still runs."""
        self.kill()
        self.process.join()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """What it wrote until it ended. Raises subprocess.TimeoutExpired where that takes too long."""
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        said: list[str] = []
        reading = threading.Thread(target=lambda: said.append(self.stdout.read()))
        reading.start()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        wrong = self.stderr.read()
        reading.join()
        self.process.join()
        late = not timer.is_alive()
        timer.cancel()
        self.close()
        if late:
            raise subprocess.TimeoutExpired("python", timeout, said[0], wrong)
        return said[0], wrong


@pytest.fixture(scope="session")
def python() -> Callable[..., Python]:
    """`python("-m", "interlingua", …, NAME="value of the environment")`: a `Python` that has been started."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(
        [
            "interlingua.cli",
            "interlingua.training.build",
            "interlingua.index.index",
            "interlingua.serving.app",
            "interlingua.serving.server",
            "interlingua.models.late_interaction",
            "torch.distributed",
            "yaml",
        ]
    )
    return Python


@pytest.fixture
def running(python: Callable[..., Any]) -> Callable[..., Any]:
    """`with running(*arguments of Python, **environment) as (process, port)`, a server, once it says its address."""

    @contextmanager
    def start(*arguments: str | Path, **environment: str) -> Iterator[tuple[Any, int]]:
        process = python(*arguments, **environment)
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if line.startswith("http://127.0.0.1:"):
                    yield process, int(line.split()[0].rpartition(":")[2])
                    break
            else:
                pytest.fail("".join(said))
        finally:
            process.close()

    return start


def _tokenizer(max_length: int = 64) -> PreTrainedTokenizerFast:
    """A Unigram vocabulary without training: every character, and every word and half word of the sentences."""
    from interlingua.training.backbones import unigram_tokenizer

    counts: Counter[str] = Counter({chr(code): 2 for code in range(32, 127)})
    counts["▁"] = 5
    for sentence in SENTENCES:
        counts.update(sentence)
        for word in sentence.split():
            counts.update({"▁" + word: 3, "▁" + word[: len(word) // 2 + 1]: 3, word[len(word) // 2 :]: 2})
    total = sum(counts.values())
    pieces = sorted((piece, math.log(count / total)) for piece, count in counts.items() if piece != " ")
    return unigram_tokenizer(pieces, max_length=max_length)


def _encoder(
    *, pooling: str = "cls", layers: int = 2, hidden: int = 32, max_length: int = 64, seed: int = 0, **options: Any
) -> Encoder:
    import torch
    from transformers import XLMRobertaConfig, XLMRobertaModel

    from interlingua.models.encoder import Encoder
    from interlingua.models.folder import Settings
    from interlingua.models.layout import Parts
    from interlingua.models.transformer import Transformer

    tokenizer = _tokenizer(max_length)
    torch.manual_seed(seed)
    model = XLMRobertaModel(
        XLMRobertaConfig(
            vocab_size=len(tokenizer),
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * hidden,
            max_position_embeddings=max_length + 2,
            type_vocab_size=1,
            initializer_range=0.2,
            pad_token_id=1,
            bos_token_id=0,
            eos_token_id=2,
            use_cache=False,
        )
    )
    parts = Parts(Transformer(model, tokenizer), "mean", settings=Settings(max_length=max_length))
    return Encoder.of(parts, pooling=pooling, **{"device": "cpu", **options})


def _static(
    *, dim: int = 24, seed: int = 0, token_dropout: float = 0.0, token_weights: bool = False, **options: Any
) -> Encoder:
    import torch

    from interlingua.models.encoder import Encoder
    from interlingua.models.layout import Parts
    from interlingua.models.static.embedding import StaticEmbedding

    tokenizer = _tokenizer()
    rows = torch.randn(len(tokenizer), dim, generator=torch.Generator().manual_seed(seed))
    backbone = StaticEmbedding(tokenizer, rows, token_dropout=token_dropout, token_weights=token_weights)
    return Encoder.of(Parts(backbone, None, normalize=True), **{"device": "cpu", **options})


@contextmanager
def _standard_input(source: int) -> Iterator[None]:
    before = os.dup(0)
    os.dup2(source, 0)
    try:
        yield
    finally:
        os.dup2(before, 0)
        os.close(before)


@pytest.fixture
def capsys(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """pytest's own, with the package's messages on standard error, as the command line shows them."""
    from interlingua.progress import shown

    with shown():
        yield capsys


@pytest.fixture(scope="session")
def standard_input() -> Callable[[int], AbstractContextManager[None]]:
    """`with standard_input(number):` makes the open file of this number the standard input of the process."""
    return _standard_input


@pytest.fixture(scope="session")
def sentences() -> list[str]:
    """Sentences in the eleven scripts of Mr. TyDi (and a few more English ones), all covered by the tiny vocabulary."""
    return list(SENTENCES)


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Callable[..., PreTrainedTokenizerFast]:
    """Factory: `tiny_tokenizer(max_length=64)`, a Unigram tokenizer with XLM-R's special tokens."""
    return _tokenizer


@pytest.fixture(scope="session")
def tiny_encoder() -> Callable[..., Encoder]:
    """Factory: `tiny_encoder(pooling="cls", layers=2, hidden=32, max_length=64, seed=0, **options of Encoder.load)`."""
    return _encoder


@pytest.fixture(scope="session")
def tiny_static() -> Callable[..., Encoder]:
    """Factory: `tiny_static(dim=24, seed=0, token_dropout=0.0, token_weights=False, **options of Encoder.load)`."""
    return _static


@pytest.fixture(scope="session")
def without_checksums() -> Callable[[Path], Path]:
    """Makes the array folders in a folder ones of an earlier version, whose files are checked by their sizes alone."""

    def strip(path: Path) -> Path:
        for file in path.rglob("*.json"):
            about = json.loads(file.read_text("utf-8"))
            about.pop("xxh3", None)
            for entry in about.get("files", {}).values():
                entry.pop("xxh3", None)
            file.write_text(json.dumps(about), "utf-8")
        return path

    return strip


@pytest.fixture(scope="session")
def tiny_hf_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain Hugging Face folder (config.json, safetensors, tokenizer) of a tiny XLM-R of 3 layers."""
    folder = tmp_path_factory.mktemp("hf") / "tiny-xlm-r"
    folder.mkdir()
    _encoder(layers=3).backbone.save(folder)
    return folder
