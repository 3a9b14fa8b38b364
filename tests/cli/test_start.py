"""What a verb loads: to look at an index and to search it takes neither torch nor LanceDB."""

import subprocess
import sys

import numpy as np
import pytest

from interlingua import DualEncoder, Index
from interlingua.cli import main
from interlingua.data.records import Passage

HEAVY = ("torch", "transformers", "lancedb", "pandas", "pydantic", "scipy", "numba")
LOADED = f"""
import sys
try:
    {{}}
finally:
    print("loaded:", *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
VERB = "from interlingua.cli import main; assert main(sys.argv[1:]) == 0"


def run(code, *words):
    """What a fresh process prints, and which of `HEAVY` it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(code), *map(str, words)], capture_output=True, text=True, check=True
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("loaded:")
    return done.stdout, set(last.split()[1:])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An index of three files by the bundled model."""
    root = tmp_path_factory.mktemp("start")
    for name, text in {
        "tea": "# Tea\n\nTea is a drink made with hot water.",
        "sea": "# Sea\n\nThe sea is salt water.",
        "joki": "# Joki\n\nJoki virtaa mereen ja vesi on kylmää.",
    }.items():
        (root / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    assert (
        main(["index", *[str(root / f"{name}.md") for name in ("tea", "sea", "joki")], "--out", str(root / "idx")]) == 0
    )
    return root


@pytest.mark.parametrize("code", ["import interlingua", "from interlingua import __version__, data, retrieval"])
def test_the_package_is_imported_alone(code):
    assert run(code)[1] == set()


@pytest.mark.slow
@pytest.mark.parametrize("code", ["from interlingua.objectives import info_nce", "import interlingua.training.build"])
def test_transformers_is_loaded_for_a_transformer_alone(code):
    assert "transformers" not in run(code)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--mode", "lexical"],
        ["--mode", "dense"],
        [],
        ["--filter", "source=tea.md"],
        ["--lang-of-results", "en"],
        ["--model", "default"],
    ],
)
def test_a_search_loads_what_it_needs_alone(folder, options):
    said, loaded = run(VERB, "search", folder / "idx", "what is made with hot water", *options)
    assert "Tea is a drink" in said.splitlines()[1]
    assert loaded == set()


@pytest.mark.slow
def test_marked_words_need_no_torch_either(folder):
    said, loaded = run(f"sys.stdout.isatty = lambda: True; {VERB}", "search", folder / "idx", "hot drink")
    assert "\033[1mdrink\033[0m" in said
    assert loaded == set()


@pytest.mark.slow
def test_info_reads_no_table_while_the_cache_is_current(folder, tmp_path):
    said, loaded = run(VERB, "info", folder / "idx")
    assert said.startswith("passages  3\n")
    assert "0 newer and 0 deleted" in said
    assert loaded == set()
    # rows newer than the cache are counted, for which the table is opened
    (tmp_path / "new.md").write_text("# Rain\n\nRain falls on the sea.\n", encoding="utf-8")
    index = Index.open(folder / "idx")
    gone = index.search("joki", 1, mode="lexical")[0].passage.id
    try:
        index.add([Passage("new", "Rain falls.", "Rain", "en"), Passage("neu", "Es regnet.", "Regen", "de")])
        index.delete([gone])
        said, loaded = run(VERB, "info", folder / "idx")
        assert said.startswith("passages  4\n")
        assert "2 newer and 1 deleted" in said
        assert "torch" not in loaded
        assert "lancedb" in loaded
        index.compact()
        said, loaded = run(VERB, "info", folder / "idx")
        assert "0 newer and 0 deleted" in said
        assert loaded == set()
    finally:
        main(
            [
                "index",
                *[str(folder / f"{name}.md") for name in ("tea", "sea", "joki")],
                "--out",
                str(folder / "idx"),
                "--overwrite",
            ]
        )


@pytest.mark.slow
def test_the_hits_are_those_that_torch_finds(folder):
    light, whole = Index.open(folder / "idx"), Index.open(folder / "idx", DualEncoder.load("default"))
    for text in ("what is made with hot water", "vesi", "море"):
        for mode in ("hybrid", "lexical"):
            found, expected = (index.search(text, mode=mode, lang="en") for index in (light, whole))
            assert [hit.passage for hit in found] == [hit.passage for hit in expected]
            np.testing.assert_allclose([hit.score for hit in found], [hit.score for hit in expected], atol=1e-6)


def test_indexing_with_the_bundled_model_needs_neither_torch_nor_transformers(folder, tmp_path):
    _, loaded = run(VERB, "index", folder / "tea.md", folder / "joki.md", "--out", tmp_path / "idx")
    assert not loaded & {"torch", "transformers"}
