"""Tell the language that a text is written in: py3langid's model, compiled where there are many texts."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

import numpy as np

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.files import cache_folder
from interlingua.lazy import by_numba
from interlingua.text.languages import find_code, normalise_code

if TYPE_CHECKING:
    from numpy.typing import NDArray

SURE = 0.5
"""The probability from which a language is named: it is then likelier than all others together."""
READ = 500
"""Characters that are looked at: 2,000 gave no more right answers on 4,670 passages in 15 languages (99.8%)."""
PARTS = ("weights", "priors", "labels", "moves", "rows", "features")
"""The parts of py3langid's model."""
KEPT = Layout("langid", 1, "model that tells languages")
"""The folder in which they are kept."""
DIALECTS = frozenset({"ary", "arz", "wuu"})
"""Not told apart: 10 of the 240 Chinese passages of XQuAD would count as Wu, and be lost to a search for `zh`."""
SMALL = frozenset("ace an bcl crh fuv gom gug kik lij ltg nso pcm se vec vo wa".split())
"""Not recognised: short texts in a large language near to one of them (Spanish, Aragonese) would be taken for it."""
MANY = 1_000
"""Texts in bulk from which on the model is compiled, which takes about a second with the loading of numba."""
CLOSE = 0.001
"""py3langid decides itself where probabilities lie so near to each other, or to `sure`: its sums are in float32."""

_texts = count(1)


def detect_language(text: str, sure: float = SURE) -> str:
    """The code of the language that `text` is written in, or "" when its probability is below `sure` or no language is
    recognised.

    Knows the languages of `detectable`. Text in another one may be taken for its nearest relative (Yiddish for
    Hebrew). Raises NotFound where py3langid is not installed.
    """
    text = text[:READ]
    if not any(map(str.isalpha, text)):
        return ""
    code, probability = identifier().classify(text)
    return _named(code, probability, sure)


def detect_in_bulk(text: str, sure: float = SURE) -> str:
    """`detect_language` for one of very many texts: the same answers, by a compiled model from the `MANY`th on."""
    kernel = compiled() if next(_texts) > MANY else None
    text = text[:READ]
    if kernel and any(map(str.isalpha, text)) and (result := kernel(text, sure)):
        return _named(*result, sure)
    return detect_language(text, sure)


def _named(code: str, probability: float, sure: float) -> str:
    return normalise_code(code) if probability >= sure and code != "zxx" else ""


@cache
def detectable() -> frozenset[str]:
    """The codes of the 112 languages that are told apart. Raises NotFound where py3langid is not installed."""
    return frozenset(normalise_code(code) for code in identifier().labels if code != "zxx")


def can_detect() -> bool:
    """Whether py3langid is installed."""
    return find_spec("py3langid") is not None


@cache
def identifier() -> Any:
    """py3langid's classifier for the languages known here, loaded once. Raises NotFound without py3langid."""
    try:
        from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier  # type: ignore[import-untyped]
    except ImportError as error:
        raise NotFound(
            "telling the language of a text needs py3langid: pip install 'interlingua[index]'. "
            "Or say the language (lang=…, --lang)."
        ) from error
    weights, priors, labels, moves, rows, features = _model(MODEL_DIR / MODEL_FILE)
    classifier = LanguageIdentifier(weights, priors, labels, moves, features, norm_probs=True, tk_row=rows)
    codes = [code for code in classifier.labels if find_code(code) and code not in DIALECTS | SMALL]
    classifier.set_languages([*codes, "zxx"])  # zxx: numbers, markup and the like
    return classifier


