"""Hu et al. 2023, eq. 3."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from interlingua.data.records import ParallelPair, Sentence
from interlingua.errors import InterlinguaError
from interlingua.objectives import Language, language_contrastive


def brute_force(source, target, others=None, temperature=1.0, left_out=()):
    """The triple loop; (sum of log terms, number of log terms)."""
    pairs = len(source)
    sentences = torch.cat([source, target] + ([others] if others is not None else []))
    total, terms = 0.0, 0
    for i in range(pairs):
        for k in range(len(sentences)):
            if k in (i, i + pairs) or (i, k) in left_out:
                continue
            d = cosine_similarity(source[i], sentences[k], dim=0) - cosine_similarity(target[i], sentences[k], dim=0)
            for sign in (1, -1):
                total += math.log(1 + math.exp(-sign * float(d) / temperature))
                terms += 1
    return total, terms


@pytest.fixture
def sentences():
    generator = torch.Generator().manual_seed(2)
    return tuple(torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (4, 4, 5))


@pytest.mark.parametrize("with_others", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_equals_the_triple_loop(sentences, with_others, temperature):
    source, target, others = sentences
    others = others if with_others else None
    total, terms = brute_force(source, target, others, temperature)
    count = 8 + (5 if with_others else 0)
    assert terms == 2 * 4 * (count - 2)
    mean = language_contrastive(source, target, others, temperature=temperature)
    paper = language_contrastive(source, target, others, temperature=temperature, normalizer="paper")
    assert mean.item() == pytest.approx(total / terms, rel=1e-6)
    assert paper.item() == pytest.approx(total / (count * (count - 2)), rel=1e-6)


def other_forms(source, target, others, temperature, left_out=()):
    """The mean square, and the mean divergence over the pairs, by loops."""
    pairs = len(source)
    sentences = torch.cat([source, target, others])
    squares, divergences = [], []
    for i in range(pairs):
        ks = [k for k in range(len(sentences)) if k not in (i, i + pairs) and (i, k) not in left_out]
        a, b = (
            [float(cosine_similarity(side[i], sentences[k], dim=0)) / temperature for k in ks]
            for side in (source, target)
        )
        squares += [(x - y) ** 2 for x, y in zip(a, b, strict=True)]
        p, q = ([math.exp(x) / sum(map(math.exp, row)) for x in row] for row in (a, b))
        mean = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
        divergences.append(
            sum(x * math.log(x / m) + y * math.log(y / m) for x, y, m in zip(p, q, mean, strict=True)) / 2
        )
    return {"squares": sum(squares) / len(squares), "divergence": sum(divergences) / pairs}


@pytest.mark.parametrize("form", ["squares", "divergence"])
def test_the_other_forms_equal_their_loops(sentences, form):
    source, target, others = sentences
    expected = other_forms(source, target, others, 0.2)[form]
    assert language_contrastive(*sentences, temperature=0.2, form=form).item() == pytest.approx(expected, rel=1e-5)
    mask = torch.zeros(4, 13, dtype=torch.bool)
    mask[1, 3] = mask[2, 9] = True
    expected = other_forms(source, target, others, 0.2, {(1, 3), (2, 9)})[form]
    loss = language_contrastive(*sentences, temperature=0.2, form=form, mask=mask)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    # nothing tells the two apart; and a pair that is compared with nothing counts for nothing
    assert language_contrastive(source, source, others, form=form).item() == pytest.approx(0, abs=1e-7)
    mask[0] = True
    source = source.clone().requires_grad_()
    loss = language_contrastive(source, target, others, form=form, mask=mask)
    loss.backward()
    assert torch.isfinite(source.grad).all()
    assert loss.item() > 0
    with pytest.raises(InterlinguaError, match="normalizer"):
        language_contrastive(*sentences, form=form, normalizer="paper")
    with pytest.raises(InterlinguaError, match="normalizer: paper is for"):
        Language(form=form, normalizer="paper")
    pairs = [ParallelPair(f"a{i}", f"b{i}", "fi", "en") for i in range(4)]
    vectors = {
        "passage.source": sentences[0].float(),
        "passage.target": target.float(),
        "passage.others": others.float(),
    }
    found = Language(form=form, temperature=0.2).loss(
        {"parallel": pairs, "sentences": [Sentence(f"s{i}", "fi") for i in range(5)]}, vectors
    )
    assert found.value.item() == pytest.approx(other_forms(*sentences, 0.2)[form], rel=1e-5)
    assert found.report == {"lang/fi": pytest.approx(found.value.item(), rel=1e-5)}
    with pytest.raises(InterlinguaError, match="form 'sqares' is not known"):
        language_contrastive(*sentences, form="sqares")


def test_mean_is_the_papers_normalizer_without_others(sentences):
    source, target, _ = sentences
    assert language_contrastive(source, target).item() == pytest.approx(
        language_contrastive(source, target, normalizer="paper").item(), rel=1e-6
    )


def test_least_value_is_log_two_when_nothing_tells_the_pair_apart(sentences):
    source, target, others = sentences
    assert language_contrastive(source, source, others).item() == pytest.approx(math.log(2), abs=1e-6)
    assert language_contrastive(torch.ones(4, 6), torch.ones(4, 6)).item() == pytest.approx(math.log(2), abs=1e-6)
    assert language_contrastive(source, target, others).item() > math.log(2)


def test_source_and_target_may_be_swapped(sentences):
    source, target, others = sentences
    assert language_contrastive(source, target, others).item() == pytest.approx(
        language_contrastive(target, source, others).item(), rel=1e-6
    )


def test_gradient_of_the_difference_is_tanh():
    """With unit vectors and one pair, d(loss)/d(s_ik − s_jk) = tanh(d / 2) over the number of log terms."""
    i = torch.tensor([[1.0, 0.0, 0.0]])
    j = torch.tensor([[0.0, 1.0, 0.0]])
    k = torch.tensor([[0.6, -0.8, 0.0]], requires_grad=True)
    loss = language_contrastive(i, j, k)
    d = 0.6 + 0.8
    analytic = torch.autograd.grad(loss, k)[0]
    # s_ik − s_jk = (k₀ − k₁)/‖k‖; project its gradient onto the sphere at k
    direction = torch.tensor([[1.0, -1.0, 0.0]])
    tangent = direction - (direction * k.detach()).sum() * k.detach()
    torch.testing.assert_close(analytic, math.tanh(d / 2) / 2 * tangent, atol=1e-6, rtol=1e-5)


def test_gradient_flows_into_all_three(sentences):
    leaves = [s.clone().requires_grad_() for s in sentences]
    language_contrastive(*leaves).backward()
    assert all(leaf.grad.abs().sum() > 0 for leaf in leaves)


def test_masked_terms_are_not_counted(sentences):
    source, target, others = sentences
    mask = torch.zeros(4, 13, dtype=torch.bool)
    mask[0, 2] = mask[3, 12] = True
    total, terms = brute_force(source, target, others, left_out={(0, 2), (3, 12)})
    assert language_contrastive(source, target, others, mask=mask).item() == pytest.approx(total / terms, rel=1e-6)


def test_no_pairs_is_zero_with_zero_gradient():
    others = torch.randn(3, 4, requires_grad=True)
    loss = language_contrastive(others[:0], others[:0], others)
    loss.backward()
    assert loss.item() == 0
    assert not others.grad.any()


def test_errors():
    one = torch.randn(1, 4)
    with pytest.raises(InterlinguaError, match="at least three"):
        language_contrastive(one, one)
    with pytest.raises(InterlinguaError, match="Did you mean 'paper'"):
        language_contrastive(one, one, one, normalizer="papr")


def objective_batch():
    pairs = [
        ParallelPair("Hund", "dog", "de", "en"),
        ParallelPair("chien", "dog", "fr", "en"),
        ParallelPair("chat", "cat", "fr", "en"),
    ]
    batch = {"parallel": pairs, "sentences": [Sentence("Cat", "en"), Sentence("ptak", "pl")]}
    vectors = {
        name: torch.randn(n, 4, requires_grad=True)
        for name, n in (("passage.source", 3), ("passage.target", 3), ("passage.others", 2))
    }
    return batch, vectors


def test_objective_leaves_out_a_sentence_that_is_a_member_of_the_pair():
    batch, vectors = objective_batch()
    # columns: Hund chien chat | dog dog cat | Cat ptak
    mask = torch.zeros(3, 8, dtype=torch.bool)
    mask[0, 4] = mask[1, 3] = mask[2, 6] = True
    loss = Language().loss(batch, vectors)
    assert loss.value.item() == pytest.approx(language_contrastive(*vectors.values(), mask=mask).item())
    assert loss.report["excess"] == pytest.approx(loss.value.item() - math.log(2), abs=1e-6)


@pytest.mark.parametrize("normalizer", ["mean", "paper"])
def test_objective_has_the_functions_normalizer(normalizer):
    batch, vectors = objective_batch()
    found = Language(normalizer=normalizer, duplicates="keep").loss(batch, vectors)
    assert found.value.item() == pytest.approx(language_contrastive(*vectors.values(), normalizer=normalizer).item())
    mean = language_contrastive(*vectors.values()).item()  # what the excess is counted from, whatever the normalizer
    assert found.report["excess"] == pytest.approx(mean - math.log(2), abs=1e-6)
    with pytest.raises(InterlinguaError, match="Did you mean 'paper'"):
        Language(normalizer="papr").loss(batch, vectors)


def test_objective_without_pairs_is_zero():
    vectors = objective_batch()[1]
    none = {name: rows[:0] for name, rows in vectors.items() if name != "passage.others"}
    found = Language(normalizer="paper").loss({"parallel": []}, none)
    found.value.backward()
    assert found.value.item() == 0
    assert not found.report


@pytest.mark.parametrize("detach", ["pair", "others"])
def test_detaching_changes_the_gradient_not_the_value(detach):
    batch, vectors = objective_batch()
    whole = Language().loss(batch, vectors).value
    half = Language(detach=detach).loss(batch, vectors).value
    assert half.item() == pytest.approx(whole.item(), rel=1e-6)
    half.backward()
    assert (vectors["passage.others"].grad is None) == (detach == "others")


def test_objective_without_raw_sentences_asks_for_none():
    batch, _ = objective_batch()
    assert set(Language().requests({"parallel": batch["parallel"]})) == {"passage.source", "passage.target"}
    assert "passage.others" in Language().requests(batch)
