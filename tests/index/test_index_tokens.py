from __future__ import annotations

import dataclasses
import os
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock
from torch.nn.functional import normalize

from interlingua.cli import main
from interlingua.data.records import Passage
from interlingua.errors import BadInput, InterlinguaError
from interlingua.index import Index
from interlingua.index.highlights import ContextualAligner, highlight_encoder
from interlingua.index.local import tokens as index_tokens
from interlingua.index.local.table import synced_version
from interlingua.index.local.tokens import IndexTokens, complete, folder_of
from interlingua.models.dual import DualEncoder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.retrieval.late_interaction.states import TokenStates

PASSAGES = [
    Passage(f"p{n}", f"{word} river and {word} hill", lang="en")
    for n, word in enumerate("red green blue old new wide small far near high low".split())
]


class LengthEncoder:
    """Of no interest here."""

    similarity = "dot"

    def encode_query(self, sentences, **options):
        return np.array([[len(text), 1.0] for text in sentences])

    def encode_document(self, sentences, **options):
        return self.encode_query(sentences)


@pytest.fixture
def index(tmp_path):
    return Index.build(LengthEncoder(), PASSAGES, tmp_path / "idx")


@pytest.fixture
def reranker(tiny_encoder, monkeypatch):
    """A model that says what it was given to encode."""
    monkeypatch.setattr(index_tokens, "PART", 4)
    model = LateInteractionEncoder.start(tiny_encoder(), dim=16, query_length=12, document_length=24)
    encode, model.given = model.encode_document, []
    monkeypatch.setattr(
        model, "encode_document", lambda texts, **options: model.given.extend(texts) or encode(texts, **options)
    )
    return model


def ranking(index, reranker):
    return [(hit.passage.id, hit.score) for hit in index.search("old river", 20, reranker=reranker, lang="en")]


@pytest.mark.slow
def test_what_is_kept_is_not_encoded_again_and_ranks_alike(index, reranker):
    fresh = ranking(index, reranker)
    assert len(reranker.given) == len(fresh) == 11
    reranker.given.clear()
    assert index.keep_tokens(reranker) == 11
    assert len(reranker.given) == 11
    assert sorted(map(len, IndexTokens(complete(folder_of(index.path, reranker))).stores)) == [3, 4, 4]
    reranker.given.clear()
    for opened in (index, Index.open(index.path, LengthEncoder())):
        kept = ranking(opened, reranker)
        assert dict(kept) == pytest.approx(dict(fresh), abs=0.05)  # int8
        assert kept[0][0] == fresh[0][0]
    assert reranker.given == []
    assert index.keep_tokens(reranker) == 0


def test_token_vectors_are_of_numbers_that_a_power_cut_does_not_give_again(index, reranker):
    quick = Index.open(index.path, LengthEncoder(), durability="process")
    quick.add([Passage("new", "a new lake", lang="en")])
    version = quick.info().version
    assert synced_version(index.path) < version
    assert quick.keep_tokens(reranker) == 12
    assert synced_version(index.path) == version


@pytest.mark.slow
def test_new_and_changed_passages_are_encoded_when_needed(index, reranker):
    index.keep_tokens(reranker)
    before = dict(ranking(index, reranker))
    reranker.given.clear()
    index.add([Passage("new", "a new lake", lang="en")])
    index.replace([dataclasses.replace(PASSAGES[3], text="nothing of that")])
    index.delete(["p0"])
    after = dict(ranking(index, reranker))
    assert sorted(reranker.given) == ["a new lake", "nothing of that"]
    assert after.keys() == before.keys() - {"p0"} | {"new"}
    assert after["p3"] != pytest.approx(before["p3"], abs=0.01)
    assert after["p4"] == before["p4"]
    assert index.keep_tokens(reranker) == 2
    reranker.given.clear()
    index.compact()
    assert dict(ranking(index, reranker)) == pytest.approx(after, abs=0.05)
    assert reranker.given == []


def test_another_model_finds_nothing(index, reranker, tiny_encoder):
    index.keep_tokens(reranker)
    other = LateInteractionEncoder.start(tiny_encoder(), dim=16, query_length=12, document_length=24, seed=5)
    assert len(IndexTokens(complete(folder_of(index.path, other)))) == 0
    assert index.keep_tokens(other) == 11
    other.change(query_length=12, document_length=20, query_expansion=True, skip_punctuation=False)
    assert len(IndexTokens(complete(folder_of(index.path, other)))) == 0


def test_those_of_two_rerankers_stay_open(index, reranker, tiny_encoder):
    other = LateInteractionEncoder.start(tiny_encoder(), dim=16, query_length=12, document_length=24, seed=5)
    for model in (reranker, other):
        index.keep_tokens(model)
    store = index.store
    first = [store.tokens(model) for model in (reranker, other)]
    assert [store.tokens(model) for model in (reranker, other)] == first
    assert first[0] is not first[1]


