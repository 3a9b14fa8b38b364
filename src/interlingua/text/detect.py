"""The language of a text, told by py3langid (n-grams of bytes, naive Bayes); `benchmarks/detect.py` says why."""

from __future__ import annotations

import os
from array import array
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.files import atomic_folder
from interlingua.text.languages import find_code, normalise_code

SURE = 0.5
"""The probability from which a language is named: it is then likelier than all others together."""
READ = 500
"""Characters that are looked at: 2,000 gave no more right answers on 4,670 passages in 15 languages (99.8%)."""
PARTS = ("weights", "priors", "labels", "moves", "rows", "features")
"""The parts of py3langid's model."""
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
        from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]
    except ImportError as error:
        raise InterlinguaError("telling the language of a text needs py3langid: pip install 'interlingua[index]'. "
                               "Or say the language (lang=…, --lang).") from error
    weights, priors, labels, moves, rows, features = _model(MODEL_DIR / MODEL_FILE)
    identifier = LanguageIdentifier(weights, priors, labels, moves, features, norm_probs=True, tk_row=rows)
    known = [code for code in identifier.labels if find_code(code) and code not in DIALECTS]
    identifier.set_languages([*known, "zxx"])  # zxx: numbers, markup and the like
    return identifier


def _model(file: Path) -> tuple[Any, ...]:
    """py3langid's model, from the user's cache of files where it was unpacked before: that takes over half a second of
    processor time, which would be half of a short search. Where there is no place for it, it is unpacked each time."""
    from py3langid.modelio import load_model  # type: ignore[import-untyped]

    place = cache_folder() / f"py3langid-{version('py3langid')}-{file.stat().st_size}"
    with suppress(OSError, ValueError):
        return _unpacked(place)
    model: tuple[Any, ...] = load_model(file)
    with suppress(OSError, InterlinguaError):
        _keep(model, place)
    return model


def cache_folder() -> Path:
    """Where what can be made again is kept for this user: `interlingua` in $XDG_CACHE_HOME, else in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "interlingua"


def _keep(model: tuple[Any, ...], place: Path) -> None:
    import numpy as np

    with atomic_folder(place, f"{PARTS[-1]}.npy") as folder:
        for name, part in zip(PARTS, model, strict=True):
            np.save(folder / f"{name}.npy", np.asarray(part))


def _unpacked(place: Path) -> tuple[Any, ...]:
    """What `_keep` wrote. Raises OSError or ValueError where it is not there or damaged."""
    import numpy as np

    weights, priors, labels, moves, rows, features = (
        np.load(place / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in PARTS)
    if not (weights.shape[1:] == priors.shape == labels.shape and rows.shape == features.shape
            and moves.ndim == rows.ndim == 1 and 256 * int(rows.max(initial=0)) < len(moves)
            and int(features.max(initial=0)) < len(weights)):
        raise ValueError(f"{place}: its parts do not fit together")
    # as py3langid has them: Python reads single numbers of an array and of a list much faster than of NumPy's
    numbers = [array(part.dtype.char) for part in (moves, rows)]
    for own, part in zip(numbers, (moves, rows), strict=True):
        own.frombytes(part.tobytes())
    return weights, priors, labels.tolist(), *numbers, features.tolist()
