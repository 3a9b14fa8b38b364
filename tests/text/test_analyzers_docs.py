from __future__ import annotations

from pathlib import Path

import pytest

from interlingua.text.analyzers import analyzer
from interlingua.text.analyzers.rules import RULES
from interlingua.text.languages import languages

EVERYWHERE = ("NFKC, no case, ASCII digits", "words (UAX 29)", "n-grams in scripts without spaces")
PAGE = (Path(__file__).parents[2] / "docs" / "lexical.md").read_text("utf-8")


@pytest.mark.parametrize("lang", sorted(RULES))
def test_the_page_says_what_the_analyzer_does(lang):
    steps = [step for step in analyzer(lang, "language").steps if step not in EVERYWHERE]
    default = analyzer(lang).name.partition("/")[2]
    row = [lang, languages()[lang].name, default, ", ".join(steps) or "nothing of its own"]
    assert f"| {' | '.join(row)} |" in PAGE.splitlines()