def classify(
    text: NDArray[np.uint8],
    moves: NDArray[np.uint32],
    rows: NDArray[np.uint16],
    features: NDArray[np.int32],
    weights: NDArray[np.float32],
    priors: NDArray[np.float64],
    columns: NDArray[np.int64],
    labels: int,
    counts: NDArray[np.int32],
) -> tuple[int, float, float]:
    """The likeliest of so many `labels` for a text (bytes), its probability and that of the next; label −1 where no
    n-gram is known.

    `moves`, `rows` and `features` are the automaton that finds n-grams. Each says ln(1 + how often it occurs) times its
    `weights` [features, classes], which is added to the log `priors`; the sums are divided by √bytes. `columns` are the
    labels of the classes. `counts` [features] are all 0, and are again after the call. Plain Python that numba can
    compile."""
    feature_ids = np.empty(len(text), np.int32)
    state, distinct = 0, 0
    for letter in text:
        state = moves[(int(rows[state]) << 8) + letter]
        feature = features[state]
        if feature >= 0:
            if counts[feature] == 0:
                feature_ids[distinct] = feature
                distinct += 1
            counts[feature] += 1
    if distinct == 0:
        return -1, 0.0, 0.0
    scores = priors.copy()
    for feature in feature_ids[:distinct]:
        weight = math.log1p(counts[feature])
        counts[feature] = 0
        for index in range(len(scores)):
            scores[index] += weight * weights[feature, index]
    scores /= math.sqrt(len(text))
    scores = np.exp(scores - scores.max())
    probabilities = np.zeros(labels)
    for index in range(len(scores)):
        probabilities[columns[index]] += scores[index]
    probabilities /= scores.sum()
    first = int(probabilities.argmax())
    best, probabilities[first] = probabilities[first], 0.0
    return first, best, probabilities.max()


@cache
def compiled() -> Callable[[str, float], tuple[str, float] | None] | None:
    """py3langid's `classify`, compiled, or None for what is left to py3langid; None where numba is missing."""
    try:
        kernel = by_numba(classify)  # holds the interpreter's lock: `counts` are for one text at a time
    except ImportError:
        return None
    classifier = identifier()
    moves, rows = np.asarray(classifier.tk_nextmove, np.uint32), np.asarray(classifier.tk_row, np.uint16)
    features = np.asarray(classifier.tk_output, np.int32)
    weights, priors = np.ascontiguousarray(classifier.nb_ptc, np.float32), classifier.nb_pc.astype(np.float64)
    labels = classifier.labels
    columns = np.array([labels.index(one) for one in classifier.nb_classes])  # two scripts of a language have one each
    model = (moves, rows, features, weights, priors, columns, len(labels), np.zeros(len(weights), np.int32))

    def likeliest(text: str, sure: float) -> tuple[str, float] | None:
        content = normalize("NFC", text.lower() if text.isupper() else text).encode("utf-8", "surrogatepass")
        first, best, second = kernel(np.frombuffer(content, np.uint8), *model)
        if first < 0 or abs(best - sure) < CLOSE or best - second < CLOSE:
            return None
        return labels[first], best

    return likeliest


def _model(file: Path) -> tuple[Any, ...]:
    """py3langid's model, from the user's cache of files where it was unpacked before: that takes over half a second of
    processor time, which would be half of a short search. Where there is no place for it, it is unpacked each time."""
    from py3langid.modelio import load_model  # type: ignore[import-untyped]

    place = cache_folder() / f"langid-{version('py3langid')}-{file.stat().st_size}"
    with suppress(OSError, NotFound, Damaged):
        return _unpacked(place)
    model: tuple[Any, ...] = load_model(file)
    with suppress(OSError, BadInput), ArrayFolder.write(place, KEPT) as folder:
        for name, part in zip(PARTS, model, strict=True):
            folder.add(name, np.asarray(part))
    return model


def _unpacked(place: Path) -> tuple[Any, ...]:
    """Read the model that `_model` kept. Raises NotFound where it is missing, Damaged where it was changed."""
    with ArrayFolder.open(place, KEPT) as folder:
        weights, priors, labels, moves, rows, features = (folder.array(name) for name in PARTS)
    # as py3langid has them: Python reads single numbers of an array and of a list much faster than of NumPy's
    numbers = [array(part.dtype.char) for part in (moves, rows)]
    for values, part in zip(numbers, (moves, rows), strict=True):
        values.frombytes(part.tobytes())
    return weights, priors, labels.tolist(), *numbers, features.tolist()
