"""Pictures of the page for the documentation: the bundled encyclopedia, indexed and served, in a real browser.

`make demo` trains the model:

    .venv/bin/python tests/serving/screenshots.py runs/demo/semantic/model docs/images

A third argument is a model for `interlingua serve --rerank`: the picture with an Arabic question then has it on.
Needs Chromium, and fonts of the eleven languages (Debian: chromium fonts-noto-core fonts-noto-cjk).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Browser, sync_playwright

from interlingua.data import encyclopedia

INTERLINGUA = (sys.executable, "-m", "interlingua")


def question(topic: str, lang: str) -> str:
    return next(one.question[lang] for one in encyclopedia.topics() if one.id == topic)


def write_passages(file: Path) -> None:
    """Every article in every language, a line each."""
    rows = [
        {
            "id": f"{topic.id}.{lang}",
            "title": topic.title[lang],
            "text": topic.text(lang),
            "lang": lang,
            "source": f"encyclopedia/{topic.id}",
        }
        for topic in encyclopedia.topics()
        for lang in topic.title
    ]
    file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")


@contextmanager
def serving(index: Path, reranker: str | None) -> Iterator[str]:
    """The address of `interlingua serve` on a port that is free."""
    command = [*INTERLINGUA, "serve", str(index), "--port", "0", *(("--rerank", reranker) if reranker else ())]
    log = index.with_suffix(".log")
    with log.open("w") as stream, subprocess.Popen(command, stdout=stream, stderr=stream) as server:
        try:
            while not (found := re.search(r"http://[\d.]+:\d+", log.read_text("utf-8"))):
                if server.poll() is not None:
                    raise SystemExit(f"interlingua serve did not start:\n{log.read_text('utf-8')}")
                time.sleep(0.1)
            yield found.group()
        finally:
            server.terminate()


def take(
    browser: Browser,
    address: str,
    file: Path,
    *,
    width: int = 1100,
    height: int = 860,
    scheme: Any = "light",
    **state: Any,
) -> None:
    """A picture of the page in one state, when the results are there."""
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        device_scale_factor=1.5,
        reduced_motion="reduce",
    )
    page.goto(f"{address}/#{urlencode(state)}")
    page.locator(".chip").first.wait_for()
    if state:
        page.locator("article:visible").first.wait_for()
        page.evaluate("document.activeElement.blur()")
    page.screenshot(path=file)
    page.close()


def main(model: str, folder: str, reranker: str | None = None) -> None:
    """Index, serve, and take every picture into `folder`."""
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        passages, index, out = Path(temporary) / "encyclopedia.jsonl", Path(temporary) / "index", Path(folder)
        write_passages(passages)
        subprocess.run([*INTERLINGUA, "index", model, str(passages), "--out", str(index)], check=True)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with serving(index, reranker) as address:
            take(browser, address, out / "page-search.png", q=question("coffee", "sw"))
            take(browser, address, out / "page-dark.png", q=question("braille", "en"), scheme="dark")
            take(
                browser,
                address,
                out / "page-right-to-left.png",
                q=question("penicillin", "ar"),
                rerank=int(reranker is not None),
            )
            take(
                browser,
                address,
                out / "page-compare.png",
                view="compare",
                a=question("coffee", "en"),
                b=question("coffee", "fi"),
                width=1200,
                height=1240,
            )
            take(browser, address, out / "page-phone.png", q=question("braille", "ar"), width=390, height=844)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
