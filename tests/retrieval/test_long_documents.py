from __future__ import annotations

import math
import random
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.dense.exact import DenseRetriever
from interlingua.retrieval.rerank import MaxP, rerank, subword_windows
from interlingua.retrieval.run import Run


class Planted:
    """Windows whose scores are their texts; searches as deep as it is asked, and counts how deep."""

    def __init__(self, windows):
        self.windows, self.depths = windows, []

    def search(self, queries, depth):
        self.depths.append(depth)
        return self.score(queries, {query.id: [w.id for w in self.windows] for query in queries}).truncate(depth)

    def score(self, queries, candidates):
        value = {window.id: float(window.text) for window in self.windows}
        return Run.from_scores({query.id: {name: value[name] for name in candidates[query.id]} for query in queries})


def numbers(passages):
    """One window for each number in a passage."""
    return [[Passage(passage.id, word) for word in passage.text.split()] for passage in passages]


QUERIES = [Query("q1", "?"), Query("q2", "?")]


def documents(seed):
    """Documents of 1 to 12 windows, few scores, and ids of which one begins another."""
    rng = random.Random(seed)
    ids = ["d", "d1", "d10", "d1!", "d1 ", "é", "d\x01"] + [f"e{i}" for i in range(20)]
    return [Passage(name, " ".join(str(rng.randrange(6)) for _ in range(rng.choice([1, 1, 2, 12])))) for name in ids]


@pytest.mark.parametrize("seed", range(20))
def test_a_document_scores_as_its_best_window(seed):
    passages = documents(seed)
    expected = Run.from_scores(
        {query.id: {p.id: max(map(float, p.text.split())) for p in passages} for query in QUERIES}
    )
    maxp = MaxP(Planted, passages, numbers)
    for depth in (1, 2, 5, 13, 27, 500):
        assert maxp.search(QUERIES, depth) == expected.truncate(depth)
    candidates = {"q1": ["d", "e3"], "q2": ["d1!"]}
    assert maxp.score(QUERIES, candidates) == Run.from_scores(
        {query: {name: dict(expected["q1"])[name] for name in ids} for query, ids in candidates.items()}
    )
    assert rerank(expected, QUERIES, maxp) == expected


def test_a_tie_at_the_cut_is_resolved_by_the_documents_ids():
    for name in ("d1!", "d1 ", "d1\x01", "d10"):  # all of them sort after d1, and their windows must too
        maxp = MaxP(Planted, [Passage("d1", "5"), Passage(name, "5")], numbers)
        assert maxp.search(QUERIES, 1).ids("q1") == [name]


def test_windows_are_searched_deeper_only_until_they_are_enough():
    one = Passage("long", " ".join(["9"] * 50))
    maxp = MaxP(Planted, [one, *(Passage(f"s{i}", "1") for i in range(50))], numbers)
    assert maxp.search(QUERIES, 1).ids("q1") == ["long"]
    assert maxp.retriever.depths == [2]
    assert maxp.search(QUERIES, 3).ids("q1") == ["long", "s9", "s8"]
    assert maxp.retriever.depths == [2, 6, 12, 24, 48, 96]


def test_a_candidate_that_is_no_document():
    with pytest.raises(InterlinguaError, match="1 candidates are not among the passages, the first is 'd99'"):
        MaxP(Planted, documents(0), numbers).score(QUERIES, {"q1": ["d", "d99"]})


@pytest.fixture(scope="module")
def text(sentences):
    return " ".join(sentences * 2)


@pytest.mark.parametrize("template", ["{title} {text}", "pair"])
def test_the_special_tokens_between_a_title_and_its_text_take_room(template, tiny_encoder, text):
    encoder = tiny_encoder(template=template)
    (windows,) = subword_windows(encoder, 20, 10)([Passage("d", text, "The lighthouse keeper", "fi")])
    lengths = [len(ids) for ids in encoder.tokenize([(w.title, w.text) for w in windows[:-1]], "passage")]
    assert median(lengths) in (19, 20)  # a cut inside a word may make a subword more or less


