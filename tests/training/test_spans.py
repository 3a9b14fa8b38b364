"""Contrast and masked-LM losses of one forward pass: chunks, cache and processes change how, never what."""

import json
from statistics import fmean

import pytest
import torch
from safetensors.torch import load_file

from interlingua.data.linked import SpanPair
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import TokenVectors
from interlingua.objectives import Comparable
from interlingua.training import trainer
from interlingua.training.build import train
from interlingua.training.encoding import Chunking, EncodedRows
from interlingua.training.processes import Processes
from interlingua.training.recipe import resolve
from interlingua.training.step import backward, groups
from interlingua.training.weighted import WeightedObjective

ALONE = Processes(0, 1, torch.device("cpu"))
WORDS = "the keeper wrote every storm into a small blue book about stars of southern sky rivers meet below town".split()


def text(seed):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (4 + seed % 9,), generator=generator))


BATCH = {"linked": [SpanPair(text(i), text(i + 40), "de", i / 6, 1 - (i + 1) / 6, f"g{i}") for i in range(6)]}


@pytest.fixture
def model(tiny_encoder):
    return DualEncoder.tied(tiny_encoder(layers=2)).train()


def comparable(model, **options):
    config = model.passage.backbone.model.config
    torch.manual_seed(0)
    return Comparable(config=config, vocabulary=config.vocab_size, **{"span": 12, "min_tokens": 3, **options})


def gradients(model, chunking, objective, weight=1.0, processes=ALONE):
    model.zero_grad()
    objective.zero_grad()
    torch.manual_seed(7)
    reports = backward([WeightedObjective("comparable", objective, weight)], model, BATCH, 0, chunking, processes)
    named = [*model.named_parameters(), *((f"objective.{n}", p) for n, p in objective.named_parameters())]
    return {n: p.grad.clone() for n, p in named if p.grad is not None}, reports


def same(a, b, atol=1e-5):
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=atol, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


def joint(model, objective, weight=1.0):
    """The loss written out in one graph: contrast + weights · means over all predictions."""
    encoder = model.passage
    read = objective.spans(BATCH, encoder, 0)
    ids = [row.ids for row in read.rows]
    states, lengths, early = encoder.token_states(ids, layer=1)
    masked = states, lengths, early
    if objective.contrast_unmasked:
        states, lengths = encoder.token_states(
            [[dict(row.targets).get(i, token) for i, token in enumerate(row.ids)] for row in read.rows]
        )
    counts = lengths.tolist() if objective.per_token else [1] * len(ids)
    total = objective.contrastive(read, TokenVectors(objective.represent(states, lengths), counts)).value
    for name, losses in objective.token_losses(read.rows, *masked, encoder).items():
        total = total + objective.weights[name] * losses.mean()
    model.zero_grad()
    objective.zero_grad()
    (weight * total).backward()
    named = [*model.named_parameters(), *((f"objective.{n}", p) for n, p in objective.named_parameters())]
    return {n: p.grad.clone() for n, p in named if p.grad is not None}


CHUNKINGS = [Chunking(), Chunking(tokens=30), Chunking(cache=2), Chunking(tokens=40, cache=5)]


@pytest.mark.parametrize("chunking", CHUNKINGS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"similarity": "cls", "token_norm": False},
        {"proj_dim": 8, "symmetrize": True},
        {"contrast_unmasked": True},
        {"mlm": 0.3, "condenser": 2.0},
        {"condenser": 0.0},
        {"mlm": 0.0, "condenser": 0.0},
    ],
    ids=str,
)
def test_gradients_equal_those_of_one_graph(model, chunking, options):
    """Without dropout, so that chunks cannot matter: 1 : 1 : 1 whatever they are."""
    model.eval()
    objective = comparable(model, **options).eval()
    found, reports = gradients(model, chunking, objective, weight=0.7)
    expected = joint(model, objective, 0.7)
    if not objective.weights and chunking == Chunking():
        assert not any(name.startswith("objective") for name in found)
    same(found, {n: g for n, g in expected.items() if n in found})
    assert all(not g.any() for n, g in expected.items() if n not in found)
    assert set(reports) == {"comparable", *(f"comparable.{name}" for name in objective.weights)}


@pytest.mark.parametrize("options", [{}, {"contrast_unmasked": True}, {"proj_dim": 8}, {"similarity": "cls"}], ids=str)
def test_the_cache_replays_dropout(model, options):
    """Dropout on, in the encoder and in the Condenser head: the same chunks with and without a cache."""
    objective = comparable(model, **options)
    kept, first = gradients(model, Chunking(tokens=40), objective)
    after = torch.rand(1)
    cached, second = gradients(model, Chunking(tokens=40, cache=1000), objective)
    assert torch.rand(1) == after
    same(kept, cached)
    assert {n: r.loss for n, r in first.items()} == pytest.approx({n: r.loss for n, r in second.items()}, rel=1e-5)
    torch.manual_seed(8)
    other = joint(model, objective)
    assert any((kept[n] - g).abs().max() > 1e-4 for n, g in other.items())  # dropout really is on


