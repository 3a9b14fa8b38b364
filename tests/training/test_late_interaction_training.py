"""Fine-tuning late interaction through the trainer: ragged vectors in chunks, in a gradient cache, over processes."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from interlingua.data.records import Passage, QuestionPassage, Sentence
from interlingua.errors import InterlinguaError
from interlingua.models.late_interaction import LateInteractionEncoder, load_any
from interlingua.objectives import LateInteraction, MaskedLanguageModelling, Objective
from interlingua.objectives.objective import Loss, Texts
from interlingua.training.build import train
from interlingua.training.encoding import Chunking, EncodedTexts
from interlingua.training.processes import Processes
from interlingua.training.recipe import read_recipe, recipe_text, resolve, same_recipe
from interlingua.training.step import backward, groups
from interlingua.training.weighted import WeightedObjective, check

ALONE = Processes(0, 1, torch.device("cpu"))
WORDS = "the keeper wrote every storm, into a small blue book. stars of southern sky rivers meet below town".split()


def text(seed, length=8):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (2 + seed % length,), generator=generator))


def batch():
    """Question 5 is question 0 again with a new positive, and two questions share a negative."""
    passages = [Passage(f"p{i}", text(i + 50, 12)) for i in range(12)]
    questions = [QuestionPassage(text(i % 5), (passages[i],), (passages[6 + i % 4], passages[7])) for i in range(6)]
    return {"questions": questions, "sentences": [Sentence(text(i + 300), "fi") for i in range(4)]}


@pytest.fixture
def late(tiny_encoder):
    return LateInteractionEncoder.start(
        tiny_encoder(), dim=8, query_length=14, document_length=40, skip_punctuation=True
    )


def terms():
    return [
        WeightedObjective("pairs", LateInteraction(hard_negatives=2, similarity="l2")),
        WeightedObjective("batch", LateInteraction(contrast="in_batch", temperature=2.0), 0.5),
    ]


def gradients(model, chunking, the_terms=None, **options):
    model.zero_grad()
    torch.manual_seed(7)
    reports = {}
    for group in groups(terms() if the_terms is None else the_terms, batch()):
        reports |= backward(group, model, batch(), 0, chunking, ALONE, **options)
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}, reports


def same(a, b, atol):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=atol, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def joint(model):
    """All losses in one graph, every text encoded as often as it is asked for."""
    total = 0
    for term in terms():
        vectors = {n: model.embed(t.texts, t.role) for n, t in term.objective.requests(batch()).items()}
        total = total + term.weight * term.objective.loss(batch(), vectors).value
    model.zero_grad()
    total.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunking", [Chunking(), Chunking(tokens=40), Chunking(cache=2), Chunking(tokens=60, cache=4)])
@pytest.mark.parametrize("measure", [False, True])
def test_gradients_equal_those_of_one_graph(late, chunking, measure):
    late.eval()
    found, reports = gradients(late, chunking, measure=measure)
    same(found, joint(late), 2e-6)
    assert all(report.vectors == {} for report in reports.values())  # geometry is for one vector a text
    assert (reports["pairs"].gradient_norm is not None) == measure


def test_gradient_cache_replays_dropout(late):
    """Dropout on: gradients with the cache equal those of the same chunks with their graphs kept."""
    late.train()
    kept, _ = gradients(late, Chunking(tokens=48))
    cached, _ = gradients(late, Chunking(tokens=48, cache=1000))
    same(kept, cached, 1e-5)
    torch.manual_seed(8)
    assert any((kept[n] - g).abs().max() > 1e-4 for n, g in joint(late).items())  # dropout really is on


def test_a_text_is_encoded_once_and_found_everywhere_it_was_asked_for(late, monkeypatch):
    late.eval()
    read = []
    embed = LateInteractionEncoder.embed_ids

    def count(self, ids, role):
        read.append((role, len(ids)))
        return embed(self, ids, role)

    monkeypatch.setattr(LateInteractionEncoder, "embed_ids", count)
    seen = {}

    class Look(Objective):
        streams = ("questions",)
        multi_vector = True

        def requests(self, _):
            return {"queries": Texts("query", ["a storm", "a", "a storm"]), "passages": Texts("passage", ["b,", "a"])}

        def loss(self, _, vectors):
            seen.update(vectors)
            return Loss(sum(part.vectors.sum() for part in vectors.values()))

    gradients(late, Chunking(), [WeightedObjective("look", Look())])
    assert read == [("query", 2), ("passage", 2)]
    for name, role, asked in (("queries", "query", ["a storm", "a", "a storm"]), ("passages", "passage", ["b,", "a"])):
        for ours, one in zip(seen[name], asked, strict=True):
            torch.testing.assert_close(ours, late.embed([one], role)[0], atol=1e-5, rtol=0)


def test_masked_language_modelling_beside_it(late):
    """The token objective reads the states before the projection, through the same encoder."""
    late.eval()
    objective = MaskedLanguageModelling(hidden=late.hidden_size, vocabulary=len(late.input_embeddings.weight))
    found, reports = gradients(late, Chunking(), [*terms(), WeightedObjective("mlm", objective)])
    alone = joint(late)
    assert set(found) == set(alone)
    assert not torch.equal(
        found["backbone.model.embeddings.word_embeddings.weight"],
        alone["backbone.model.embeddings.word_embeddings.weight"],
    )
    name = "projection.linear.weight"
    torch.testing.assert_close(found[name], alone[name], atol=2e-6, rtol=1e-4)
    assert reports["mlm"].details["predictions"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("term", terms(), ids=lambda term: term.name)
def test_it_learns(late, term):
    optimizer = torch.optim.Adam(late.parameters(), lr=0.003)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        losses.append(backward([term], late, batch(), 0, Chunking(cache=8), ALONE)[term.name].loss)
        optimizer.step()
    assert losses[-1] < 0.5 * losses[0]


def test_a_batch_without_negatives_teaches_nothing_and_says_so(late):
    records = {"questions": [QuestionPassage(text(1), (Passage("p", text(2)),))]}
    term = WeightedObjective("pairs", LateInteraction())
    report = backward([term], late, records, 0, Chunking(), ALONE)["pairs"]
    assert report.loss == 0
    assert "1 of 1 questions have no negative" in report.warning


def _unequal(rank, file, model, asked, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    encoded = EncodedTexts(model, "passage", asked, Chunking(tokens=30), Processes(rank, 2, torch.device("cpu")))
    encoded.backward(torch.arange(encoded.leaf.numel(), dtype=torch.float32).view_as(encoded.leaf))
    results[rank] = (encoded.counts, encoded.leaf.detach(), {n: p.grad for n, p in model.named_parameters()})
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="forks, so without CUDA: CUDA_VISIBLE_DEVICES= make test")
def test_two_processes_gather_unequal_numbers_of_vectors(late, tmp_path):
    """Gloo, in two processes: both see the vectors of all texts in order; their gradients add up to the whole."""
    import torch.multiprocessing as mp

    late.eval()
    asked = [text(i, 20) for i in (1, 19, 3, 18, 5)]
    whole = EncodedTexts(late, "passage", asked, Chunking(), ALONE)
    assert len(set(whole.counts)) > 2
    whole.backward(torch.arange(whole.leaf.numel(), dtype=torch.float32).view_as(whole.leaf))
    expected = {n: p.grad.clone() for n, p in late.named_parameters() if p.grad is not None}
    late.zero_grad()
    context = mp.get_context("fork")
    with context.Manager() as manager:
        results = manager.dict()
        workers = [context.Process(target=_unequal, args=(r, tmp_path / "store", late, asked, results)) for r in (0, 1)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        found = dict(results)
    for counts, leaf, _ in found.values():
        assert counts == whole.counts
        torch.testing.assert_close(leaf, whole.leaf.detach(), atol=1e-5, rtol=0)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[0][2][name] + found[1][2][name], gradient, atol=1e-3, rtol=1e-4)


TREE = {
    "tokenizer_sentences": 400,
    "model": {
        "backbone": {
            "scratch": {"vocab_size": 1500, "layers": 1, "hidden": 16, "heads": 2, "intermediate": 32, "max_length": 32}
        },
        "late_interaction": {"dim": 8, "query_length": 12, "document_length": 24},
    },
    "data": {"questions": {"path": "encyclopedia:train", "batch": 6}},
    "objectives": {"late_interaction": {"contrast": "in_batch", "hard_negatives": 0}},
    "optimizer": {"lr": 0.01},
    "training": {
        "steps": 4,
        "checkpoint_every": 2,
        "keep_checkpoints": 5,
        "log_every": 1,
        "tensorboard": False,
        "gradient_cache": 4,
    },
}


def weights(folder):
    return {str(p.relative_to(folder)): load_file(p) for p in sorted(folder.rglob("model.safetensors"))}


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[f][k], b[f][k]) for f in a for k in a[f])


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_and_its_folder_loads(tmp_path):
    tree = {
        **TREE,
        "training": {**TREE["training"], "keep": "best", "validate_every": 2},
        "validation": {"questions": {"path": "encyclopedia:test"}, "limit": 12, "batch": 6},
    }
    trained = train(resolve(tree), tmp_path / "whole")
    assert isinstance(trained, LateInteractionEncoder)
    log = [json.loads(line) for line in (tmp_path / "whole/log.jsonl").read_text().splitlines()]
    validation = [line["validation/nll"] for line in log if "validation/nll" in line]
    assert len(validation) == 2
    assert all(1 < value < 3 for value in validation)  # ln 6 = 1.79 for a model that has learned nothing
    assert equal(weights(tmp_path / "whole/best"), weights(tmp_path / "whole/model"))
    shutil.copytree(tmp_path / "whole", tmp_path / "broken")
    for gone in ("model", "checkpoints/step-0000004"):
        shutil.rmtree(tmp_path / "broken" / gone)
    train(resolve(tree), tmp_path / "broken")
    assert equal(weights(tmp_path / "whole/model"), weights(tmp_path / "broken/model"))
    assert log == [json.loads(line) for line in (tmp_path / "broken/log.jsonl").read_text().splitlines()]
    loaded = load_any(tmp_path / "whole/model", device="cpu")
    assert torch.equal(loaded.encode_query(["a b"]).vectors, trained.to("cpu").encode_query(["a b"]).vectors)
    assert (loaded.dim, loaded.encode_query("a").counts) == (8, [12])


@pytest.mark.slow
def test_it_starts_from_a_warm_up_and_from_another_late_interaction_model(tmp_path):
    """A warm-up has one vector a text; a late-interaction backbone keeps its projection and markers."""
    tree = {
        **TREE,
        "training": {**TREE["training"], "steps": 1},
        "optimizer": {"lr": 1e-9},
        "warm_up": {
            "data": {"questions": {"path": "encyclopedia:train", "batch": 4}},
            "objectives": {"retrieval": {"hard_negatives": 0}},
            "training": {"steps": 1, "tensorboard": False},
        },
    }
    first = train(resolve(tree), tmp_path / "first", "cpu")
    warm = load_any(tmp_path / "first/warm_up/model", device="cpu").query
    torch.testing.assert_close(first.input_embeddings.weight[: len(warm.tokenizer)], warm.input_embeddings.weight)
    again = {
        **TREE,
        "model": {
            "backbone": str(tmp_path / "first/model"),
            "late_interaction": {
                "dim": 8,
                "query_length": 10,
                "document_length": 20,
                "query_expansion": False,
                "skip_punctuation": True,
            },
        },
        "training": tree["training"],
        "optimizer": {"lr": 1e-9},
    }
    second = train(resolve(again), tmp_path / "second", "cpu")
    torch.testing.assert_close(second.projection.linear.weight, first.projection.linear.weight)
    assert len(second.input_embeddings.weight) == len(first.input_embeddings.weight)
    assert (second.settings.length("query"), second.query_expansion, len(second.skipped) > 0) == (10, False, True)
    assert second.settings.prompts == first.settings.prompts
    with pytest.raises(InterlinguaError, match="late-interaction model of dim 8"):
        train(resolve(again, ["model.late_interaction.dim=16"]), tmp_path / "third", "cpu")
    with pytest.raises(InterlinguaError, match=r"LateInteractionEncoder\.load"):
        train(
            resolve(
                {
                    **again,
                    "model": {"backbone": str(tmp_path / "first/model")},
                    "objectives": {"retrieval": {"hard_negatives": 0}},
                }
            ),
            tmp_path / "fourth",
            "cpu",
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["objectives.retrieval={}"], "objectives.retrieval is not for a model with model.late_interaction"),
        (["model.late_interaction=null"], r"objectives.late_interaction compares tokens.*Add model\.late_interaction"),
        (["model.encoders=untied"], "one encoder for queries and passages"),
        (["model.pooling=cls"], "model.pooling has no meaning beside"),
        (["model.similarity=dot"], "model.similarity has no meaning beside"),
        (["model.max_length=20"], "query_length and document_length are the lengths"),
        (["model.backbone={static: {}}"], "needs a transformer"),
        (["objectives.late_interaction.contrast=pairwise"], "hard_negatives 0 is too few"),
        (["model.late_interaction.dims=4"], r"unknown key 'model\.late_interaction\.dims'"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_read(changes, said):
    with pytest.raises(InterlinguaError, match=said):
        check(resolve({**TREE, "model": {**TREE["model"], "backbone": "no/such"}}, changes))


def test_a_kept_recipe_is_the_same_recipe():
    recipe = resolve({**TREE, "model": {**TREE["model"], "backbone": "some/model"}})
    assert recipe.model.encoders == "tied"
    check(resolve(yaml.safe_load(recipe_text(recipe))))
    assert same_recipe(recipe_text(recipe), recipe)
    pairs = ["contrast=pairwise", "similarity=l2", "hard_negatives=1"]  # of tokens: not the model's similarity
    check(resolve(yaml.safe_load(recipe_text(recipe)), [f"objectives.late_interaction.{pair}" for pair in pairs]))
    older = read_recipe("hu2023/semantic", data="x")
    assert older.model.late_interaction is None


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(learned):
    learned(TREE)