@pytest.mark.parametrize(("window", "stride"), [(20, 10), (20, 20), (9, 1), (40, 30)])
@pytest.mark.parametrize("title", ["", "The lighthouse keeper", "long title of many words " * 6])
def test_windows_overlap_and_leave_nothing_out(tiny_encoder, text, window, stride, title):
    encoder = tiny_encoder()
    (windows,) = subword_windows(encoder, window, stride)([Passage("d", text, title, "fi")])
    assert len(windows) > 3
    assert text.startswith(windows[0].text)
    assert text.endswith(windows[-1].text)
    place = -1
    for earlier, later in pairwise(windows):
        start = text.index(earlier.text, place + 1)
        place = text.index(later.text, start + 1) - 1
        assert start < place + 1 <= start + len(earlier.text)  # moves on, and no gap
    heading = windows[0].title
    assert title.startswith(heading)
    assert bool(heading) == bool(title)
    assert {(w.title, w.lang, w.id) for w in windows} == {(heading, "fi", "d")}
    kept = len(encoder.tokenizer(heading, add_special_tokens=False)["input_ids"]) if title else 0
    assert kept <= window // 2 + 1
    # the model reads about `window` tokens: a cut inside a word may make a subword or two more or less
    lengths = [len(ids) for ids in encoder.backbone.subwords([(w.title, w.text) for w in windows])]
    assert all(abs(length - window) <= 3 for length in lengths[:-1])
    assert lengths[-1] <= window + 3
    step = min(stride, window - 2 - kept)
    total = len(encoder.tokenizer(text, add_special_tokens=False)["input_ids"])
    assert len(windows) == 1 + math.ceil((total - (window - 2 - kept)) / step)


def test_what_fits_is_its_own_only_window(tiny_encoder):
    split = subword_windows(tiny_encoder(), 60, 30)
    short, empty = Passage("d", "Two rivers meet below the old town.", "Rivers", "en"), Passage("e", "")
    assert split([short, empty]) == [[short], [empty]]
    assert split([]) == []


def test_the_prompt_and_the_special_tokens_take_room(tiny_encoder, text):
    plain = subword_windows(tiny_encoder(), 20, 10)([Passage("d", text)])[0]
    prompted = tiny_encoder(prompts={"passage": "Two rivers: "})
    (windows,) = subword_windows(prompted, 20, 10)([Passage("d", text)])
    assert len(windows[0].text) < len(plain[0].text)
    assert all(len(ids) <= 22 for ids in prompted.tokenize([w.text for w in windows], "passage"))


@pytest.mark.parametrize(
    ("window", "stride", "said"),
    [
        (180, 90, r"this model reads 64 of a passage, the rest would be lost. Write maxp=64/32"),
        (4, 2, "the window must be longer than 5 tokens"),
        (20, 0, "the stride between 1 and the window"),
        (20, 21, "the stride between 1 and the window"),
    ],
)
def test_windows_that_the_model_cannot_read(tiny_encoder, window, stride, said):
    with pytest.raises(InterlinguaError, match=said):
        subword_windows(tiny_encoder(), window, stride)


def test_maxp_over_a_model_is_the_maximum_over_its_windows(tiny_encoder, tiny_static, text):
    for encoder in (DualEncoder(tiny_encoder()), tiny_static()):
        words = text.split()
        passages = [Passage(f"d{i}", " ".join(words[5 * i :]), "Title") for i in range(8)]
        queries = [Query("a", words[3]), Query("b", " ".join(words[7:12]))]
        split = subword_windows(encoder, 20, 10)
        maxp = MaxP(lambda windows, encoder=encoder: DenseRetriever(encoder, windows), passages, split)
        found = maxp.score(queries, {query.id: [p.id for p in passages] for query in queries})
        for query in queries:
            asked = encoder.encode_query([query.text])[0]
            asked /= np.linalg.norm(asked)
            for passage, windows in zip(passages, split(passages), strict=True):
                vectors = encoder.encode_document([(w.title, w.text) for w in windows])
                vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
                assert dict(found[query.id])[passage.id] == pytest.approx(float((vectors @ asked).max()), abs=1e-5)


def test_a_model_without_a_tokenizer():
    with pytest.raises(InterlinguaError, match="object has no tokenizer"):
        subword_windows(object())
