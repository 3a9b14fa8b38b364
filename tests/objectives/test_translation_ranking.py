"""LaBSE's translation ranking: both directions, the margin on the translation only, duplicates left out."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.objectives import TranslationRanking, info_nce, translation_ranking


def brute_force(source, target, margin, temperature, groups=None):
    pairs, total = len(source), 0.0
    group = [int(g) for g in groups] if groups is not None else range(pairs)
    for one, other in ((source, target), (target, source)):
        for i in range(pairs):
            own = math.exp((float(cosine_similarity(one[i], other[i], dim=0)) - margin) / temperature)
            rest = sum(
                math.exp(float(cosine_similarity(one[i], other[n], dim=0)) / temperature)
                for n in range(pairs)
                if n != i and group[n] != group[i]
            )
            total -= math.log(own / (own + rest))
    return total / pairs


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(6, 5, generator=generator), torch.randn(6, 5, generator=generator)


@pytest.mark.parametrize(("margin", "temperature"), [(0.3, 0.05), (0.3, 1.0), (0.0, 0.1), (1.0, 0.2)])
@pytest.mark.parametrize("groups", [None, torch.tensor([0, 1, 0, 2, 1, 0])], ids=["alone", "groups"])
def test_equals_the_loop(pairs, margin, temperature, groups):
    loss = translation_ranking(*pairs, margin=margin, temperature=temperature, groups=groups)
    assert loss.item() == pytest.approx(brute_force(*pairs, margin, temperature, groups), rel=1e-5)


def test_without_a_margin_it_is_info_nce_in_both_directions(pairs):
    both = info_nce(*pairs, temperature=0.1) + info_nce(*reversed(pairs), temperature=0.1)
    assert translation_ranking(*pairs, margin=0, temperature=0.1).item() == pytest.approx(both.item(), rel=1e-6)


def test_known_values():
    alike = torch.ones(5, 3)
    assert translation_ranking(alike, alike, margin=0, temperature=1).item() == pytest.approx(2 * math.log(5))
    # with a margin the translation is one among four others that score m more
    expected = 2 * math.log(1 + 4 * math.exp(0.3 / 0.05))
    assert translation_ranking(alike, alike).item() == pytest.approx(expected, rel=1e-5)
    perfect = torch.eye(4)
    expected = 2 * math.log(1 + 3 * math.exp(-(1 - 0.3) / 0.5))
    assert translation_ranking(perfect, perfect, temperature=0.5).item() == pytest.approx(expected, rel=1e-5)


def test_masking_a_duplicate_equals_removing_it(pairs):
    source, target = pairs
    twice = torch.cat([source, source[:1]]), torch.cat([target, target[:1]])
    masked = translation_ranking(*twice, groups=torch.tensor([0, 1, 2, 3, 4, 5, 0]))
    kept = translation_ranking(*twice)
    # pair 0 sees what it sees alone, twice; the others see it twice
    weights = [2, 1, 1, 1, 1, 1]
    total = 0.0
    for one, other in ((source, target), (target, source)):
        for i in range(6):
            score = [float(cosine_similarity(one[i], other[n], dim=0)) for n in range(6)]
            own = math.exp((score[i] - 0.3) / 0.05)
            rest = sum(weights[n] * math.exp(score[n] / 0.05) for n in range(6) if n != i)
            total -= weights[i] * math.log(own / (own + rest))
    assert masked.item() == pytest.approx(total / 7, rel=1e-5)
    assert kept > masked


def test_gradcheck():
    source, target = (
        torch.randn(4, 3, dtype=torch.float64, requires_grad=True, generator=torch.Generator().manual_seed(i))
        for i in (0, 1)
    )

    def loss(*vectors):
        return translation_ranking(*vectors, temperature=0.5, groups=torch.tensor([0, 1, 1, 2]))

    assert torch.autograd.gradcheck(loss, (source, target), eps=1e-2, atol=1e-2, rtol=1e-2)  # arithmetic is float32


def test_half_precision_goes_in_and_float32_comes_out(pairs):
    loss = translation_ranking(*(side.half() for side in pairs))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(translation_ranking(*pairs).item(), rel=1e-2)


def test_no_pairs_and_one_pair():
    empty = torch.zeros(0, 4, requires_grad=True)
    loss = translation_ranking(empty, empty)
    loss.backward()
    assert loss.item() == 0
    one = torch.randn(1, 4, requires_grad=True)
    assert translation_ranking(one, one * 2).item() == pytest.approx(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda a: translation_ranking(a, a[:2]),
        lambda a: translation_ranking(a, a, margin=-0.1),
        lambda a: translation_ranking(a, a, margin=2.0),
        lambda a: translation_ranking(a, a, temperature=0.0),
        lambda a: translation_ranking(a, a, groups=torch.zeros(2)),
        lambda a: TranslationRanking(margin=float("nan")),
        lambda a: TranslationRanking(temperature=-1),
    ],
)
def test_mistakes(call):
    with pytest.raises(InterlinguaError):
        call(torch.randn(3, 4))


PAIRS = [
    ParallelPair("hei", "hi", "fi", "en"),
    ParallelPair("moi", "Hi ", "fi", "en"),
    ParallelPair("mto", "a river", "sw", "en", group="g"),
    ParallelPair("joki", "the river", "fi", "en", group="g"),
]


@pytest.mark.parametrize(("duplicates", "groups"), [("mask", torch.tensor([0, 0, 1, 1])), ("keep", None)])
def test_the_objective_masks_duplicates(duplicates, groups):
    objective = TranslationRanking(margin=0.2, temperature=0.1, duplicates=duplicates)
    batch = {"parallel": PAIRS}
    requests = objective.requests(batch)
    assert {name: (texts.role, texts.texts) for name, texts in requests.items()} == {
        "passage.source": ("passage", ["hei", "moi", "mto", "joki"]),
        "passage.target": ("passage", ["hi", "Hi ", "a river", "the river"]),
    }
    vectors = {name: torch.randn(4, 6, generator=torch.Generator().manual_seed(len(name))) for name in requests}
    loss = objective.loss(batch, vectors)
    expected = translation_ranking(*vectors.values(), margin=0.2, temperature=0.1, groups=groups)
    assert loss.value.item() == pytest.approx(expected.item(), rel=1e-6)
    assert loss.report["chance"] == pytest.approx(2 * math.log(4))
    assert loss.report.keys() == {"chance", "lang/fi", "lang/sw"}


def test_both_encoders_are_averaged_and_an_empty_batch_is_zero():
    objective = TranslationRanking(on="both")
    vectors = {name: torch.randn(4, 6) for name in objective.requests({"parallel": PAIRS})}
    each = [TranslationRanking(on=role).loss({"parallel": PAIRS}, vectors).value for role in ("query", "passage")]
    assert objective.loss({"parallel": PAIRS}, vectors).value.item() == pytest.approx(sum(each).item() / 2, rel=1e-6)
    empty = {name: torch.zeros(0, 6, requires_grad=True) for name in vectors}
    loss = objective.loss({"parallel": []}, empty).value
    loss.backward()
    assert loss.item() == 0