def test_the_condenser_head_has_dropout_in_the_cached_pass(model):
    """Only the head drops: with a cache as without, and not the same as without dropout."""
    model.eval()
    objective = comparable(model)
    kept, cached = (gradients(model, Chunking(tokens=40, cache=cache), objective)[0] for cache in (None, 1000))
    same(kept, cached)
    still, _ = gradients(model, Chunking(tokens=40), objective.eval())
    assert any((kept[n] - g).abs().max() > 1e-4 for n, g in still.items())


def test_reported_losses_are_means_over_the_batch(model):
    model.eval()
    objective = comparable(model).eval()
    _, reports = gradients(model, Chunking(tokens=30), objective, weight=5.0)
    read = objective.spans(BATCH, model.passage, 0)
    states, lengths, early = model.passage.token_states([row.ids for row in read.rows], layer=1)
    losses = objective.token_losses(read.rows, states, lengths, early, model.passage)
    for name in ("mlm", "condenser"):
        assert reports[f"comparable.{name}"].loss == pytest.approx(losses[name].mean().item(), rel=1e-5)
    assert reports["comparable"].details["predictions"] == len(losses["mlm"])
    assert reports["comparable"].loss > 0


@pytest.mark.parametrize("options", [{}, {"similarity": "cls"}])
def test_shares_of_three_processes_add_up(model, monkeypatch, options):
    """Each process in turn, given the vectors that a real gather would have brought: also one with few spans."""
    model.eval()
    objective = comparable(model, **{"proj_dim": 8, **options}).eval()
    whole, reports = gradients(model, Chunking(), objective)
    read = objective.spans(BATCH, model.passage, 0)
    leaf = EncodedRows(WeightedObjective("", objective), model.passage, read.rows, Chunking(), ALONE).leaf.detach()
    monkeypatch.setattr(Processes, "gather", lambda self, rows, shares: check(self, rows, shares))
    monkeypatch.setattr(Processes, "total", lambda self, value: value)

    def check(processes, rows, shares):
        torch.testing.assert_close(rows, leaf[shares[processes.rank]])
        return leaf.clone()

    total: dict[str, torch.Tensor] = {}
    parts = dict.fromkeys(reports, 0.0)
    for rank in range(5):
        found, one = gradients(model, Chunking(tokens=30), objective, processes=Processes(rank, 5, torch.device("cpu")))
        for name, gradient in found.items():
            total[name] = total.get(name, 0) + gradient
        for name in parts:
            parts[name] += one[name].loss
    same(whole, total)
    assert parts.pop("comparable") == pytest.approx(5 * reports["comparable"].loss, rel=1e-5)  # whole on each
    assert parts == pytest.approx({name: reports[name].loss for name in parts}, rel=1e-4)


def test_own_parameters_are_summed_over_processes(model, tmp_path):
    """A span objective's parameters see their share alone, so the trainer must add them up with the model's."""
    summed = []

    class Recorder(Processes):
        def sum(self, parameters, gradients):
            summed.extend(parameters)
            return list(gradients)

    term = WeightedObjective("comparable", comparable(model, proj_dim=8))
    processes = Recorder(0, 1, torch.device("cpu"))
    trainer.Trainer(model, [term], {}, None, None, tmp_path, processes, Chunking())._add_up([term], own=False)
    wanted = {id(p) for p in (*model.parameters(), *term.objective.parameters())}
    assert {id(p) for p in summed} == wanted


def test_it_stands_alone_in_its_group(model):
    one, two = WeightedObjective("a", comparable(model)), WeightedObjective("b", comparable(model))
    assert groups([one, two], ["linked"]) == [[one], [two]]
    with pytest.raises(InterlinguaError, match="needs data named 'linked'"):
        groups([one], ["parallel"])


# ---- whole runs


def documents(path, langs=("en", "de", "fi")):
    """Ten topics in some languages as jsonl."""
    rows = [
        {"group": f"g{number}", "lang": lang, "sentences": [text(number * 7 + place + k) for k in range(3)]}
        for number in range(10)
        for place, lang in enumerate(langs)
    ]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def tree(tmp_path, **comparable):
    return {
        "model": {
            "backbone": {
                "scratch": {
                    "vocab_size": 200,
                    "layers": 2,
                    "hidden": 16,
                    "heads": 2,
                    "intermediate": 32,
                    "max_length": 32,
                }
            },
            "encoders": "tied",
            "pooling": "cls",
        },
        "data": {"linked": {"path": str(documents(tmp_path / "documents.jsonl")), "batch": 5, "alpha": 0.5}},
        "objectives": {"comparable": {"span": 16, "min_tokens": 4, "proj_dim": 8, **comparable}},
        "optimizer": {"lr": 0.002, "warmup": 2},
        "training": {"steps": 8, "checkpoint_every": 3, "log_every": 2, "tensorboard": False, "gradient_cache": 4},
    }


