"""MaxSim against a triple loop; padding never counts; the memory of a large batch stays bounded."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from interlingua.errors import InterlinguaError
from interlingua.objectives.late_interaction import MaxSim, maxsim


def ragged(texts, longest, dim=6, seed=0):
    """Random vectors and a mask in which text i has a length of its own."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(texts, longest, dim, generator=generator)
    lengths = torch.randint(1, longest + 1, (texts,), generator=generator)
    return vectors, torch.arange(longest) < lengths[:, None]


def loop(queries, query_mask, documents, document_mask):
    """The definition, token by token."""
    scores = torch.zeros(len(queries), len(documents), dtype=queries.dtype)
    for i, query in enumerate(queries):
        for j, document in enumerate(documents):
            for t in range(len(query)):
                if query_mask[i, t]:
                    products = [query[t] @ document[u] for u in range(len(document)) if document_mask[j, u]]
                    scores[i, j] += torch.stack(products).max()
    return scores


@pytest.mark.parametrize("block", [1, 100, 1 << 24])
def test_equals_the_triple_loop_in_any_blocks(monkeypatch, block):
    monkeypatch.setattr(importlib.import_module("interlingua.objectives.late_interaction"), "BLOCK", block)
    inputs = (*ragged(5, 4), *ragged(7, 6, seed=1))
    for vectors in inputs[::2]:
        vectors.requires_grad_()
    pull = torch.randn(5, 7)
    scores = maxsim(*inputs)
    expected = loop(*inputs)
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)
    ours = torch.autograd.grad((scores * pull).sum(), inputs[::2])
    theirs = torch.autograd.grad((expected * pull).sum(), inputs[::2])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_gradcheck():
    queries, query_mask = ragged(3, 3, dim=2)
    documents, document_mask = ragged(4, 3, dim=2, seed=1)
    inputs = queries.double().requires_grad_(), documents.double().requires_grad_()
    assert torch.autograd.gradcheck(lambda q, d: MaxSim.apply(q, query_mask, d, document_mask), inputs)


def test_padding_changes_nothing_and_gets_no_gradient():
    queries, query_mask = ragged(3, 5)
    documents, document_mask = ragged(4, 5, seed=1)
    wide = [torch.cat([v, torch.full((len(v), 3, 6), 50.0)], 1).requires_grad_() for v in (queries, documents)]
    masks = [torch.cat([m, torch.zeros(len(m), 3, dtype=torch.bool)], 1) for m in (query_mask, document_mask)]
    scores = maxsim(wide[0], masks[0], wide[1], masks[1])
    torch.testing.assert_close(scores, maxsim(queries, query_mask, documents, document_mask))
    scores.sum().backward()
    for vectors, mask in zip(wide, masks, strict=True):
        assert vectors.grad[mask].abs().sum() > 0
        assert vectors.grad[~mask].abs().sum() == 0


def test_a_text_of_unit_tokens_scores_its_length_with_itself():
    vectors, mask = ragged(6, 9)
    vectors = normalize(vectors, dim=-1)
    torch.testing.assert_close(maxsim(vectors, mask, vectors, mask).diagonal(), mask.sum(1).float())


def test_it_is_not_symmetric():
    vectors, mask = ragged(3, 5)
    scores = maxsim(vectors, mask, vectors, mask)
    assert (scores - scores.T).abs().max() > 0.1


def test_half_precision_is_computed_in_float32():
    vectors, mask = torch.full((1, 180, 768), 30.0, dtype=torch.float16), torch.ones(1, 180, dtype=torch.bool)
    scores = maxsim(vectors, mask, vectors, mask)
    assert scores.dtype == torch.float32
    assert scores.item() == pytest.approx(180 * 768 * 900)  # 65,504 is the largest float16


def test_empty_texts():
    vectors, mask = ragged(2, 3)
    none = torch.zeros(2, 3, dtype=torch.bool)
    assert maxsim(vectors, none, vectors, mask).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert maxsim(vectors[:, :0], none[:, :0], vectors, mask).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert maxsim(vectors[:0], mask[:0], vectors, mask).shape == (0, 2)
    assert maxsim(vectors, mask, vectors[:0], mask[:0]).shape == (2, 0)
    mask[1] = False
    with pytest.raises(InterlinguaError, match="document 1 has no token"):
        maxsim(vectors, torch.ones_like(mask), vectors, mask)


@pytest.mark.parametrize(
    ("shape", "mask", "says"),
    [
        ((3, 4, 5), torch.ones(3, 4, dtype=torch.bool), "one dim"),
        ((3, 4, 6), torch.ones(3, 5, dtype=torch.bool), "bool mask"),
        ((3, 4, 6), torch.ones(3, 4), "bool mask"),
        ((3, 6), torch.ones(3, 4, dtype=torch.bool), "bool mask"),
    ],
)
def test_shapes_that_do_not_fit(shape, mask, says):
    with pytest.raises(InterlinguaError, match=says):
        maxsim(*ragged(2, 4), torch.zeros(shape), mask)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc: run it on Linux")
def test_token_scores_are_never_held_together():
    """Those of 64 texts of 180 tokens take 512 MiB, as much again for their gradient. The 64 pairs of the paper take
    four times that."""
    program = """
import re, torch
from pathlib import Path
from interlingua.objectives.late_interaction import maxsim
def peak():  # in KiB; ru_maxrss begins with the parent's
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
vectors, mask = torch.randn(64, 180, 32, requires_grad=True), torch.ones(64, 180, dtype=torch.bool)
before = peak()
maxsim(vectors, mask, vectors, mask).sum().backward()
print(peak() - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 256 << 10
