"""README.md and docs/: every command, snippet, name and link on these pages is checked.

The parser takes every command. What can run here runs, page by page from top to bottom in a folder of its own, and
prints what the page shows: the same words and columns, the same dimensions; other numbers may differ.
"""

from __future__ import annotations

import ast
import contextlib
import glob
import gzip
import importlib
import io
import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interlingua import DualEncoder, Index, load_collection
from interlingua.cli import build_parser, main, names
from interlingua.data.readers import read_parallel, read_questions

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
        """With the comment that names an example, which stands before it."""
        comment = self.before.rpartition("\n")[2]
        return "\n".join([*([comment] if comment.startswith("<!--") else []), *self.lines]) + "\n"


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
    """What is wrong with a command as far as it can be told without running it. In prose it need not be whole."""
    program, *words = command.words
    if command.verb:
        refused = refusal(command.verb)
        if "…" not in command.text and (whole or not re.search("required|expected", refused)):
            return refused
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


def test_every_command_that_the_code_names_is_one():
    """What messages, docstrings, recipes, examples and CONTRIBUTING.md say to type, and the table of the changelog."""
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in {".py", ".yaml", ".html", ".js"}]
    files += [*(ROOT / "examples").iterdir(), *(ROOT / "benchmarks").glob("*.py"), ROOT / "CONTRIBUTING.md"]
    named = [
        Command(str(path.relative_to(ROOT)), 0, match[1], [])
        for path in files
        if path.is_file()
        for match in re.finditer(
            r"(?:`|^ +|^# +|Try: )(interlingua [a-z][^`\n\"']*)", path.read_text("utf-8"), re.MULTILINE
        )
    ]
    changed = re.findall(
        r"\| `interlingua [^`]+` \| `(interlingua [^`]+)` \|", (ROOT / "CHANGELOG.md").read_text("utf-8")
    )
    named += [Command("CHANGELOG.md", 0, text, []) for text in changed]
    verbs = {command.verb[0] for command in named}
    assert {"index", "add", "replace", "delete", "compact", "tokens", "info", "search", "mine"} <= verbs <= {*names()}
    assert [(one.page, one.text, bad) for one in named if (bad := unknown_options(one))] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_name_is_there(page):
    """What snippets import, and what the prose calls by its full name."""
    wrong = []
    for block in blocks(page):
        if block.kind == "python":
            for node in ast.walk(ast.parse("\n".join(block.lines), block.place)):
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


NOT_RUN = {
    "* make *": "is the whole suite, or a training of a minute",
    "* pip *": "installs",
    "* export *": "is a line of a shell",
    "* ray *": "needs a Ray cluster: tests/torture/test_ray_cluster.py",
    "* interlingua *--ray=*": "needs a Ray cluster: tests/torture/test_ray_cluster.py",
    "* interlingua *milvus:*": "needs Milvus: tests/index/test_milvus_index.py",
    "* interlingua tokens *": "needs a late-interaction model: tests/index/test_index_tokens.py",
    "* interlingua sync * --watch*": "runs until it is stopped: tests/cli/test_watch.py",
    "* interlingua serve *": "runs until it is stopped; test_the_answers_of_the_server has its answers",
    "docs/serve.md curl *": "is run by test_the_answers_of_the_server",
    "docs/api.md curl *": "is run by test_the_answers_of_the_server",
    "docs/api.md *base_url=*": "asks a server: tests/serving/test_clients.py",
    "docs/api.md python -c *": "writes the token of the server",
    "* python benchmarks/*": "measures for minutes",
    "docs/results/* interlingua *": "trains for minutes to hours on data that is not in the repository",
    "docs/many-processes.md torchrun *": "starts processes: tests/training/test_training_runs.py",
    "docs/many-processes.md accelerate *": "starts processes: tests/training/test_training_runs.py",
    "docs/many-processes.md python -c *": "reads what torchrun trains",
    "docs/evaluate.md interlingua evaluate *--xor *": "needs NLTK's data: tests/evaluation/test_xor_retrieve.py",
    "docs/pretrain.md interlingua evaluate runs/ccp/model *": "needs a model of 14 layers",
    "docs/rerank.md interlingua *--translate *": "needs a translator, and is a part of a command",
    "docs/export.md interlingua encode MODEL --onnx *": "is run by tests/models/test_onnx_export.py",
    "docs/export.md <!-- recipe: *": "is run by tests/index/test_export_recipes.py",
    "docs/models.md interlingua *": "needs the extra e5: tests/models/test_e5.py, tests/cli/test_shrink.py",
    "docs/mine.md from interlingua.evaluation.bitext *": "needs BUCC's data: tests/evaluation/test_bucc.py",
}
"""The commands and snippets that are not run here, and why: patterns of the page and of how the text begins."""