def test_parts_of_which_most_is_gone_are_removed(index, reranker):
    index.keep_tokens(reranker)
    index.delete(["p0", "p1", "p2"])  # of p0 to p3
    (folder_of(index.path, reranker) / ".4.abcdefgh.part").mkdir()
    reranker.given.clear()
    assert index.keep_tokens(reranker) == 1
    assert reranker.given == [PASSAGES[3].text]
    assert len(IndexTokens(complete(folder_of(index.path, reranker)))) == 8
    assert not list(folder_of(index.path, reranker).glob(".*.part"))


def test_an_index_built_anew_with_the_same_numbers_has_no_old_vectors(index, reranker, tmp_path):
    index.keep_tokens(reranker)
    ranking(index, reranker)
    parts = complete(folder_of(index.path, reranker))
    changed = [dataclasses.replace(passage, text=f"{passage.text} again") for passage in PASSAGES]
    new = Index.build(LengthEncoder(), changed, tmp_path / "idx", overwrite=True)
    expected = dict(ranking(new, reranker))
    new.keep_tokens(reranker)
    assert [part.path for part in complete(folder_of(index.path, reranker))] == [part.path for part in parts]
    assert dict(ranking(index, reranker)) == pytest.approx(expected, abs=0.05)


def test_a_view_of_an_index_that_was_replaced_gets_no_vectors_of_the_new_one(index, reranker, tmp_path):
    view = index.refresh()
    [row] = view.find(["p1"])["p1"]
    index.keep_tokens(reranker)
    assert view.tokens(reranker, [row]).keys() == {row}
    Index.build(LengthEncoder(), PASSAGES[::-1], tmp_path / "idx", overwrite=True).keep_tokens(reranker)
    assert view.tokens(reranker, [row]) == {}


def test_passages_that_came_later_are_compared_by_token_states_too(tiny_encoder, tmp_path):
    index = Index.build(tiny_encoder(pooling="mean"), PASSAGES[:6], tmp_path / "idx")
    assert index.keep_tokens() == 6
    index.add([dataclasses.replace(passage, metadata={"source": "new"}) for passage in PASSAGES[6:]])
    question = PASSAGES[7].text
    before = index.search(question, where={"source": "new"})
    assert all("tokens" in hit.parts for hit in before)
    assert index.keep_tokens() == len(before)
    after = {hit.passage.id: hit.parts["tokens"] for hit in index.search(question, where={"source": "new"})}
    assert {hit.passage.id: hit.parts["tokens"] for hit in before} == pytest.approx(after, abs=0.01)
    index.add([dataclasses.replace(PASSAGES[7], metadata={"source": name}) for name in ("one", "two")])
    assert {"one", "two"} <= {hit.passage.metadata.get("source") for hit in index.search(question)}  # both of one id


def test_an_index_is_searched_while_another_takes_its_place(index, monkeypatch):
    hits, rename, found = index.search("old"), os.rename, []

    def renamed(old, new):
        rename(old, new)
        if str(new).endswith(".old") and not found:
            found.append(index.search("old"))

    monkeypatch.setattr(os, "rename", renamed)
    Index.build(LengthEncoder(), PASSAGES[:3], index.path, overwrite=True)
    assert found == [hits]
    assert len(index.refresh()) == 3


def test_errors(index, reranker):
    with pytest.raises(InterlinguaError, match="one vector a text"):
        index.keep_tokens(LengthEncoder())
    folder = folder_of(index.path, reranker)
    folder.mkdir(parents=True)
    with FileLock(folder / "writer.lock"), pytest.raises(InterlinguaError, match="another process"):
        index.keep_tokens(reranker)
    index.keep_tokens(reranker)
    (complete(folder)[0].path / "offsets.npy").write_bytes(b"")
    with pytest.raises(InterlinguaError, match="is damaged"):
        Index.open(index.path, LengthEncoder()).search("old", reranker=reranker)
    assert index.keep_tokens(reranker) == 4
    assert Index.open(index.path, LengthEncoder()).search("old", reranker=reranker)


def test_an_index_built_anew_meanwhile_gets_no_vectors_of_the_old_one(index, reranker, tmp_path, monkeypatch):
    encode, calls = reranker.encode_document, []

    def rebuilding(texts, **options):
        calls.append(texts)
        if len(calls) == 2:
            Index.build(LengthEncoder(), PASSAGES[::-1], tmp_path / "idx", overwrite=True)
        return encode(texts, **options)

    monkeypatch.setattr(reranker, "encode_document", rebuilding)
    with pytest.raises(InterlinguaError, match="built anew meanwhile"):
        index.keep_tokens(reranker)
    assert complete(folder_of(index.path, reranker)) == ()
    assert index.keep_tokens(reranker) == 11


