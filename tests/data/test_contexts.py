"""Windows of documents, as a stream draws them."""

from collections import Counter

import numpy as np

from interlingua.data.contexts import context_pair, with_context
from interlingua.data.datasets import DataSpec, open_store, open_stream
from interlingua.data.records import Document

DOCUMENT = Document(tuple(f"s{i}" for i in range(8)), "fi")


def draws(window, number=4000, document=DOCUMENT):
    random = np.random.default_rng(0)
    for _ in range(number):
        pair = context_pair(document, 7, window, random)
        yield int(pair.center[1:]), int(pair.target[1:])


def test_two_members_of_a_window_in_both_orders():
    for window in (2, 3, 5):
        distances = Counter(target - center for center, target in draws(window))
        assert set(distances) == {d for d in range(1 - window, window) if d}
        assert abs(distances[1] - distances[-1]) < 0.1 * (distances[1] + distances[-1])


def test_every_sentence_comes_and_a_short_document_is_one_window():
    assert {center for center, _ in draws(5)} == set(range(8))
    assert {abs(c - t) for c, t in draws(5, document=Document(("s0", "s1", "s2"), "fi"))} == {1, 2}


def test_documents_of_one_sentence_are_left_out_and_counted(capsys):
    assert list(with_context([DOCUMENT, Document(("alone",), "fi")])) == [DOCUMENT]
    assert "1 of 2 documents are a single sentence" in capsys.readouterr().err


def test_a_stream_of_one_language_a_batch_that_resumes(tmp_path):
    spec = DataSpec(kind="contexts", path="encyclopedia:train", batch=4, one_language=True, alpha=0.3, window=3)
    store = open_store("contexts", spec, tmp_path)
    stream = open_stream("contexts", store, spec, 5)
    batches = [next(stream) for _ in range(6)]
    for batch in batches:
        assert len({pair.lang for pair in batch}) == 1
        assert all(pair.center != pair.target for pair in batch)
        for pair in batch:
            assert {pair.center, pair.target} <= set(store[pair.document].sentences)
    state = stream.state_dict()
    following = next(stream)
    again = open_stream("contexts", store, spec, 5)
    again.load_state_dict(state)
    assert next(again) == following
    assert len({tuple(batch) for batch in batches}) == 6


def test_a_target_that_repeats_its_centre_is_drawn_again():
    random = np.random.default_rng(0)
    refrain = Document(("again", "again", "once", "again"), "fi")
    found = {(p.center, p.target) for p in (context_pair(refrain, 0, 4, random) for _ in range(200))}
    assert found == {("again", "once"), ("once", "again")}
    same = context_pair(Document(("again", "again"), "fi"), 0, 5, random)
    assert (same.center, same.target) == ("again", "again")