ADDED = {"README.md interlingua train *": ["training.steps=2"]}
"""What is added to commands so that they end in seconds."""


def _jsonl(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """`runs/demo` as `interlingua demo` leaves it, but for the training."""
    folder = tmp_path_factory.mktemp("demo")
    DualEncoder.load("default").save(folder / "model")
    assert main(["index", str(folder / "model"), "encyclopedia", "--out", str(folder / "index")]) == 0
    return folder


@pytest.fixture
def here(models, tmp_path, monkeypatch):
    """A folder with the files that the pages speak of, the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    for name in ("runs/demo/retrieval", "runs/demo/semantic", "elsewhere"):
        Path(name).mkdir(parents=True)
        os.symlink(models / "model", f"{name}/model")
    os.symlink(models / "model", "runs/demo/semantic/start")
    os.symlink(models / "model", "MODEL")
    os.symlink(models / "model", "runs/m")
    os.symlink(models / "index", "runs/demo/index")
    for name in ("handbook/.git", "handbook/images", "my_collection", "tatoeba", "table", "DATA"):
        Path(name).mkdir(parents=True)
    for name in (".git/config", ".hidden", "images/logo.png", "images/page.png"):
        Path("handbook", name).write_bytes(b"x")
    texts = {
        lang: [(one.title, one.text) for one in load_collection(f"encyclopedia:{lang}").passages]
        for lang in ("en", "sw", "th")
    }
    Path("handbook/guide.md").write_text("\n".join(f"# {title}\n\n{text}\n" for title, text in texts["en"][:5]))
    Path("handbook/sw.txt").write_text("\n\n".join(text for _, text in texts["sw"][:9]))
    Path("handbook/th.txt").write_text("\n\n".join(text for _, text in texts["th"][:4]))
    Path("faq.csv").write_text("id,answer,question\n7,Refunds take five days.,Where is my money?\n8,x1,x1\n")
    rows = [{"id": str(i), "title": title, "text": text} for i, (title, text) in enumerate(texts["en"][:9])]
    for name in ("passages", "news", "help", "en", "de", "my_collection/passages"):
        _jsonl(Path(f"{name}.jsonl"), rows)
    Path("my_collection/queries.tsv").write_text("q1\tWho invented it?\n")
    Path("my_collection/qrels.txt").write_text("q1 0 1 1\n")
    shutil.copytree("my_collection", "dev_fi")
    Path("lines.txt").write_text("Who invented Braille?\nKuka keksi sokeainkirjoituksen?\n")
    english = load_collection("encyclopedia:en")
    Path("en.tsv").write_text("".join(f"{query.id}\t{query.text}\n" for query in english.queries))
    _jsonl(
        Path("questions.jsonl"),
        [{"question": one.question, "passage": one.positives[0].text} for one in read_questions("encyclopedia:train")],
    )
    for lang in ("fi", "ar"):
        pairs = [pair for pair in read_parallel("encyclopedia:train", source_lang=lang) if pair.source_lang == lang]
        text = "".join(f"{pair.source}\t{pair.target}\n" for pair in pairs)
        Path(f"{lang}-en.tsv").write_text(text)
        Path(f"{lang}-en.tsv.gz").write_bytes(gzip.compress(text.encode()))
        units = "".join(
            f'<tu><tuv xml:lang="{lang}"><seg>{pair.source}</seg></tuv><tuv xml:lang="en"><seg>{pair.target}'
            "</seg></tuv></tu>"
            for pair in pairs[:20]
        )
        Path("memory.tmx").write_text(f'<tmx version="1.4"><header/><body>{units}</body></tmx>')
    Path("mined.tsv").write_text("1.07\tHyvää huomenta kaikille\tGood morning to all\n")
    for lang, size in {"fin": 40, "swh": 40, "deu": 120, "fra": 120, "jpn": 120, "dan": 23, "nob": 23}.items():
        text = "".join(f"{lang} {i} {i * i}\tThis is sentence {i}, or {i * i}.\n" for i in range(size))
        Path(f"tatoeba/{lang}-eng.tsv.gz").write_bytes(gzip.compress(text.encode()))


def matching(page: str, text: str, patterns: Iterable[str]) -> list[str]:
    """The patterns of a page and a text that fit these."""
    apart = ((one, *one.split(" ", 1)) for one in patterns)
    return [one for one, of_page, of_text in apart if fnmatchcase(page, of_page) and fnmatchcase(text, of_text)]


def shape(text: str) -> str:
    """A text whose numbers are all `N`, but for dimensions and the shapes of arrays; rules and gaps in one width."""
    text = re.sub(
        r"(\d+ dimensions|\(\d+,(?: \d+)*\))|[-+−]?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", lambda one: one[1] or "N", text
    )
    text = text.replace("not significant", "significant")
    return "\n".join(re.sub(r" +", " ", re.sub(r"-{2,}", "-", line)).strip() for line in text.strip().splitlines())


def pattern(shown: list[str]) -> str:
    """What output has to match: `…` stands for anything in a line, and alone for any lines."""
    return "".join(r"(.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in shown)


def differs(shown: list[str], output: str, errors: str) -> str:
    """How what a command printed differs from what its page shows; empty where it does not. All of standard output is
    on the page, of standard error what the page wants to show."""
    if not shown:
        return ""
    said = shape(errors).splitlines()
    lines = [
        line
        for line in shape("\n".join(shown)).splitlines()
        if line == "…" or not any(re.fullmatch(pattern([line]), f"{one}\n") for one in said)
    ]
    if re.fullmatch(pattern(lines), shape(output) + "\n" if output.strip() else ""):
        return ""
    return f"prints\n{output}{errors}and the page shows\n" + "\n".join(shown)


def run(command: Command) -> str:
    """Run a command; what is wrong with it."""
    words = command.verb + [word for one in matching(command.page, command.text, ADDED) for word in ADDED[one]]
    words = [name for word in words for name in (sorted(glob.glob(word)) if "*.run" in word else [word])]
    output, errors, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            if words:
                code = main(words)
            else:
                assert command.words[0] == "ls"
                print(*sorted(os.listdir(command.words[1])), sep="\n")
        except SystemExit as end:
            code = int(end.code or 0)
    errs_on_page = any(line.startswith("interlingua: ") for line in command.output)
    if code != (2 if errs_on_page else 0):
        return f"exit code {code}: {errors.getvalue()}"
    return differs(command.output, output.getvalue(), errors.getvalue())


def run_snippet(block: Block, names: dict[str, Any]) -> Iterator[str]:
    """Run a snippet statement by statement: a comment behind `print(…)` is what it prints, or ends so."""
    for node in ast.parse("\n".join(block.lines)).body:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(ast.Module([node], []), block.place, "exec"), names)
        comment = re.search(r"\s# (.*)", block.lines[(node.end_lineno or 1) - 1])
        if comment and block.lines[node.lineno - 1].startswith("print("):
            shown, printed = shape(comment[1]), shape(output.getvalue())
            if not shown.startswith(printed) and not re.search(pattern([shown]) + "$", f"{printed}\n"):
                yield f"line {block.line + node.lineno - 1} prints {output.getvalue()}and the page shows {comment[1]}"


def test_the_lists_hold_what_there_is():
    """No reason for what is on no page, and no page that the package names and that is not there."""
    every = [block for page in PAGES for block in blocks(page)]
    texts = [(block.page, text) for block in every for text in (block.text, *(one.text for one in commands(block)))]
    assert {*NOT_RUN, *ADDED} == {one for page, text in texts for one in matching(page, text, [*NOT_RUN, *ADDED])}
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"\b(docs/[\w/-]+\.md|README\.md)\b(?:, \"(.+?)\")?", source))
    assert {page for page, _ in named} <= {*PAGES}
    assert all(heading in (ROOT / page).read_text("utf-8") for page, heading in named)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("here")
def test_what_runs_prints_what_the_page_shows(page):
    wrong, names = [], {"__name__": "page"}
    for block in blocks(page):
        if block.kind == "yaml" and (named := re.findall(r"`([\w/]+\.yaml)`", block.before)):
            Path(named[-1]).write_text(block.text, encoding="utf-8")
            keys_of = {line.partition(" ")[0] for line in block.lines}
            if {"model:", "training:"} <= keys_of and main(["plan", named[-1]]):
                wrong.append(f"{block.place}: no recipe")
        elif block.kind == "python" and not matching(page, block.text, NOT_RUN):
            try:
                wrong += [f"{block.place}: {one}" for one in run_snippet(block, names)]
            except Exception as error:
                wrong.append(f"{block.place}: {type(error).__name__}: {error}")
        for command in commands(block):
            if not matching(page, command.text, NOT_RUN) and (defect := run(command)):
                wrong.append(f"{command.place}: {command.text}\n{defect}")
    wrong += ["Mend the page, give it what it needs in `here`, or say in NOT_RUN why it is not run."] if wrong else []
    assert not wrong, "\n".join(wrong)


def keys(value: Any) -> Any:
    """A JSON value without its values."""
    if isinstance(value, dict):
        return {name: keys(one) for name, one in value.items()}
    if isinstance(value, list):
        return [keys(one) for one in value[:1]]
    return "text" if isinstance(value, str) else "value"


@pytest.mark.usefixtures("here")
def test_the_answers_of_the_server():
    testclient = pytest.importorskip("starlette.testclient")
    from interlingua.serving import ServeSettings, create_app

    app = create_app(Index.open("runs/demo/index"), ServeSettings(token="a-long-secret-of-the-page"))
    shown = [block for page in ("docs/serve.md", "docs/api.md") for block in blocks(page)]
    calls = [command for block in shown for command in commands(block) if command.words[0] == "curl"]
    wrong = []
    with testclient.TestClient(app, base_url="http://localhost:8080") as client:
        for command in calls:
            _, _, *words = command.words
            method, url, data, headers = "", "", "", {}
            while words:
                word = words.pop(0)
                if word == "-X":
                    method = words.pop(0)
                elif word == "-H":
                    name, _, value = words.pop(0).replace("$(cat token)", "a-long-secret-of-the-page").partition(": ")
                    headers[name] = value
                elif word == "-d":
                    data = words.pop(0)
                else:
                    url = f"http://{word}"
            answer = client.request(method or ("POST" if data else "GET"), url, headers=headers, content=data.encode())
            printed = "".join(command.output).replace("[…]", "[0]").replace(", …]", "]")
            if keys(answer.json()) != keys(json.loads(printed)):
                wrong.append(f"{command.place}: {command.text}\nanswers {answer.text}")
    assert len(calls) > 4
    assert not wrong, "\n".join(wrong)
