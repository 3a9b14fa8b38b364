"""The losses of late interaction against loops over texts and tokens."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from interlingua.data.records import Passage, QuestionPassage, Sentence
from interlingua.errors import InterlinguaError
from interlingua.models.encode import TokenVectors
from interlingua.objectives import (
    LateInteraction,
    late_interaction_distilled,
    late_interaction_in_batch,
    late_interaction_pairwise,
    late_interaction_scores,
    maxsim,
)


def texts(counts, seed, unit=True, dim=5):
    vectors = torch.randn(sum(counts), dim, generator=torch.Generator().manual_seed(seed))
    return TokenVectors(normalize(vectors, dim=-1) if unit else vectors, list(counts))


QUERIES, POSITIVES, NEGATIVES = texts([3, 2, 4], 0), texts([4, 6, 1], 1), texts([2, 5, 3], 2)
PADDED = [part for side in (QUERIES, POSITIVES, NEGATIVES) for part in side.padded()]


def score(query, document, similarity="cosine"):
    """Σ_q max_d, one token at a time."""
    total = 0.0
    for a in query:
        values = [-(a - b).pow(2).sum() if similarity == "l2" else a @ b for b in document]
        total = total + torch.stack(values).max()
    return total


def softmax_loss(scores):
    """−log of the share of the first."""
    return -math.log(math.exp(scores[0]) / sum(math.exp(value) for value in scores))


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
@pytest.mark.parametrize("unit", [True, False])
def test_scores_are_those_of_a_loop(similarity, unit):
    queries, documents = texts([3, 2, 4], 3, unit), texts([4, 6, 1], 4, unit)
    ours = late_interaction_scores(*queries.padded(), *documents.padded(), similarity=similarity)
    assert ours.tolist() == pytest.approx(
        [float(score(q, d, similarity)) for q, d in zip(queries, documents, strict=True)], abs=1e-5
    )


def test_scores_of_several_candidates_each():
    """[queries, candidates, tokens, dim]: candidate k of query i with query i alone."""
    candidates = [texts([2, 3, 2], seed) for seed in (5, 6)]
    padded = [part.padded() for part in candidates]
    vectors, masks = (torch.stack(parts, 1) for parts in zip(*padded, strict=True))
    ours = late_interaction_scores(*QUERIES.padded(), vectors, masks)
    assert ours.shape == (3, 2)
    for number, part in enumerate(candidates):
        torch.testing.assert_close(ours[:, number], late_interaction_scores(*QUERIES.padded(), *part.padded()))


def test_scores_are_the_diagonal_of_maxsim_and_a_text_with_itself_scores_its_length():
    full = maxsim(*QUERIES.padded(), *POSITIVES.padded())
    torch.testing.assert_close(late_interaction_scores(*QUERIES.padded(), *POSITIVES.padded()), full.diagonal())
    own = late_interaction_scores(*QUERIES.padded(), *QUERIES.padded())
    assert own.tolist() == pytest.approx(QUERIES.counts)


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_pairwise_is_colberts_loss(similarity):
    expected = [
        softmax_loss([float(score(q, d, similarity)) for d in (p, n)])
        for q, p, n in zip(QUERIES, POSITIVES, NEGATIVES, strict=True)
    ]
    ours = late_interaction_pairwise(*PADDED, similarity=similarity)
    assert ours.item() == pytest.approx(sum(expected) / 3, rel=1e-5)


def test_a_mask_of_floats_is_named():
    parts = [part.float() if part.dtype == torch.bool else part for part in PADDED]
    with pytest.raises(InterlinguaError, match=r"masks must be bool, got torch\.float32"):
        late_interaction_pairwise(*parts)


def test_pairwise_known_values():
    one, mask = torch.ones(1, 1, 1), torch.ones(1, 1, dtype=torch.bool)
    assert late_interaction_pairwise(one, mask, one, mask, one, mask).item() == pytest.approx(math.log(2))
    far = late_interaction_pairwise(one, mask, -1000 * one, mask, 1000 * one, mask)
    assert far.item() == pytest.approx(2000)  # not infinity
    empty = [torch.zeros(0, 2, 3, requires_grad=True), torch.zeros(0, 2, dtype=torch.bool)] * 3
    loss = late_interaction_pairwise(*empty)
    assert loss.item() == 0
    loss.backward()


def test_no_document_of_another_triple_takes_part():
    queries, query_mask, positives, positive_mask, negatives, negative_mask = PADDED
    changed = negatives.clone()
    changed[0] += 3
    before, after = (
        late_interaction_pairwise(
            queries[1:], query_mask[1:], positives[1:], positive_mask[1:], n[1:], negative_mask[1:]
        )
        for n in (negatives, changed)
    )
    assert before == after
    whole = late_interaction_pairwise(*PADDED)
    rest = [late_interaction_pairwise(*(part[i : i + 1] for part in PADDED)) for i in range(3)]
    assert whole.item() == pytest.approx(sum(r.item() for r in rest) / 3, rel=1e-6)


@pytest.mark.slow
def test_gradients():
    """The losses work in float32; their equation is checked in double, and ours against it."""

    def double(*vectors, similarity):
        counts = [side.counts for side in (QUERIES, POSITIVES, NEGATIVES)]
        q, p, n = (vectors[i].split(counts[i]) for i in range(3))
        rows = [torch.stack([score(q[i], d[i], similarity) for d in (p, n)]) for i in range(3)]
        return torch.nn.functional.cross_entropy(torch.stack(rows), torch.zeros(3, dtype=torch.long))

    inputs = [side.vectors.double().requires_grad_() for side in (QUERIES, POSITIVES, NEGATIVES)]
    for similarity in ("cosine", "l2"):
        assert torch.autograd.gradcheck(lambda *v, s=similarity: double(*v, similarity=s), inputs)
        wanted = torch.autograd.grad(double(*inputs, similarity=similarity), inputs)
        sides = [TokenVectors(v, s.counts) for v, s in zip(inputs, (QUERIES, POSITIVES, NEGATIVES), strict=True)]
        ours = torch.autograd.grad(
            late_interaction_pairwise(*(part for side in sides for part in side.padded()), similarity=similarity),
            inputs,
        )
        for a, b in zip(ours, wanted, strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("similarity", ["cosine", "l2"])
def test_padding_changes_nothing_and_gets_no_gradient(similarity):
    wide = [torch.cat([v, torch.full((3, 2, 5), 9.0)], 1).requires_grad_() for v in PADDED[::2]]
    masks = [torch.cat([m, torch.zeros(3, 2, dtype=torch.bool)], 1) for m in PADDED[1::2]]
    inputs = [part for pair in zip(wide, masks, strict=True) for part in pair]
    loss = late_interaction_pairwise(*inputs, similarity=similarity)
    torch.testing.assert_close(loss, late_interaction_pairwise(*PADDED, similarity=similarity))
    loss.backward()
    assert all(v.grad[~m].abs().max() == 0 and v.grad[m].abs().max() > 0 for v, m in zip(wide, masks, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_in_batch_is_a_softmax_over_all_documents(temperature):
    documents = TokenVectors.join([POSITIVES, NEGATIVES])
    mask = torch.zeros(3, 6, dtype=torch.bool)
    mask[0, [0, 1, 4]] = True  # its own positive stays whatever the mask says
    rows = []
    for i, query in enumerate(QUERIES):
        kept = [i, *(j for j in range(6) if j != i and not mask[i, j])]
        rows.append(softmax_loss([float(score(query, documents[j])) / temperature for j in kept]))
    ours = late_interaction_in_batch(*QUERIES.padded(), *documents.padded(), temperature=temperature, mask=mask)
    assert ours.item() == pytest.approx(sum(rows) / 3, rel=1e-5)


def test_distillation_is_a_divergence_from_the_teacher():
    candidates = [POSITIVES.padded(), NEGATIVES.padded()]
    longest = max(part[0].shape[1] for part in candidates)
    documents = torch.stack([torch.nn.functional.pad(v, (0, 0, 0, longest - v.shape[1])) for v, _ in candidates], 1)
    mask = torch.stack([torch.nn.functional.pad(m, (0, longest - m.shape[1])) for _, m in candidates], 1)
    teacher = torch.tensor([[3.0, 1.0], [0.0, 0.5], [-1.0, -9.0]], requires_grad=True)
    expected = 0.0
    for i, query in enumerate(QUERIES):
        student = torch.stack([score(query, d[i]) for d in (POSITIVES, NEGATIVES)]).div(0.5).softmax(0)
        wanted = teacher[i].detach().softmax(0)
        expected += float((wanted * (wanted / student).log()).sum()) / 3
    ours = late_interaction_distilled(*QUERIES.padded(), documents, mask, teacher, temperature=0.5)
    assert ours.item() == pytest.approx(expected, rel=1e-4)
    same = late_interaction_scores(*QUERIES.padded(), documents, mask) + 7  # a shift of the teacher means nothing
    assert late_interaction_distilled(*QUERIES.padded(), documents, mask, same).item() == pytest.approx(0, abs=1e-6)
    with pytest.raises(InterlinguaError, match=r"teacher must be \[queries, candidates\] = \[3, 2\]"):
        late_interaction_distilled(*QUERIES.padded(), documents, mask, teacher[:, :1])


def question(text, *passages, negatives=(), lang="en"):
    def make(one):
        return Passage(id=one, text=one, title="T" if one.startswith("p") else "")

    return QuestionPassage(text, tuple(map(make, passages)), tuple(map(make, negatives)), lang)


BATCH = {
    "questions": [
        question("a", "pa", "pa2", negatives=("n1", "n2", "n3")),
        question("b", "pb"),
        question("c", "pc", negatives=("pa",), lang="de"),
    ]
}


def test_a_triple_for_each_negative_of_a_question():
    objective = LateInteraction(hard_negatives=2)
    requests = objective.requests(BATCH)
    assert requests["queries"].texts == ["a", "a", "c"]
    assert requests["positives"].texts == [("T", "pa"), ("T", "pa"), ("T", "pc")]
    assert requests["negatives"].texts == ["n1", "n2", ("T", "pa")]
    assert [texts.role for texts in requests.values()] == ["query", "passage", "passage"]
    loss = objective.loss(BATCH, {"queries": QUERIES, "positives": POSITIVES, "negatives": NEGATIVES})
    assert loss.value.item() == pytest.approx(late_interaction_pairwise(*PADDED).item())
    assert loss.report["ln_candidates"] == pytest.approx(math.log(2))
    first = late_interaction_pairwise(*(part[:2] for part in PADDED))
    assert loss.report["lang/en"] == pytest.approx(first.item())
    assert "1 of 3 questions have no negative" in loss.warning
    assert objective.multi_vector


def test_in_batch_objective_reads_every_document_and_masks_known_answers():
    objective = LateInteraction(contrast="in_batch", temperature=0.5)
    requests = objective.requests(BATCH)
    assert requests["queries"].texts == ["a", "b", "c"]
    assert requests["documents"].texts == [("T", "pa"), ("T", "pb"), ("T", "pc"), "n1", ("T", "pa")]
    documents = TokenVectors.join([POSITIVES, NEGATIVES.select([0, 1])])
    vectors = {"queries": QUERIES, "documents": documents}
    mask = torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 4] = True
    masked = late_interaction_in_batch(*QUERIES.padded(), *documents.padded(), temperature=0.5, mask=mask)
    loss = objective.loss(BATCH, vectors)
    assert loss.value.item() == pytest.approx(masked.item())
    assert loss.warning is None
    assert loss.report["ln_candidates"] == pytest.approx(math.log(5))
    plain = LateInteraction(contrast="in_batch", temperature=0.5, mask_false_negatives=False).loss(BATCH, vectors)
    assert plain.value.item() == pytest.approx(
        late_interaction_in_batch(*QUERIES.padded(), *documents.padded(), temperature=0.5).item()
    )


def test_l2_reaches_the_pairwise_objective():
    vectors = {"queries": QUERIES, "positives": POSITIVES, "negatives": NEGATIVES}
    loss = LateInteraction(hard_negatives=2, similarity="l2").loss(BATCH, vectors).value
    assert loss.item() == pytest.approx(late_interaction_pairwise(*PADDED, similarity="l2").item())


def test_a_teachers_scores_of_the_positive_and_its_negatives():
    objective = LateInteraction(contrast="distilled", hard_negatives=2, temperature=0.5)
    make = lambda name, scores: replace(  # noqa: E731
        question(name, "p" + name, negatives=("n1", "n2", "n3"), lang="de"), scores=scores
    )
    questions = [make("a", (5.0, 1.0, 2.0, 9.0)), make("b", ()), make("c", (1.0, 3.0, 0.0)), make("d", (1.0, 2.0))]
    requests = objective.requests({"questions": questions})
    assert requests["queries"].texts == ["a", "c"]
    assert requests["documents"].texts == [("T", "pa"), "n1", "n2", ("T", "pc"), "n1", "n2"]
    queries, documents = QUERIES.select([0, 2]), TokenVectors.join([POSITIVES, NEGATIVES])
    loss = objective.loss({"questions": questions}, {"queries": queries, "documents": documents})
    padded, mask = (part.unflatten(0, (2, 3)) for part in documents.padded())
    teacher = torch.tensor([[5.0, 1.0, 2.0], [1.0, 3.0, 0.0]])
    expected = late_interaction_distilled(*queries.padded(), padded, mask, teacher, temperature=0.5)
    assert loss.value.item() == pytest.approx(expected.item())
    assert loss.report == {"lang/de": pytest.approx(expected.item())}
    assert "2 of 4 questions lack 2 negatives with a teacher's scores" in loss.warning
    nothing = TokenVectors(torch.zeros(0, 5, requires_grad=True), [])
    none = objective.loss({"questions": questions[1:2]}, {"queries": nothing, "documents": nothing})
    assert none.value.item() == 0
    none.value.backward()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"contrast": "distilled", "similarity": "l2"}, "halve the temperature"),
        ({"hard_negatives": 0}, "too few"),
        ({"temperature": 0.5}, "temperature is for contrast 'in_batch'"),
        ({"contrast": "in_batch", "similarity": "l2"}, "halve the temperature"),
        ({"contrast": "in_batch", "temperature": 0.0}, "greater than 0"),
    ],
)
def test_options_that_mean_nothing_together(options, said):
    with pytest.raises(InterlinguaError, match=said):
        LateInteraction(**options)


def test_bad_input():
    with pytest.raises(InterlinguaError, match="no token"):
        late_interaction_scores(*QUERIES.padded(), *TokenVectors(torch.zeros(3, 5), [1, 0, 2]).padded())
    with pytest.raises(InterlinguaError, match="must be"):
        late_interaction_scores(*QUERIES.padded(), *POSITIVES.select([0]).padded())
    with pytest.raises(InterlinguaError, match="not known for tokens"):
        late_interaction_scores(*QUERIES.padded(), *POSITIVES.padded(), similarity="dot")
    with pytest.raises(InterlinguaError, match="at least as many documents"):
        late_interaction_in_batch(*QUERIES.padded(), *POSITIVES.select([0]).padded())
    with pytest.raises(InterlinguaError, match="reads QuestionPassage records"):
        LateInteraction().requests({"questions": [Sentence("a", "en")]})


def test_half_precision_is_computed_in_float32():
    big = torch.full((1, 180, 64), 30.0, dtype=torch.float16)
    mask = torch.ones(1, 180, dtype=torch.bool)
    loss = late_interaction_pairwise(big, mask, big, mask, big, mask, similarity="l2")
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(math.log(2))
