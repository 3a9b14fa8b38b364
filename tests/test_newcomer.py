"""The way of a newcomer, with the wheel in an environment of its own: a folder of files of many kinds in five
languages is indexed, searched, changed, synced and served, to a browser and to the packages that people have."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="needs the server: .venv/bin/pip install -e '.[serve]'")
pytest.importorskip("docx", reason="needs the readers of files: .venv/bin/pip install -e '.[files]'")
pytest.importorskip("playwright", reason="needs playwright, which drives the browser: .venv/bin/pip install playwright")
openai = pytest.importorskip("openai", reason="needs the clients: .venv/bin/pip install openai cohere")
cohere = pytest.importorskip("cohere", reason="needs the clients: .venv/bin/pip install openai cohere")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
TOKEN = "a-token-for-writing"
MARKDOWN = """---
title: Leuchtturm
lang: de
---
# Der Wärter

Der Wärter des Leuchtturms schrieb jeden Sturm in ein kleines blaues Buch. Nachts brannte das Licht.
"""
HTML = """<!doctype html><html lang="fi"><title>Joet</title><h1>Silta</h1>
<p>Kaksi jokea kohtaa vanhan kaupungin alapuolella, ja silta ylittää ne molemmat.</p></html>"""
CSV = """question,answer,lang
"Je, bei ya tiketi ni kiasi gani?",Tiketi ya kivuko ni shilingi mia mbili kwa mtu mzima.,sw
Kivuko kinaondoka saa ngapi?,Kivuko huondoka kila saa kuanzia asubuhi hadi jioni.,sw
"""
PDF = ["Le musee ouvre a neuf heures et ferme le lundi.", "Les enfants entrent gratuitement."]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the built wheel. What it depends on is that of this environment."""
    place = tmp_path_factory.mktemp("installed")
    pytest.importorskip("hatchling", reason="needs the builder of the wheel: .venv/bin/pip install hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place / "wheel")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(place / "env", symlinks=True)
    python = place / "env/bin/python"
    paths = json.loads(
        subprocess.check_output([python, "-c", "import json, site; print(json.dumps(site.getsitepackages()))"])
    )
    (wheel,) = (place / "wheel").iterdir()
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True)
    # a line of a path file brings the packages of a folder, not those that its own path files name, as this checkout
    Path(paths[0], "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    return place / "env/bin"


@pytest.fixture
def run(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run("search", …)`: what the program prints, in a folder that knows nothing of the repository."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "INTERLINGUA_TOKEN": TOKEN}

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [installed / "interlingua", *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def served(installed: Path, tmp_path: Path, run: Any) -> Iterator[Any]:
    """`served()`: the address of the index "idx", served until the test ends."""
    processes = []

    def start() -> str:
        process = subprocess.Popen(
            [installed / "interlingua", "serve", "idx", "--port", "0"],
            cwd=tmp_path,
            env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "INTERLINGUA_TOKEN": TOKEN},
            stderr=(tmp_path / "log").open("w"),
        )
        processes.append(process)
        while process.poll() is None:
            for line in (tmp_path / "log").read_text().splitlines():
                if line.startswith("http://"):
                    return line.split()[0]
        pytest.fail((tmp_path / "log").read_text())

    yield start
    for process in processes:
        process.terminate()
        assert process.wait(60) == 0


def ids(said: str) -> list[str]:
    return [json.loads(line)["id"] for line in said.splitlines() if line.startswith("{")]


def ask_in_browser(address: str) -> None:
    """Ask in a real browser."""
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(address)
        page.fill("#question", "When does the ferry not leave?")
        page.press("#question", "Enter")
        expect(page.locator("#results")).to_contain_text("when the wind is strong", timeout=30_000)
        browser.close()


def test_from_a_folder_to_a_served_index(installed: Path, tmp_path: Path, run: Any, served: Any) -> None:
    sys.path.append(str(ROOT / "tests/data"))
    from office_files import pdf, word

    place = subprocess.check_output(
        [installed / "python", "-c", "import interlingua; print(interlingua.__file__)"], cwd=tmp_path, text=True
    )
    assert place.startswith(str(installed.parent))

    help = tmp_path / "help"
    (help / "de").mkdir(parents=True)
    (help / "de/turm.md").write_text(MARKDOWN)
    (help / "joet.html").write_text(HTML)
    (help / "musee.pdf").write_bytes(pdf(PDF, title="Musee"))
    (help / "refunds.docx").write_bytes(word())
    (help / "faq.csv").write_text(CSV)
    (help / "broken.docx").write_bytes(b"no archive")

    said = run("index", "help", "--out", "idx")
    assert "5 files, 7 passages" in said
    assert "broken.docx" in said
    for question, wanted in (
        ("Wer schrieb die Stürme auf?", "help/de/turm.md#1"),
        ("Where do two rivers meet?", "help/joet.html#1"),
        ("When does the museum open?", "help/musee.pdf#1"),
        ("How long does a refund take?", "help/refunds.docx#1"),
        ("Je, tiketi ni bei gani?", "help/faq.csv:2"),
    ):
        assert wanted in ids(run("search", "idx", question, "--json", "-k", "2")), question

    (help / "joet.html").write_text(HTML.replace("silta ylittää ne molemmat", "lautta vie molempien yli"))
    (help / "de/turm.md").unlink()
    (help / "en.txt").write_text("The ferry does not leave when the wind is strong.")
    assert "1 added, 1 replaced, 1 deleted, 5 unchanged" in run("sync", "idx", "help", "--on-bad-row", "skip")
    assert "help/de/turm.md#1" not in ids(run("search", "idx", "Wer schrieb die Stürme auf?", "--json", "-k", "20"))
    assert "fits its checksums" in run("check", "idx")

    address = served()
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="unused")
    first, second = client.embeddings.create(model="default", input=["a storm", "Sturm"]).data
    assert len(first.embedding) == len(second.embedding) == 320
    ranker = cohere.ClientV2(base_url=address, api_key="unused")
    texts = ["The museum is closed on Mondays.", "The ferry leaves every hour."]
    assert ranker.rerank(model="default", query="When does the ferry leave?", documents=texts).results[0].index == 1
    if CHROMIUM:  # without one, the tests of the page say so
        ask_in_browser(address)

    assert "deleted" in run("delete", "idx", "--source", "help/en.txt")
    found = ids(run("search", "idx", "When does the ferry not leave?", "--json", "-k", "20"))
    assert found
    assert "help/en.txt#1" not in found
