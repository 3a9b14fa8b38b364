"""The language of a text, told by py3langid (n-grams of bytes, naive Bayes); `benchmarks/detect.py` says why."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.text.languages import find_code, normalise_code

SURE = 0.5
"""The probability from which a language is named: it is then likelier than all others together."""
READ = 500
"""Characters that are looked at: 2,000 gave no more right answers on 4,670 passages in 15 languages (99.8%)."""
DIALECTS = frozenset({"ary", "arz", "wuu"})
"""Not told apart: 10 of the 240 Chinese passages of XQuAD would count as Wu, and be lost to a search for `zh`."""


def detect_language(text: str) -> str:
    """The code of the language that `text` is written in, or "" when that is not sure or no language is recognised.

    Knows 112 of the languages in `languages.tsv`. Text in another one may be taken for its nearest relative (Yiddish
    for Hebrew). Raises InterlinguaError where py3langid is not installed.
    """
    text = text[:READ]
    if not any(map(str.isalpha, text)):
        return ""
    code, probability = _identifier().classify(text)
    return normalise_code(code) if probability >= SURE and code != "zxx" else ""


def can_detect() -> bool:
    """Whether py3langid is installed."""
    return find_spec("py3langid") is not None


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]
    except ImportError as error:
        raise InterlinguaError("telling the language of a text needs py3langid: pip install 'interlingua[index]'. "
                               "Or say the language (lang=…, --lang).") from error
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = [code for code in identifier.labels if find_code(code) and code not in DIALECTS]
    identifier.set_languages([*known, "zxx"])  # zxx: numbers, markup and the like
    return identifier
