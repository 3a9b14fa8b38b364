"""Hu et al. 2023, eq. 2."""

import math

import pytest
import torch
from torch.nn.functional import cosine_similarity

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.objectives import Semantic, semantic_contrastive
from interlingua.objectives.semantic import right_answers, same_meaning


def brute_force(source, target, temperature, groups=None, supervised=False):
    sentences, pairs = torch.cat([source, target]), len(source)
    group = [int(g) for g in groups] * 2 if groups is not None else list(range(pairs)) * 2
    total = 0.0
    for i in range(2 * pairs):
        partner = (i + pairs) % (2 * pairs)
        exp = {
            k: math.exp(float(cosine_similarity(sentences[i], sentences[k], dim=0)) / temperature)
            for k in range(2 * pairs)
            if k != i
        }
        related = [k for k in exp if group[k] == group[i]]
        if supervised:
            total += sum(-math.log(exp[k] / sum(exp.values())) for k in related) / len(related)
            continue
        kept = {k: v for k, v in exp.items() if k == partner or k not in related}
        total -= math.log(exp[partner] / sum(kept.values()))
    return total / (2 * pairs)


@pytest.fixture
def pairs():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(6, 5, generator=generator), torch.randn(6, 5, generator=generator)


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_the_loop(pairs, temperature):
    expected = brute_force(*pairs, temperature)
    assert semantic_contrastive(*pairs, temperature=temperature).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("supervised", [False, True])
def test_groups_equal_the_loop(pairs, supervised):
    groups = torch.tensor([0, 1, 0, 2, 1, 0])
    expected = brute_force(*pairs, 0.1, groups, supervised)
    named = {"groups": groups} if not supervised else {"positives": groups}
    loss = semantic_contrastive(*pairs, **named)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_only_translations_of_one_another_are_right_answers():
    """A chain of shared sentences joins what does not mean the same: such a pair is left out, and is no answer."""
    rows = [("Yes.", "Ja."), ("Indeed.", "Ja."), ("Indeed.", "En effet."), ("Yes. ", "ja."), ("Sí.", "Oui.")]
    pairs = [ParallelPair(*row, "en", "xx", group="yes" * (row[0] == "Sí.")) for row in rows]
    pairs.append(ParallelPair("Tak.", "Ano.", "pl", "cs", group="yes"))
    masked, right = same_meaning(pairs), right_answers(pairs)
    assert [masked.count(number) for number in masked] == [4, 4, 4, 4, 2, 2]
    assert [right.count(number) for number in right] == [2, 1, 1, 2, 2, 2]
    generator = torch.Generator().manual_seed(2)
    names = ("passage.source", "passage.target")
    source, target = (torch.randn(6, 5, generator=generator) for _ in names)
    loss = Semantic(duplicates="positives", temperature=0.5).loss(
        {"parallel": pairs}, dict(zip(names, (source, target), strict=True))
    )
    sentences, total = torch.cat([source, target]), 0.0
    similar = cosine_similarity(sentences[:, None], sentences[None], dim=2).div(0.5).exp().tolist()
    for i in range(12):
        answers = [k for k in range(12) if k != i and right[k % 6] == right[i % 6]]
        shown = [k for k in range(12) if k in answers or masked[k % 6] != masked[i % 6]]
        total -= sum(math.log(similar[i][k] / sum(similar[i][j] for j in shown)) for k in answers) / len(answers)
    assert loss.value.item() == pytest.approx(total / 12, rel=1e-5)


def test_all_alike_is_ln_of_the_others():
    assert semantic_contrastive(torch.ones(8, 3), torch.ones(8, 3)).item() == pytest.approx(math.log(15), abs=1e-5)


def test_perfect_pairs_with_orthogonal_others():
    assert semantic_contrastive(torch.eye(5), torch.eye(5), temperature=0.5).item() == pytest.approx(
        math.log(1 + 8 * math.exp(-2)), abs=1e-6
    )


def test_the_order_inside_a_pair_does_not_matter(pairs):
    source, target = pairs
    swapped = torch.tensor([True, False, True, True, False, False])[:, None]
    assert semantic_contrastive(
        torch.where(swapped, target, source), torch.where(swapped, source, target)
    ).item() == pytest.approx(semantic_contrastive(source, target).item(), rel=1e-6)


