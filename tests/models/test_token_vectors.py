"""Ragged token vectors: selection, padding and gradients are those of a loop over texts."""

from __future__ import annotations

import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.encode import TokenVectors, token_rows

COUNTS = [2, 0, 3, 1]


@pytest.fixture
def ragged():
    return TokenVectors(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)).requires_grad_(), COUNTS)


def pieces(ragged):
    """Written out: where each text lies."""
    return [ragged.vectors[0:2], ragged.vectors[2:2], ragged.vectors[2:5], ragged.vectors[5:6]]


def test_texts_are_found_by_number(ragged):
    assert len(ragged) == 4
    for number, (a, b, c) in enumerate(zip(pieces(ragged), ragged, [ragged[i] for i in range(4)], strict=True)):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
        assert torch.equal(a, ragged[number - 4])
    with pytest.raises(IndexError):
        ragged[4]


@pytest.mark.parametrize("texts", [[3, 0, 0, 2, 1], [1], [], [0, 1, 2, 3]])
def test_select_takes_texts_in_any_order_and_more_than_once(ragged, texts):
    chosen = ragged.select(texts)
    assert chosen.counts == [COUNTS[i] for i in texts]
    expected = torch.cat([ragged.vectors[:0], *(pieces(ragged)[i] for i in texts)])
    assert torch.equal(chosen.vectors, expected)
    weights = torch.arange(expected.numel(), dtype=torch.float32).view_as(expected)
    ours = torch.autograd.grad((chosen.vectors * weights).sum(), ragged.vectors)[0]
    assert torch.equal(ours, torch.autograd.grad((expected * weights).sum(), ragged.vectors)[0])


def test_rows_of_texts():
    assert token_rows([2, 1, 3], [2, 0]).tolist() == [3, 4, 5, 0, 1]
    assert token_rows([], []).tolist() == []


def test_padded_and_its_mask(ragged):
    padded, mask = ragged.padded()
    assert padded.shape == (4, 3, 4)
    for number, text in enumerate(pieces(ragged)):
        assert torch.equal(padded[number, : len(text)], text)
        assert not padded[number, len(text) :].any()
        assert mask[number].tolist() == [place < len(text) for place in range(3)]
    assert torch.equal(padded[mask], ragged.vectors)
    padded[mask].sum().backward()
    assert torch.equal(ragged.vectors.grad, torch.ones(6, 4))


def test_no_texts():
    empty = TokenVectors(torch.empty(0, 4), [])
    assert [part.shape for part in empty.padded()] == [(0, 0, 4), (0, 0)]
    assert TokenVectors(torch.empty(0, 4, requires_grad=True), []).padded()[0].requires_grad
    assert list(empty) == []
    assert TokenVectors(torch.empty(0, 4), [0, 0]).padded()[0].shape == (2, 0, 4)


def test_join_is_the_texts_of_all_parts(ragged):
    joined = TokenVectors.join([ragged.select([2]), ragged.select([0, 1])])
    assert joined.counts == [3, 2, 0]
    assert torch.equal(joined[1], pieces(ragged)[0])
    with pytest.raises(InterlinguaError, match="nothing to join"):
        TokenVectors.join([])


@pytest.mark.parametrize(("shape", "counts"), [((6, 4), [2, 3]), ((6,), [6]), ((1, 4), [2, -1])])
def test_counts_must_fit(shape, counts):
    with pytest.raises(InterlinguaError, match="tokens of all texts"):
        TokenVectors(torch.zeros(shape), counts)
