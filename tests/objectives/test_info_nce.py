"""Hu et al. 2023, eq. 1."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from interlingua.errors import InterlinguaError
from interlingua.objectives import (
    comparable_contrastive,
    info_nce,
    language_contrastive,
    late_interaction_in_batch,
    late_interaction_pairwise,
    semantic_contrastive,
)


def brute_force(queries, passages, temperature, cosine=True, left_out=()):
    total = 0.0
    for i, q in enumerate(queries):
        terms = {}
        for j, p in enumerate(passages):
            if (i, j) in left_out:
                continue
            dot = float((q * p).sum())
            terms[j] = math.exp((dot / float(q.norm() * p.norm()) if cosine else dot) / temperature)
        total -= math.log(terms[i] / sum(terms.values()))
    return total / len(queries)


@pytest.fixture
def vectors():
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(5, 8, generator=generator, dtype=torch.float64),
        torch.randn(9, 8, generator=generator, dtype=torch.float64),
    )


@pytest.mark.parametrize("temperature", [1.0, 0.2])
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_equals_the_loop(vectors, temperature, similarity):
    expected = brute_force(*vectors, temperature, similarity == "cosine")
    loss = info_nce(*vectors, temperature=temperature, similarity=similarity)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_mask_leaves_out_candidates_but_never_the_positive(vectors):
    mask = torch.zeros(5, 9, dtype=torch.bool)
    mask[1, 7] = mask[3, 0] = mask[2, 2] = True
    expected = brute_force(*vectors, 1.0, left_out={(1, 7), (3, 0)})
    assert info_nce(*vectors, mask=mask).item() == pytest.approx(expected, rel=1e-5)


def test_all_alike_is_ln_candidates():
    assert info_nce(torch.ones(48, 4), torch.ones(96, 4)).item() == pytest.approx(math.log(96), abs=1e-5)


def test_the_band_of_cosine_at_temperature_one():
    """METHODS §2.1: simplex geometry (positive 1, negatives −1/(M−1)) is the floor, 3.572 for M = 96."""
    simplex = torch.eye(96, dtype=torch.float64) - 1 / 96
    assert info_nce(simplex[:48], simplex).item() == pytest.approx(3.572, abs=1e-3)


def test_symmetric_adds_the_other_direction_over_positives_only(vectors):
    queries, passages = vectors
    there = info_nce(queries, passages)
    back = info_nce(passages[:5], queries)
    assert info_nce(queries, passages, symmetric=True).item() == pytest.approx((there + back).item() / 2, rel=1e-6)


def test_without_a_reduction_there_is_a_loss_a_question(vectors):
    rows = info_nce(*vectors, temperature=0.2, reduction="none")
    assert rows.shape == (5,)
    assert rows.mean().item() == pytest.approx(info_nce(*vectors, temperature=0.2).item(), rel=1e-6)
    with pytest.raises(InterlinguaError, match="reduction 'nome' is not known"):
        info_nce(*vectors, reduction="nome")


def test_gradcheck(vectors):
    queries, passages = (v.requires_grad_() for v in vectors)

    def double(q, p):  # the loss itself works in float32; its equation is checked in double
        logits = normalize(q, dim=-1) @ normalize(p, dim=-1).T / 0.3
        return torch.nn.functional.cross_entropy(logits, torch.arange(len(q)))

    assert torch.autograd.gradcheck(double, (queries, passages))
    ours = torch.autograd.grad(info_nce(queries, passages, temperature=0.3), (queries, passages))
    reference = torch.autograd.grad(double(queries, passages), (queries, passages))
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_half_precision_input_is_computed_in_float32():
    loss = info_nce(
        torch.full((4, 1024), 60.0, dtype=torch.float16),
        torch.full((4, 1024), 60.0, dtype=torch.float16),
        similarity="dot",
    )
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(4))


def test_no_questions_is_a_zero_with_a_gradient():
    passages = torch.randn(3, 4, requires_grad=True)
    loss = info_nce(passages[:0], passages)
    loss.backward()
    assert loss.item() == 0
    assert not passages.grad.any()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda q, p: info_nce(p, q), "at least as many passages"),
        (lambda q, p: info_nce(q, p, temperature=0), "temperature must be positive"),
        (lambda q, p: info_nce(q, p, similarity="cosin"), "Did you mean 'cosine'"),
        (lambda q, p: info_nce(q, p, mask=torch.zeros(2, 2)), "mask must be"),
        (lambda q, p: info_nce(q, p[:, :3]), "one dim"),
    ],
)
def test_errors_say_what_is_wrong(vectors, call, says):
    with pytest.raises(InterlinguaError, match=says):
        call(*vectors)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_losses_are_in_float32_under_autocast(kind):
    """A training loop of somebody's own calls them inside autocast."""
    generator = torch.Generator().manual_seed(0)
    a, b = (30 * torch.randn(4, 6, 16, generator=generator) for _ in range(2))
    mask = torch.ones(4, 6, dtype=torch.bool)
    losses = {
        "info_nce": lambda a, b: info_nce(a[:, 0], b[:, 0], temperature=0.02),
        "dot products": lambda a, b: info_nce(a[:, 0], b[:, 0], similarity="dot"),
        "semantic": lambda a, b: semantic_contrastive(a[:, 0], b[:, 0], temperature=0.05),
        "language": lambda a, b: language_contrastive(a[:, 0], b[:, 0], temperature=0.1),
        "comparable": lambda a, b: comparable_contrastive(
            a, mask, b, mask, temperature=1.0, token_norm=False, length_norm=False
        ),
        "late interaction": lambda a, b: late_interaction_in_batch(a, mask, b, mask, temperature=0.05),
        "pairwise": lambda a, b: late_interaction_pairwise(a, mask, b, mask, b.roll(1, 0), mask),
    }
    for name, loss in losses.items():
        values, gradients = [], []
        for enabled in (False, True):
            leaf = a.clone().requires_grad_()
            with torch.autocast("cpu", kind, enabled=enabled):
                values.append(loss(leaf, b))
            values[-1].sum().backward()
            gradients.append(leaf.grad)
        torch.testing.assert_close(values[1], values[0], rtol=1e-6, atol=1e-6, msg=name)
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-6, msg=name)