def weights(folder):
    return load_file(next(folder.rglob("model.safetensors")))


def losses(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_run_learns_resumes_bit_for_bit_and_saves_no_head(tmp_path, monkeypatch, capsys):
    recipe = resolve(tree(tmp_path), ["training.steps=30", "training.checkpoint_every=9", "optimizer.lr=0.01"])
    train(recipe, tmp_path / "whole")
    log = losses(tmp_path / "whole")
    assert fmean(line["comparable/loss"] for line in log[-8:]) < log[0]["comparable/ln_candidates"]
    assert log[-1]["comparable.mlm/loss"] < log[0]["comparable.mlm/loss"]
    assert log[0]["comparable/ln_candidates"] == pytest.approx(2.197, abs=1e-3)
    assert {key for key in log[0] if "/lang/" in key} <= {"comparable/lang/de", "comparable/lang/fi"}
    assert "comparable.condenser" in capsys.readouterr().err

    original, calls = trainer.backward, []

    def killed(*arguments, **options):
        calls.append(1)
        if len(calls) == 14:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(trainer, "backward", killed)
    with pytest.raises(KeyboardInterrupt):
        train(recipe, tmp_path / "broken")
    train(recipe, tmp_path / "broken")
    assert len(calls) == 14 + 30 - 9
    assert losses(tmp_path / "whole") == losses(tmp_path / "broken")
    whole, broken = weights(tmp_path / "whole/model"), weights(tmp_path / "broken/model")
    assert whole.keys() == broken.keys()
    assert all(torch.equal(whole[name], broken[name]) for name in whole)
    # what was trained beside the encoder is in the checkpoint and not in the model
    checkpoint = weights(next((tmp_path / "whole/checkpoints").glob("step-*")))
    assert any("condenser" in name for name in checkpoint)
    assert any("projection" in name for name in checkpoint)
    start = weights(tmp_path / "whole/start")
    assert whole.keys() == start.keys()
    assert any(not torch.equal(whole[name], start[name]) for name in whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"similarity": "cls", "contrast_unmasked": True, "proj_dim": None}], ids=["maxsim", "cls"]
)
def test_two_processes_learn_what_one_learns(learned, tmp_path, options):
    done = learned(tree(tmp_path, **options))
    # the heads, too: each process had a share of what they predict
    heads = [weights(next((folder / "checkpoints").glob("step-0000008"))) for folder in (done.one, done.two)]
    assert heads[0].keys() == heads[1].keys()
    for name in heads[0]:
        torch.testing.assert_close(heads[0][name], heads[1][name], atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["data.linked.batch=1"], "one pair has nothing to tell apart"),
        (["objectives.comparable.span=40"], "longer than the 32 that this model reads"),
        (["objectives.comparable.min_tokens=99"], "objectives.comparable: .*min_tokens no more than span"),
        (["objectives.comparable.similarity=cosine"], "objectives.comparable: 'similarity'"),
        (["objectives.comparable.tau=1"], "unknown key 'tau'"),
        (["objectives.comparable.skip_from=5"], "early states out of 0 to 1"),
        (["data.linked.options={source: sw}"], "gave no records"),
        (["data.linked.kind=documents"], "is of kind documents, and objectives.comparable reads linked"),
    ],
)
def test_mistakes_are_named(tmp_path, overrides, says):
    with pytest.raises(InterlinguaError, match=says):
        train(resolve(tree(tmp_path), overrides), tmp_path / "run")


@pytest.mark.slow
def test_short_documents_in_a_run_are_counted(tmp_path):
    recipe = tree(tmp_path)
    with open(recipe["data"]["linked"]["path"], "a", encoding="utf-8") as stream:
        for lang in ("en", "de"):
            stream.write("\n" + json.dumps({"group": "tiny", "lang": lang, "sentences": ["a"]}))
    train(resolve(recipe, ["training.log_every=1", "training.steps=12"]), tmp_path / "run")
    assert sum(line["comparable/short"] for line in losses(tmp_path / "run")) >= 1


def test_a_static_backbone_is_refused(tmp_path, tiny_static):
    tiny_static().save(tmp_path / "static")
    for backbone in ({"static": {}}, str(tmp_path / "static")):
        recipe = tree(tmp_path)
        recipe["model"] = {"backbone": backbone, "encoders": "tied"}
        with pytest.raises(InterlinguaError, match="comparable compares and predicts token states, which a static"):
            train(resolve(recipe), tmp_path / "run")


def test_a_new_head_without_warm_up_is_advised_against(tmp_path, capsys):
    train(resolve(tree(tmp_path), ["optimizer.warmup=0", "training.steps=1"]), tmp_path / "run")
    assert "the Condenser head starts at random" in capsys.readouterr().err
