from __future__ import annotations

import subprocess
import sys

from interlingua.text.normalise import text_hash, text_key


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
    code = "from interlingua.text.normalise import text_hash; print(text_hash('湖', 'deep'))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed) == text_hash("湖", "deep")
