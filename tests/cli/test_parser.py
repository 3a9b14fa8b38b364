"""Commands as people type them: options that repeat, misspelt options, completion in shells."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from interlingua.cli import build_parser, main
from interlingua.index.index import Index


def parsed(command, *names):
    """The values of some arguments of a command."""
    found = build_parser().parse_args(command.split())
    return tuple(getattr(found, name) for name in names)


@pytest.mark.parametrize(
    ("command", "names", "values"),
    [
        # each value has its option
        ("evaluate --on x --on y model", ("on", "models"), (["x", "y"], ["model"])),
        ("evaluate model --on x --on y", ("on", "models"), (["x", "y"], ["model"])),
        # an option does not swallow the argument that the verb is missing
        ("evaluate --on x model", ("on", "models"), (["x"], ["model"])),
        ("report --out a.html --on x m n", ("on", "models"), (["x"], ["m", "n"])),
        ("compare --on x a.run b.run", ("on", "runs"), (["x"], ["a.run", "b.run"])),
        ("calibrate --on fr=x --out d model", ("on", "model"), (["fr=x"], "model")),
        ("reproduce --rows r hu2023/table2", ("rows", "table"), (["r"], "hu2023/table2")),
        ("mine --negatives --retriever bm25 --out o --passages p q", ("passages", "a"), (["p"], "q")),
        # several values after an option, where nothing is missing
        (
            "evaluate model --on x y --measures RR@10 AP",
            ("on", "measures", "models"),
            (["x", "y"], ["RR@10", "AP"], ["model"]),
        ),
        ("evaluate --on x y --format text model", ("on", "models"), (["x", "y"], ["model"])),
        ("evaluate --pipeline bm25 --on x y", ("pipeline", "on", "models"), (["bm25"], ["x", "y"], [])),
        ("evaluate --xor q --predictions a b --passages p", ("predictions", "models"), (["a", "b"], [])),
        ("report m --on x y", ("on", "models"), (["x", "y"], ["m"])),
        ("compare a b --qrels x --qrels y", ("qrels", "runs"), (["x", "y"], ["a", "b"])),
        ("calibrate m --on fr=x en=y --out d", ("on", "model"), (["fr=x", "en=y"], "m")),
        ("evaluate m --mea RR@10 AP --on=x", ("measures", "on", "models"), (["RR@10", "AP"], ["x"], ["m"])),
        # values of a form end at the first word without it, wherever the arguments are
        (
            "search idx --filter source=faq.csv refund",
            ("filter", "index", "question"),
            (["source=faq.csv"], "idx", ["refund"]),
        ),
        (
            "search --filter source=faq.csv topic=a idx a refund",
            ("filter", "index", "question"),
            (["source=faq.csv", "topic=a"], "idx", ["a", "refund"]),
        ),
        (
            "search idx how --filter a=b -k5 big --json x=y",
            ("filter", "question", "k"),
            (["a=b"], ["how", "big", "x=y"], 5),
        ),
        (
            "index --columns text=answer title=question faq.csv --out idx",
            ("columns", "inputs", "out"),
            (["text=answer", "title=question"], ["faq.csv"], "idx"),
        ),
        (
            "index m --columns text=answer --columns id=n faq.csv --out idx",
            ("columns", "inputs"),
            (["text=answer", "id=n"], ["m", "faq.csv"]),
        ),
        # what looks like an option and is none
        ("mine a b --model m --out o --threshold -1", ("threshold",), (-1.0,)),
        ("search idx -- --filter a", ("filter", "question"), ([], ["--filter", "a"])),
    ],
)
def test_options_that_repeat_and_arguments(command, names, values):
    assert parsed(command, *names) == values


def test_values_with_spaces_stay_whole():
    arguments = build_parser().parse_args(["evaluate", "--pipeline", "bm25 % 10 >> m", "-0.5 * m", "--on", "x"])
    assert (arguments.pipeline, arguments.on) == (["bm25 % 10 >> m", "-0.5 * m"], ["x"])


@pytest.fixture(scope="module")
def faq(tmp_path_factory):
    """A folder with a table of two rows and a page, and their index."""
    folder = tmp_path_factory.mktemp("faq")
    (folder / "faq.csv").write_text(
        "question,answer\nRefund?,A refund takes five days.\nPost?,By ship.\n", encoding="utf-8"
    )
    (folder / "guide.md").write_text("# Refund\n\nNo refund for tickets.\n", encoding="utf-8")
    assert (
        main(
            [
                "index",
                "--columns",
                "text=answer",
                "title=question",
                str(folder / "faq.csv"),
                str(folder / "guide.md"),
                "--out",
                str(folder / "idx"),
            ]
        )
        == 0
    )
    return folder


def test_the_options_are_heard_where_arguments_follow_them(faq, capsys):
    assert {hit.passage.title for hit in Index.open(faq / "idx").search("refund", mode="lexical")} == {
        "Refund?",
        "Refund",
    }
    assert (
        main(["search", str(faq / "idx"), "--mode", "lexical", "--json", "--filter", "source=faq.csv", "refund"]) == 0
    )
    (hit,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (hit["title"], hit["text"]) == ("Refund?", "A refund takes five days.")


@pytest.mark.slow
def test_models_after_the_collection_are_measured(capsys):
    assert main(["evaluate", "--no-intervals", "--measures", "RR@10", "--on", "encyclopedia:fi", "default"]) == 0
    assert "default" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "usage", "said"),
    [
        ("search idx refund --flter a=b", "search [-h]", "unknown option '--flter'. Did you mean '--filter'?"),
        # not: the following arguments are required
        ("report m --onn x", "report [-h]", "unknown option '--onn'. Did you mean '--on'?"),
        ("index docs --oot=idx", "index [-h]", "unknown option '--oot'. Did you mean '--out'?"),
        ("demo -x", "demo [-h]", "unknown option '-x'."),
        ("demo now", "demo [-h]", "'now' is one argument too many."),
        ("--verson", "[-h] [--version]", "unknown option '--verson'. Did you mean '--version'?"),
    ],
)
def test_an_unknown_option_is_answered_with_the_usage_and_the_nearest(command, usage, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(command.split())
    assert stopped.value.code == 2
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"usage: interlingua {usage}")
    verb = command.split()[0] if command[0] != "-" else ""
    assert last.startswith(f"interlingua: {said}")
    assert last.endswith(f"See `interlingua {verb + ' ' if verb else ''}--help`.")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("index --add idx faq.csv", "add idx faq.csv"),
        ("index faq.csv --add=idx --columns text='an answer'", "add idx faq.csv --columns 'text=an answer'"),
        ("index --replace idx faq.csv --durability process", "replace idx faq.csv --durability process"),
        ("index --delete idx a b", "delete idx a b"),
        ("index --compact idx --exact", "compact idx --exact"),
        ("index --info idx --json", "info idx --json"),
        ("index late --tokens idx", "tokens idx late"),
        ("index --add", "add"),
        ("encode m a.txt --as query --out v.npy", "encode m a.txt --role query --out v.npy"),
        ("calibrate m --on a.txt --out d --as=query", "calibrate m --on a.txt --out d --role=query"),
        ("mine a --negatives --with bm25 --out b", "mine a --negatives --retriever bm25 --out b"),
        ("search idx refund --where a=b", "search idx refund --filter a=b"),
    ],
)
def test_an_option_of_an_earlier_version_is_answered_with_the_command_of_now(old, new, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(shlex.split(old))
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        f"interlingua: `interlingua {shlex.join(shlex.split(old))}` is now: interlingua {new}\n"
    )
    if new != "add":  # a whole command: what it names is a command that works
        build_parser().parse_args(shlex.split(new))


def test_help_says_which_options_repeat(capsys):
    with pytest.raises(SystemExit):
        main(["search", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "and JSON (may be repeated)" in said
    assert "takes one value each time" in said
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    assert "each time" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def scripts():
    """What --print-completion prints, by shell."""
    return {
        shell: subprocess.run(
            [sys.executable, "-m", "interlingua", "--print-completion", shell],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for shell in ("bash", "zsh", "fish")
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_takes_its_completion(scripts, shell, tmp_path):
    assert "lang-of-results" in scripts[shell]
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(scripts[shell], encoding="utf-8")
    check = subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True, text=True)
    assert (check.returncode, check.stderr) == (0, "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["sea"], {"search"}),
        (["comp"], {"compact", "compare"}),
        (["search", "--lang"], {"--lang", "--lang-of-results"}),
        (["search", "idx", "--mode", ""], {"hybrid", "dense", "lexical"}),
        (["search", "hand"], {"handbook.jsonl"}),
        (["index", "hand"], {"handbook.jsonl"}),
        (["add", "hand"], {"handbook.jsonl"}),
        (["add", "idx", "hand"], {"handbook.jsonl"}),
        (["info", "--s"], {"--system"}),
        (["search", "idx", "--rerank", "hand"], {"handbook.jsonl"}),
    ],
)
@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_verbs_options_choices_and_files(scripts, typed, offered, tmp_path):
    (tmp_path / "handbook.jsonl").touch()
    ask = (
        f'{scripts["bash"]}\nCOMP_WORDS=(interlingua "$@"); COMP_CWORD=$#\n'
        "own=$(complete -p interlingua | sed 's/.*-F \\([^ ]*\\).*/\\1/')\n"
        '$own interlingua "${!#}" "${COMP_WORDS[$#-1]}"\n'
        "printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    said = subprocess.run(
        ["bash", "-c", ask, "bash", *typed],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    )
    assert {word.strip() for word in said.stdout.split("\n")} - {""} == offered, said.stderr


def test_a_second_double_dash_is_no_argument(capsys):
    with pytest.raises(SystemExit) as end:
        main(["backup", "idx", "--", "--"])
    assert end.value.code == 2
    assert "argument FILE: '--' is none. For a file of this name write ./--" in capsys.readouterr().err