def test_masking_a_duplicate_equals_removing_it_for_the_other_anchors(pairs):
    """A pair that is in the batch twice: for everyone else, masked or gone is the same up to its own weight."""
    source, target = pairs
    twice_s, twice_t = torch.cat([source, source[:1]]), torch.cat([target, target[:1]])
    groups = torch.tensor([0, 1, 2, 3, 4, 5, 0])
    masked = semantic_contrastive(twice_s, twice_t, groups=groups) * 14
    alone = torch.cat([source[1:], source[:1]]), torch.cat([target[1:], target[:1]])
    # the anchors of pair 0 see exactly what they see when the copy is not there
    without = semantic_contrastive(*alone) * 12
    others_with_copy = brute_force(twice_s, twice_t, 0.1, groups) * 14
    assert masked.item() == pytest.approx(others_with_copy, rel=1e-5)
    anchors = brute_force(source, target, 0.1) * 12
    assert without.item() == pytest.approx(anchors, rel=1e-5)
    kept_as_negative = semantic_contrastive(twice_s, twice_t) * 14
    assert kept_as_negative > masked


def test_gradient_matches_finite_differences(pairs):
    source, target = (p.double().requires_grad_() for p in pairs)
    loss = semantic_contrastive(source, target, temperature=0.5)
    analytic = torch.autograd.grad(loss, source)[0]
    step = 1e-2
    for i, j in [(0, 0), (3, 2), (5, 4)]:
        moved = source.detach().clone()
        moved[i, j] += step
        up = brute_force(moved, target.detach(), 0.5)
        moved[i, j] -= 2 * step
        numeric = (up - brute_force(moved, target.detach(), 0.5)) / (2 * step)
        assert analytic[i, j].item() == pytest.approx(numeric, abs=1e-4)


def test_no_pairs_is_zero():
    empty = torch.zeros(0, 4, requires_grad=True)
    assert semantic_contrastive(empty, empty).item() == 0


def test_shapes_are_checked(pairs):
    with pytest.raises(InterlinguaError, match=r"\[pairs, dim\]"):
        semantic_contrastive(pairs[0], pairs[1][:3])
    with pytest.raises(InterlinguaError, match="groups must be"):
        semantic_contrastive(*pairs, groups=torch.zeros(3))
    with pytest.raises(InterlinguaError, match="positives must be"):
        semantic_contrastive(*pairs, positives=torch.zeros(3))


def test_same_meaning_joins_equal_sentences_of_either_side_and_groups():
    pairs = [
        ParallelPair("Hund", "Dog ", "de", "en"),
        ParallelPair("chien", "dog", "fr", "en"),
        ParallelPair("chat", "cat", "fr", "en"),
        ParallelPair("gato", "a cat", "es", "en", group="g"),
        ParallelPair("katze", "the cat", "de", "en", group="g"),
        ParallelPair("vogel", "bird", "de", "en"),
    ]
    found = same_meaning(pairs)
    assert [[j for j in range(6) if found[i] == found[j]] for i in range(6)] == [
        [0, 1],
        [0, 1],
        [2],
        [3, 4],
        [3, 4],
        [5],
    ]


def test_objective_masks_the_repeated_english_sentence_and_reports_languages():
    pairs = [
        ParallelPair("Hund", "dog", "de", "en"),
        ParallelPair("chien", "dog", "fr", "en"),
        ParallelPair("chat", "cat", "fr", "en"),
    ]
    batch = {"parallel": pairs}
    vectors = {"passage.source": torch.randn(3, 4), "passage.target": torch.randn(3, 4)}
    masked, kept = Semantic().loss(batch, vectors), Semantic(duplicates="keep").loss(batch, vectors)
    groups = torch.tensor([0, 0, 1])
    assert masked.value.item() == pytest.approx(semantic_contrastive(*vectors.values(), groups=groups).item())
    assert kept.value.item() == pytest.approx(semantic_contrastive(*vectors.values()).item())
    assert set(masked.report) == {"ln_candidates", "lang/de", "lang/fr"}
    assert masked.report["ln_candidates"] == pytest.approx(math.log(5))


def test_objective_reads_the_encoders_it_is_told_to():
    batch = {"parallel": [ParallelPair("a", "b", "de", "en")]}
    assert {texts.role for texts in Semantic(on="both").requests(batch).values()} == {"query", "passage"}
    assert {texts.role for texts in Semantic().requests(batch).values()} == {"passage"}