@pytest.mark.slow
def test_many_small_parts_become_one(index, reranker, monkeypatch):
    monkeypatch.setattr(index_tokens, "SMALL", 2)
    index.keep_tokens(reranker)
    for number in range(3):
        index.add([Passage(f"new{number}", "one more", lang="en")])
        index.keep_tokens(reranker)
    index.add([Passage("last", "one more", lang="en")])
    assert index.keep_tokens(reranker) == 4
    assert sorted(map(len, IndexTokens(complete(folder_of(index.path, reranker))).stores)) == [3, 4, 4, 4]


@pytest.mark.slow
def test_token_states_of_the_model_are_the_third_part_of_hybrid_search(tiny_encoder, tmp_path, monkeypatch, capsys):
    encoder = tiny_encoder(pooling="mean", prompts={"query": "query: ", "passage": "passage: "})
    encoder.save(tmp_path / "model")
    model = DualEncoder.load(tmp_path / "model", precision="float32")
    index = Index.build(model, PASSAGES[:-1], tmp_path / "idx", model_path=str(tmp_path / "model"))
    before = index.search("old river", 20, lang="en")
    assert all(hit.parts.keys() == {"dense", "lexical"} for hit in before)
    assert main(["tokens", str(tmp_path / "idx")]) == 0
    assert "10 passages encoded" in capsys.readouterr().err
    index.add(PASSAGES[-1:])  # its tokens are not kept: they are encoded now
    given = []
    encode = TokenStates.encode_document
    monkeypatch.setattr(
        TokenStates, "encode_document", lambda self, texts, **how: given.extend(texts) or encode(self, texts, **how)
    )
    hits = index.search("old river", 20, lang="en")
    assert given == [PASSAGES[-1].text]
    asked = encoder.token_states(encoder.tokenize(["old river"], "query"))[0]
    kept = len(encoder.tokenize(["query: "])[0]) - 1
    asked = normalize(asked[kept:-1], dim=1).detach().numpy()
    for hit in hits:
        ids = encoder.tokenize([hit.passage.text], "passage")
        states = encoder.token_states(ids)[0][len(encoder.tokenize(["passage: "])[0]) - 1 : -1]
        cosines = asked @ normalize(states, dim=1).detach().numpy().T
        assert hit.parts["tokens"] == pytest.approx(cosines.max(axis=1).mean(), abs=0.02)  # kept as int8
    assert [hit.score for hit in hits] != [hit.score for hit in before]
    states = highlight_encoder(None, index, "hybrid")
    assert isinstance(states, TokenStates)
    text = "An old river, and a hill."
    spans = states.spans(text, "passage")
    assert len(spans) == states.encode_document([text]).counts[0]
    assert {at for span in spans for at in range(*span)} >= {at for at, sign in enumerate(text) if sign != " "}
    assert states.spans("", "query") == []
    aligned = ContextualAligner("river", states, lambda word: [word])
    cosines = states.encode_document([text])[0] @ states.encode_query(["river"])[0].T
    start, end = spans[int(cosines[:, -1].argmax())]
    for least, near in ((0.0, True), (2.0, False)):
        monkeypatch.setattr("interlingua.index.highlights.NEAR_STATE", least)
        found = aligned.spans(text, lambda word: [word])
        assert any(begin < end and start < stop for begin, stop in found) == near


def test_a_text_without_spaces_after_a_prompt_has_all_its_spans():
    """SentencePiece begins such a text with a bare "▁", with which the prompt ends already."""
    word = {"▁": 3, "読": 7, "む": 8, "▁old": 9}
    pieces = {"": [], "読む": [("▁", (0, 0)), ("読", (0, 1)), ("む", (1, 2))], "old": [("▁old", (0, 3))]}

    def tokenize(texts, role):
        bare = [[word[piece] for piece, _ in pieces[text] if piece != "▁"] for text in texts]
        return [[0, 5, 6, *([] if ids[:1] == [9] else [3]), *ids, 2] for ids in bare]

    subwords = SimpleNamespace(spans=lambda text: [(word[piece], span) for piece, span in pieces[text]])
    side = SimpleNamespace(tokenize=tokenize, backbone=SimpleNamespace(subwords=subwords))
    spans = {text: TokenStates(SimpleNamespace(query=side, passage=side)).spans(text, "query") for text in pieces}
    assert spans == {"": [], "読む": [(0, 1), (1, 2)], "old": [(0, 3)]}


def test_what_token_states_cannot_be_kept_of(index, tiny_static):
    with pytest.raises(BadInput, match="its model has no token states to keep"):
        index.keep_tokens()
    assert TokenStates.of(tiny_static()) is None
    assert index.token_states is None
