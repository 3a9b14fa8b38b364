from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch

from interlingua.data.records import Passage
from interlingua.errors import Damaged
from interlingua.index import Index
from interlingua.index.export import EncodedParts, write_parquet
from interlingua.index.export import encoded as whole_parts
from interlingua.index.local import build as index_build
from interlingua.index.local import store as local_store
from interlingua.index.local.rows import SubwordRows, subwords_of, to_rows
from interlingua.index.local.table import PassageTable
from interlingua.index.store import encode_passages
from interlingua.models.dual import DualEncoder
from interlingua.models.language_maps import LanguageMaps
from interlingua.models.layout import Dense
from interlingua.models.static.embedding import quantised
from interlingua.retrieval.late_interaction import static as static_maxsim
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.retriever import embed_passages


def by_loops(encoder, question, passages):
    """The formula, subword by subword, with the vectors as int8 and lengths before that."""
    rows = encoder.backbone.folded()
    int8 = quantised(rows)["embeddings"].double()
    asked, held = encoder.tokenize([question], "query")[0], encoder.tokenize(passages, "passage")
    nearest = {
        one: [
            max(float(int8[one] @ int8[other] / (int8[one].norm() * int8[other].norm())) for other in ids)
            for ids in held
            if ids
        ]
        for one in asked
    }
    count = len([ids for ids in held if ids])
    weights = {
        one: float(rows[one].double().square().sum())
        * math.log(1 + count / (sum(max(0.0, cosine) ** 8 for cosine in cosines) + 0.5))
        for one, cosines in nearest.items()
    }
    together = sum(weights[one] for one in asked)
    scores = iter(
        [sum(weights[one] * nearest[one][at] for one in asked) / together if asked else 0.0 for at in range(count)]
    )
    return [next(scores) if ids else 0.0 for ids in held]


def test_a_score_is_the_weighted_mean_of_the_nearest_cosines(tiny_static, sentences):
    encoder = tiny_static(token_weights=True)
    torch.nn.init.normal_(encoder.backbone.log_weights, generator=torch.Generator().manual_seed(1))
    words = StaticMaxSim.of(encoder)
    passages = [Passage(str(n), text) for n, text in enumerate([*sentences, "", sentences[0] * 2])]
    for question in [*sentences[:4], sentences[0] + " " + sentences[0][:9], ""]:
        scores = words.scores(words.question(question), words.subwords(passages))
        assert scores == pytest.approx(by_loops(encoder, question, [one.text for one in passages]), abs=1e-6)
    assert words.scores(words.question(sentences[2]), words.subwords(passages))[2] == pytest.approx(1.0, abs=1e-6)
    assert words.scores(words.question("x"), []).tolist() == []


def test_the_rows_as_they_are_differ_little_from_int8(tiny_static, sentences):
    encoder = tiny_static(dim=64)
    rows, words = encoder.backbone.folded().double(), StaticMaxSim.of(encoder)
    ids = [torch.tensor(found) for found in encoder.tokenize(sentences, "passage")]
    unit, weights = torch.nn.functional.normalize(rows, dim=1), rows[ids[0]].square().sum(1)
    nearest = torch.stack([(unit[ids[0]] @ unit[other].T).amax(1) for other in ids])
    weights *= torch.log(1 + len(ids) / (nearest.clamp(min=0).pow(8).sum(0) + 0.5))
    exact = (nearest @ weights / weights.sum()).tolist()
    passages = [Passage(str(n), text) for n, text in enumerate(sentences)]
    assert words.scores(words.question(sentences[0]), words.subwords(passages)) == pytest.approx(exact, abs=0.01)


def test_a_score_depends_on_the_passages_and_not_on_their_order(tiny_static, sentences):
    words = StaticMaxSim.of(tiny_static(dim=320))
    subwords = words.subwords([Passage(str(n), text) for n, text in enumerate(sentences * 9)])
    for text in sentences[:5]:
        question = words.question(text)
        scores = words.scores(question, subwords)
        assert words.scores(question, subwords[::-1])[::-1] == pytest.approx(scores, abs=1e-6)
        assert words.scores(question, [*subwords, np.array([], dtype=np.int64)]).tolist() == [*scores.tolist(), 0.0]


