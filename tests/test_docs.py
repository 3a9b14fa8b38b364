"""README.md and docs/: every command, snippet, name and link on these pages is checked.

The parser takes every command. What can run here runs, page by page from top to bottom in a folder of its own, and
prints what the page shows: the same words and columns, the same dimensions; other numbers may differ.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from interlingua.cli import build_parser, main

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    *sorted(f"docs/results/{path.name}" for path in (ROOT / "docs/results").glob("*.md")),
]
PROGRAMS = "interlingua|python|make|pytest|pip|torchrun|accelerate|curl|ls|ray|export"
COMMAND = re.compile(rf"(?:\$ )?(?:\w+=)?(?:\w+=\S* )*(?:\S*/)?((?:{PROGRAMS}) .*)", re.DOTALL)
"""A command line: perhaps after a prompt, variables and the folder of the program."""


class Block(NamedTuple):
    """A fenced or indented block of a page."""

    page: str
    line: int
    kind: str
    before: str
    lines: list[str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


class Command(NamedTuple):
    """A command line of a page, and the lines that the page shows as its output."""

    page: str
    line: int
    text: str
    output: list[str]

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> list[str]:
        """Without a comment, and without what follows `>`, `|`, `;` or `&`."""
        words = shlex.split(re.sub(r"\s#\s.*", "", self.text), comments=False)
        return words[: next((i for i, word in enumerate(words) if word in {">", "|", "&"}), len(words))]

    @property
    def verb(self) -> list[str]:
        """The words after `interlingua`, also where another program starts it; empty if it is another command."""
        program, *words = self.words
        if program == "interlingua":
            return words
        started = {"-m", "--module"} & {*words} and "interlingua" in words
        return words[words.index("interlingua") + 1 :] if started else []


def blocks(page: str) -> list[Block]:
    found: list[Block] = []
    lines = (ROOT / page).read_text("utf-8").splitlines()
    start = 0
    while start < len(lines):
        end = start + 1
        paragraph = "\n".join(lines[max(0, start - 3) : start])
        if fence := re.match(r"```(\w*)$", lines[start]):
            while lines[end] != "```":
                end += 1
            found.append(Block(page, start + 2, fence[1] or "text", paragraph, lines[start + 1 : end]))
            end += 1
        elif lines[start].startswith("    ") and start and not lines[start - 1].strip():
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            found.append(Block(page, start + 1, "text", paragraph, [line[4:] for line in lines[start:end]]))
        start = end
    return found


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block. Where it shows prompts, other lines are output."""
    if block.kind != "text":
        return
    prompts = any(line.startswith("$ ") for line in block.lines)
    found: list[Command] = []
    rest = list(enumerate(block.lines, block.line))
    while rest:
        number, text = rest.pop(0)
        if (not prompts or text.startswith("$ ")) and COMMAND.fullmatch(text):
            while rest and (text.endswith("\\") or not _whole(text)):
                text = text.removesuffix("\\") + "\n" + rest.pop(0)[1]
            match = COMMAND.fullmatch(text)
            assert match
            found.append(Command(block.page, number, match[1], []))
        elif found and prompts:
            found[-1].output.append(text)
    yield from found


def _whole(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(shlex.split(re.sub(r"\s#\s.*", "", text)))
    return False


def inline(page: str) -> Iterator[Command]:
    """The commands in the prose of a page: `interlingua verb …` between backquotes."""
    text = (ROOT / page).read_text("utf-8")
    prose = re.sub(r"^```.*?^```$", lambda fenced: "\n" * fenced[0].count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    for match in re.finditer(r"`((?:interlingua|python|make|pytest|pip)\s[^`]+)`", prose):
        yield Command(page, prose.count("\n", 0, match.start()) + 1, " ".join(match[1].split()), [])


def refusal(words: list[str]) -> str:
    """What the parser says against a command; empty where it takes it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            build_parser().parse_args(words)
        except SystemExit as end:
            return said.getvalue() if end.code else ""
    return ""


def unknown_options(command: Command) -> list[str]:
    """The options of a part of a command that its verb does not have."""
    verb, *words = command.verb
    with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
        main([verb, "--help"])
    known = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", help.getvalue()))
    return [word for word in words if word.startswith("-") and word != "-" and word.partition("=")[0] not in known]


def _defect(command: Command, whole: bool) -> str:
    """What is wrong with a command as far as it can be told without running it."""
    program, *words = command.words
    if command.verb:
        if whole and "…" not in command.text:
            return refusal(command.verb)
        return ", ".join(f"unknown option {word}" for word in unknown_options(command))
    if program == "python" and words[0].startswith("benchmarks/"):
        if not (ROOT / words[0]).is_file():
            return "no such script"
        source = (ROOT / words[0]).read_text("utf-8")
        source += (ROOT / "benchmarks/common.py").read_text("utf-8") if "from common import" in source else ""
        numbers = set(re.findall(r'\b(\w+)(?:=|": )\d', source))  # `options(__doc__, repeat=3)` declares --repeat
        return ", ".join(
            f"unknown option {word}"
            for word in words
            if word.startswith("--") and f'"{word}"' not in source and word[2:].replace("-", "_") not in numbers
        )
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        return "" if words[0] in targets else "no such target"
    if program == "pytest":
        return ", ".join(f"no file {word}" for word in words if "/" in word and not (ROOT / word).is_file())
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
        return ", ".join(
            f"no extra {extra}"
            for word in words
            if "[" in word
            for extra in word.split("[")[1].rstrip("]").split(",")
            if extra not in extras
        )
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one(page):
    whole = [command for block in blocks(page) for command in commands(block)]
    wrong = [
        f"{command.place}: {command.text}\n    {defect}"
        for command, is_whole in [*((one, True) for one in whole), *((one, False) for one in inline(page))]
        if (defect := _defect(command, is_whole))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_there(page):
    """What snippets import, and what the prose calls by its full name."""
    wrong = []
    for block in blocks(page):
        if block.kind == "python":
            for node in ast.walk(ast.parse(block.text, block.place)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("interlingua"):
                    wrong += [
                        f"{block.place}: {node.module}.{name.name}"
                        for name in node.names
                        if not exists(f"{node.module}.{name.name}")
                    ]
    wrong += [
        f"{page}: {name}"
        for name in re.findall(r"`(interlingua(?:\.\w+)+)", (ROOT / page).read_text("utf-8"))
        if not exists(name)
    ]
    assert not wrong, "\n".join(wrong)


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    head, _, last = name.rpartition(".")
    try:
        importlib.import_module(name)
        return True
    except ModuleNotFoundError:
        with contextlib.suppress(ModuleNotFoundError):
            return hasattr(importlib.import_module(head), last)
        return False


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    wrong = []
    for target in re.findall(r"\]\(([^()\s]+)\)", (ROOT / page).read_text("utf-8")):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        if not file.exists() or (anchor and anchor not in headings(file)):
            wrong.append(f"{page}: {target}")
    assert not wrong, "\n".join(wrong)


def headings(page: Path) -> set[str]:
    """The anchors that a page has on GitHub."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return {
        *re.findall(r'<a id="(.*?)">', text),
        *(
            re.sub(r"[^\w\- ]", "", line.lower()).strip().replace(" ", "-")
            for line in re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
        ),
    }
