from __future__ import annotations

import random
import subprocess
import sys
from itertools import pairwise
from unicodedata import combining, normalize

import pytest

from interlingua.text import languages as normalise
from interlingua.text.languages import nfkc, text_hash, text_key


def test_equal_after_normalisation() -> None:
    assert text_key("  The\tLAKE \n is\u3000deep ") == "the lake is deep"
    assert text_key("ＡＢＣ１２３") == "abc123"
    assert text_key("Straße") == text_key("STRASSE")
    assert text_key("e\u0301") == text_key("\u00c9")
    assert text_key("湖") != text_key("池")


def test_key_of_a_key_is_the_key() -> None:
    for text in ("ǰ ΐ ᾳ ŉ ﬁ Ⅷ ㎏ İ", "Drücken Sie", "กำ", "ﷺ"):
        assert text_key(text_key(text)) == text_key(text)


def test_hash_parts_do_not_run_together() -> None:
    assert text_hash("ab", "c") != text_hash("a", "bc")
    assert text_hash("Ab") == text_hash(" aB ")
    assert 0 <= text_hash("x") < 2**64


def test_hash_is_the_same_in_another_process() -> None:
    code = "from interlingua.text.languages import text_hash; print(text_hash('湖', 'deep'))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed) == text_hash("湖", "deep")


def test_nfkc_is_that_of_python_however_many_marks_are_on_a_letter() -> None:
    dice = random.Random(0)
    marks = [*(chr(code) for code in range(0x300, 0x370)), *"\u3099\u309a\uff9e\uff9f\u0344\u0345\u093f\u05b4\u200d"]
    for length in (1, 29, 30, 31, 32, 90):
        for _ in range(50):
            text = "".join(dice.choice("aカｶÅ한ﷺ ") + "".join(dice.choices(marks, k=length)) for _ in range(3))
            assert nfkc(text) == normalize("NFKC", text)


def test_many_marks_are_in_order_before_python_sorts_them_by_insertion(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []
    monkeypatch.setattr(normalise, "normalize", lambda form, text: given.append(text) or normalize(form, text))
    nfkc("a" + "\u0301\u0323\uff9e" * 1_000)
    classes = [combining(mark) for mark in given[0]]
    assert len(classes) == 3_001
    assert all(before <= after for before, after in pairwise(classes))