@pytest.mark.parametrize("dim", [24, 30, 320, static_maxsim.EXACT + 8])
def test_the_compiled_scores_are_those_of_numpy_to_the_last_bit(dim, tiny_static, sentences, monkeypatch):
    compiled = pytest.importorskip("interlingua.retrieval.dense.int8_kernel")
    encoder = DualEncoder(tiny_static(dim=dim, seed=1), tiny_static(dim=dim, seed=2))
    texts = ["", *sentences, " ".join(sentences), "", " ".join(sentences[:3])]
    common = encoder.passage.tokenize(sentences[:1], "passage")[0][0]
    encoder.passage.backbone.embedding.weight.data[common] = 0  # its vector has no direction
    words, again = StaticMaxSim.of(encoder), StaticMaxSim.of(encoder)
    subwords = [ids.astype(np.uint16) for ids in words.subwords([Passage(str(n), one) for n, one in enumerate(texts)])]
    assert any(common in ids for ids in subwords)
    questions = [words.question(text) for text in texts]
    assert {-(-len(question.subwords) // 16) for question in questions} >= {0, 1, 2, 7}  # blocks of the kernel
    for question in questions:
        for part in (subwords, subwords[:1], subwords[3:4], []):
            monkeypatch.setattr(static_maxsim, "KERNEL", lambda work: None)
            expected = words.scores(question, part)
            monkeypatch.setattr(static_maxsim, "KERNEL", lambda work: compiled)
            assert again.scores(question, part).tolist() == expected.tolist()


@pytest.mark.parametrize("subword", [-1, -20, 10**6])
def test_subwords_that_no_vocabulary_has_are_not_read(subword, tiny_static, sentences, monkeypatch):
    words = StaticMaxSim.of(tiny_static())
    for worth in (0, math.inf):
        monkeypatch.setattr(static_maxsim.KERNEL, "worth", worth)
        with pytest.raises(Damaged, match=rf"a passage has the subword {subword}, and the model has"):
            words.scores(words.question(sentences[0]), [np.array([3, subword], dtype=np.int32)])


def test_long_vectors_are_exact_too(tiny_static, sentences):
    encoder = tiny_static(dim=static_maxsim.EXACT + 8)
    encoder.backbone.embedding.weight.data.sign_()  # all components of int8 are ±127
    words = StaticMaxSim.of(encoder)
    subwords = words.subwords([Passage(str(n), text) for n, text in enumerate(sentences)])
    assert words.scores(words.question(sentences[1]), subwords) == pytest.approx(
        by_loops(encoder, sentences[1], sentences), abs=1e-6
    )


def test_two_encoders_keep_their_own_vectors(tiny_static, sentences):
    query, passage = tiny_static(seed=1), tiny_static(seed=2)
    words = StaticMaxSim.of(DualEncoder(query, passage))
    [own] = words.scores(words.question(sentences[0]), words.subwords([Passage("1", sentences[0])]))
    assert own < 0.99  # the same text, but vectors of another encoder
    assert StaticMaxSim.of(DualEncoder(query)).scores(
        words.question(sentences[0]), [words.question(sentences[0]).subwords]
    )[0] == pytest.approx(1.0, abs=1e-6)


def test_only_a_static_encoder_with_nothing_after_the_mean_has_it(tiny_static, tiny_encoder, tmp_path):
    encoder = tiny_static()
    made = StaticMaxSim.of(encoder)
    assert StaticMaxSim.of(DualEncoder(encoder), made) is made is not StaticMaxSim.of(tiny_static(), made)
    assert StaticMaxSim.of(None) is StaticMaxSim.of(tiny_encoder()) is StaticMaxSim.of("default") is None
    dense, mapped = tiny_static(), tiny_static()
    dense.dense.append(Dense(24, 8))
    mapped.language_maps = LanguageMaps({}, {})
    assert StaticMaxSim.of(dense) is StaticMaxSim.of(DualEncoder(mapped)) is None


def test_subwords_and_vectors_are_made_of_one_tokenisation(tiny_static, sentences, monkeypatch):
    monkeypatch.setattr(static_maxsim, "TOGETHER", 4)
    encoder = DualEncoder(tiny_static(token_dropout=0.9))
    passages = [Passage(str(n), text, title="river" * (n % 2)) for n, text in enumerate(sentences)]
    encoder.train()
    subwords, vectors = StaticMaxSim.of(encoder).encode(passages)
    assert encoder.passage.training
    assert (vectors == embed_passages(encoder, passages)).all()
    assert [ids.tolist() for ids in subwords] == [
        sorted(set(ids))
        for ids in encoder.passage.tokenize(
            [(one.title, one.text) if one.title else one.text for one in passages], "passage"
        )
    ]


def test_only_so_many_subwords_are_looked_at(tiny_static, sentences, monkeypatch):
    encoder = tiny_static()
    words, passage = StaticMaxSim.of(encoder), Passage("1", " ".join(sentences[:3]))
    [whole] = words.subwords([passage])
    lengths = encoder.backbone.folded().norm(dim=1).numpy()
    monkeypatch.setattr(static_maxsim, "MOST", 5)
    monkeypatch.setattr(static_maxsim, "LONGEST", 4)
    assert words.subwords([passage])[0].tolist() == whole[:5].tolist()
    ids, weights = words.question(sentences[0])
    every = set(encoder.tokenize([sentences[0]], "query")[0])
    assert len(ids) == 4
    assert lengths[ids].min() >= max(lengths[other] for other in every - set(ids.tolist()))
    assert (ids.tolist(), weights.sum()) == (sorted(ids.tolist()), pytest.approx(1.0))


def test_an_encoder_of_ones_own_is_asked_for_its_vectors(tiny_static, sentences):
    class Short(DualEncoder):
        def encode_document(self, texts, **options):
            return super().encode_document([text[:5] for text in texts], **options)

    encoder, passages = Short(tiny_static()), [Passage(str(n), text) for n, text in enumerate(sentences)]
    vectors, subwords = encode_passages(encoder, passages)
    assert (vectors == embed_passages(encoder, passages)).all()
    assert [len(ids) for ids in subwords] == [len(ids) for ids in StaticMaxSim.of(encoder).subwords(passages)]


@pytest.mark.slow
def test_a_build_that_another_version_left_is_begun_anew(tmp_path, tiny_static, sentences, monkeypatch):
    passages = [Passage(str(n), text, lang="en") for n, text in enumerate(sentences)]

    def full(self):
        raise OSError("full")

    monkeypatch.setattr(PassageTable, "compact", full)
    with pytest.raises(OSError, match="full"):
        Index.build(tiny_static(), passages, tmp_path / "idx")
    [left] = tmp_path.glob(".idx.*/building.json")
    told = json.loads(left.read_text())
    for version in (told["format"] - 1, told["format"]):
        left.write_text(json.dumps({**told, "format": version}))
        made = []
        monkeypatch.setattr(
            index_build, "encode_passages", lambda *given, made=made: made.extend(given[1]) or encode_passages(*given)
        )
        with pytest.raises(OSError, match="full"):
            Index.build(tiny_static(), passages, tmp_path / "idx")
        assert len(made) == (len(passages) if version < told["format"] else 0)


@pytest.mark.slow
@pytest.mark.parametrize(("vocabulary", "bits"), [(65_536, 16), (65_537, 32)])
def test_the_store_keeps_subwords_of_any_vocabulary(tmp_path, vocabulary, bits):
    store = PassageTable.create(tmp_path, 2, vocabulary)
    assert store.schema.field("subwords").type.value_type.bit_width == bits
    given = [np.array([0, vocabulary - 1]), np.array([], dtype=np.int64), np.array([7])]
    rows = to_rows([Passage(str(n), "x") for n in range(3)])
    store.add(store.batch(1, rows, np.ones((3, 2), np.float32), given))
    [batch] = store.batches(("subwords",), 10)
    assert [ids.tolist() for ids in subwords_of(batch)] == [ids.tolist() for ids in given]


@pytest.mark.slow
def test_vectors_that_were_computed_elsewhere_come_with_subwords(tmp_path, tiny_static, sentences):
    encoder = DualEncoder(tiny_static())
    passages = [Passage(str(n), text, lang="en") for n, text in enumerate(sentences)]
    write_parquet(tmp_path / "part.parquet", whole_parts(encoder, passages, 4))
    known = EncodedParts(encoder, [tmp_path / "part.parquet"])
    index = Index.build(known, known.passages(), tmp_path / "parts")
    expected = Index.build(encoder, passages, tmp_path / "plain").search(sentences[0], 5, lang="en")
    assert "tokens" in expected[0].parts
    assert index.search(sentences[0], 5, lang="en") == expected


def test_rows_give_back_what_was_put_in(monkeypatch):
    monkeypatch.setattr("interlingua.index.local.rows.BATCH", 3)
    given = [np.arange(size) * 70_001 for size in (2, 0, 5, 1, 0, 3, 4)]
    rows = SubwordRows.of(given)
    assert len(rows) == 7
    assert [rows[number].tolist() for number in range(7)] == [one.tolist() for one in given]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_after_any_writes_hybrid_search_is_that_of_a_fresh_index(tmp_path, monkeypatch, tiny_static, sentences, seed):
    monkeypatch.setattr(local_store, "FEW", 4)
    rng, encoder = random.Random(seed), tiny_static()
    held = {f"p{n}": Passage(f"p{n}", text, lang="en") for n, text in enumerate(sentences)}
    index = Index.build(encoder, held.values(), tmp_path / "idx")
    for step in range(6):
        for name in rng.sample(sorted(held), 2):
            held[name] = Passage(name, rng.choice(sentences) + " " + rng.choice(sentences), lang="en")
        index.replace(held.values())
        new = Passage(f"new{step}", rng.choice(sentences)[::2], lang="en")
        held[new.id] = new
        index.add([new])
        gone = rng.choice(sorted(held))
        del held[gone]
        index.delete([gone])
        if step == 3:
            index.compact()
    fresh = Index.build(encoder, held.values(), tmp_path / "fresh")
    texts = sentences[:5]
    found = fresh.search_many(texts, 30, lang="en")
    assert (
        index.search_many(texts, 30, lang="en")
        == Index.open(tmp_path / "idx", encoder).search_many(texts, 30, lang="en")
        == found
    )
    assert any("tokens" in hit.parts for hit in found[0])


@pytest.mark.slow
def test_an_index_in_milvus_matches_as_a_local_one_does(tmp_path, monkeypatch, tiny_static, sentences):
    pytest.importorskip("milvus_lite")
    encoder = tiny_static()
    passages = [Passage(f"p{n}", text, lang="en") for n, text in enumerate(sentences)]
    local = Index.build(encoder, passages[:-3], tmp_path / "idx")
    stored = Index.build(encoder, passages[:-3], f"milvus:{tmp_path}/lite.db/docs")
    monkeypatch.setattr("interlingua.index.local.build.to_rows", None)  # Milvus has no use for rows of Arrow
    stored.add(passages[-3:-1])
    monkeypatch.undo()
    local.add(passages[-3:-1])
    for index in (local, stored):
        index.add(passages[-1:])
        index.compact()
    for text in sentences[:4]:
        expected, found = local.search(text, 5, lang="en"), stored.search(text, 5, lang="en")
        assert [hit.passage for hit in found] == [hit.passage for hit in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.parts["tokens"] == other.parts["tokens"]
            assert one.score == pytest.approx(other.score, rel=1e-5)
    stored.close()
