"""The loss of C3 against loops over its definition, and the objective that reads spans of linked documents."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from interlingua.data.linked import SpanPair
from interlingua.data.records import Sentence
from interlingua.errors import InterlinguaError
from interlingua.models.encode import TokenVectors
from interlingua.objectives import Comparable, comparable_contrastive
from interlingua.objectives.masked_lm import mask_words, words

comparable_rows = partial(comparable_contrastive, reduction="none")


def spans(pairs=4, source=5, target=7, dim=6, dtype=torch.float32):
    """Both sides of some pairs, padded, the masks beside them."""
    generator = torch.Generator().manual_seed(0)
    found = []
    for longest in (source, target):
        lengths = torch.randint(1, longest + 1, (pairs,), generator=generator)
        found += [
            torch.randn(pairs, longest, dim, generator=generator, dtype=dtype),
            torch.arange(longest) < lengths[:, None],
        ]
    return found


def loop(
    source,
    source_mask,
    target,
    target_mask,
    *,
    temperature,
    token_norm,
    length_norm,
    symmetrize=False,
    denominator="simclr",
    groups=None,
    terms=None,
):
    """Term by term, as METHODS §5.2 has it: anchors (i, L), others (j, k)."""
    sides = [
        [row[mask] for row, mask in zip(*side, strict=True)] for side in ((source, source_mask), (target, target_mask))
    ]
    if token_norm:
        sides = [[normalize(row, dim=-1) for row in side] for side in sides]

    def maxsim(a, b):
        total = sum(max(float(t @ u) for u in b) for t in a)
        return total / len(a) if length_norm else total

    def f(a, b):
        return ((maxsim(a, b) + maxsim(b, a)) / 2 if symmetrize else maxsim(a, b)) / temperature

    losses = []
    for lang in (0, 1):
        for i, anchor in enumerate(sides[lang]):
            positive = f(anchor, sides[1 - lang][i])
            below = [positive]
            for k in (0, 1):
                for j, other in enumerate(sides[k]):
                    is_positive, itself = (j, k) == (i, 1 - lang), (j, k) == (i, lang)
                    same_group = groups is not None and groups[i] == groups[j]
                    printed_out = denominator != "simclr" and k == lang
                    if not (is_positive or itself or same_group or printed_out):
                        below.append(f(anchor, other))
            if terms is not None:
                terms.append(len(below))
            losses.append(torch.tensor(below, dtype=torch.float64).logsumexp(0) - positive)
    return torch.stack(losses)


ROBUST = {"temperature": 0.05, "token_norm": True, "length_norm": True}
LITERAL = {"temperature": 1.0, "token_norm": False, "length_norm": False}


@pytest.mark.parametrize(
    "options",
    [
        ROBUST,
        LITERAL,
        {**ROBUST, "symmetrize": True},
        {**LITERAL, "length_norm": True},
        {**ROBUST, "denominator": "as_printed_crosslingual"},
        {**ROBUST, "groups": [0, 1, 0, 2]},
        {**LITERAL, "denominator": "as_printed_crosslingual", "groups": [0, 0, 1, 1], "symmetrize": True},
    ],
)
def test_equals_the_loop(options):
    inputs, terms = spans(), []
    groups = options.get("groups")
    ours = comparable_rows(*inputs, **{**options, "groups": None if groups is None else torch.tensor(groups)})
    expected = loop(*inputs, **options, terms=terms)
    torch.testing.assert_close(ours.double(), expected, atol=1e-4, rtol=1e-4)
    assert comparable_contrastive(
        *inputs, **options | ({"groups": torch.tensor(groups)} if groups else {})
    ).item() == pytest.approx(expected.mean().item(), rel=1e-4)
    if groups is None:  # the positive and the 2n − 2 others; as printed the positive and n − 1
        assert set(terms) == ({7} if "denominator" not in options else {4})


@pytest.mark.parametrize(("denominator", "terms"), [("simclr", 2 * 4 - 1), ("as_printed_crosslingual", 4)])
def test_equal_similarities_give_the_logarithm_of_the_number_of_terms(denominator, terms):
    ones, mask = torch.ones(4, 3, 2), torch.ones(4, 3, dtype=torch.bool)
    loss = comparable_contrastive(ones, mask, ones, mask, denominator=denominator)
    assert loss.item() == pytest.approx(math.log(terms), rel=1e-6)


def test_cls_is_the_dot_product_of_first_vectors():
    source, _, target, _ = spans()
    options = {"similarity": "cls", "temperature": 0.7, "token_norm": False}
    ours = comparable_rows(source, None, target, None, **options)
    both = torch.cat([source[:, 0], target[:, 0]])
    logits = (both @ both.T / 0.7).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(ours, -logits.log_softmax(1)[torch.arange(8), [4, 5, 6, 7, 0, 1, 2, 3]])
    torch.testing.assert_close(ours, comparable_rows(source[:, 0], None, target[:, 0], None, **options))
    first = [torch.ones(4, 1, dtype=torch.bool)] * 2
    token = source[:, :1], first[0], target[:, :1], first[1]
    torch.testing.assert_close(ours, comparable_rows(*token, **{**options, "similarity": "maxsim"}))
    cosine = comparable_rows(source, None, target, None, similarity="cls")
    torch.testing.assert_close(cosine, comparable_rows(3 * source, None, target / 2, None, similarity="cls"))


def test_padding_changes_nothing():
    source, source_mask, target, target_mask = spans()
    wide = torch.cat([source, torch.full((4, 6, 6), 9.0)], 1), torch.cat([source_mask, torch.zeros(4, 6).bool()], 1)
    torch.testing.assert_close(
        comparable_rows(*wide, target, target_mask, **LITERAL),
        comparable_rows(source, source_mask, target, target_mask, **LITERAL),
    )


def test_the_gradient_is_that_of_the_definition():
    """By finite differences of the loop, in double."""
    inputs = spans(3, 2, 3, 2, torch.float64)
    leaves = [inputs[0].clone().requires_grad_(), inputs[2].clone().requires_grad_()]
    comparable_contrastive(leaves[0], inputs[1], leaves[1], inputs[3], **ROBUST).backward()
    for side, leaf in zip((0, 2), leaves, strict=True):
        flat = inputs[side].view(-1)
        for place in range(len(flat)):
            values = []
            for change in (1e-6, -2e-6):
                flat[place] += change
                values.append(loop(*inputs, **ROBUST).mean().item())
            flat[place] += 1e-6
            assert leaf.grad.view(-1)[place].item() == pytest.approx((values[0] - values[1]) / 2e-6, abs=2e-3, rel=1e-3)


def test_logits_in_the_thousands_stay_finite():
    """The paper's letter on raw states: sums of 180 maxima of 768 products, from half-precision input."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(3, 180, 768, generator=generator, dtype=torch.float16) for _ in range(2))
    mask = torch.ones(3, 180, dtype=torch.bool)
    source.requires_grad_()
    loss = comparable_contrastive(source, mask, target, mask, **LITERAL)
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    assert torch.isfinite(source.grad).all()


def test_no_pairs_and_one_pair():
    nothing = torch.zeros(0, 3, 4, requires_grad=True), torch.zeros(0, 3, dtype=torch.bool)
    loss = comparable_contrastive(*nothing, *nothing)
    loss.backward()
    assert loss.item() == 0
    source, source_mask, target, target_mask = spans(1)
    assert comparable_contrastive(source, source_mask, target, target_mask).item() == 0  # nothing but the positive


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"similarity": "maxsin"}, "Did you mean 'maxsim'"),
        ({"denominator": "x"}, "Known: as_printed"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"groups": torch.zeros(3)}, "groups must be"),
    ],
)
def test_what_cannot_be_is_named(change, says):
    with pytest.raises(InterlinguaError, match=says):
        comparable_contrastive(*spans(), **change)


def test_shapes_that_do_not_fit():
    source, source_mask, target, target_mask = spans()
    with pytest.raises(InterlinguaError, match="equally many pairs"):
        comparable_contrastive(source[:3], source_mask[:3], target, target_mask)
    with pytest.raises(InterlinguaError, match="equally many pairs"):
        comparable_contrastive(source[:, 0], None, target[:, 0], None)
    with pytest.raises(InterlinguaError, match="needs the masks"):
        comparable_contrastive(source, None, target, None)


# ---- words


def test_words_begin_at_the_mark_and_are_capped():
    assert words(["▁the", "▁light", "house", "▁", "keep", "er"]) == [range(0, 1), range(1, 3), range(3, 6)]
    assert words(["灯", "台", "守", "は", "す", "▁a"], 2) == [range(0, 2), range(2, 4), range(4, 5), range(5, 6)]
    assert words(["light", "##house", "keeper"], wordpiece=True) == [range(0, 2), range(2, 3)]
    assert words(["▁a", "b", "c"], 1) == [range(0, 1), range(1, 2), range(2, 3)]
    assert words([]) == []


def test_whole_words_are_masked_up_to_the_rate(tiny_tokenizer):
    tokenizer = tiny_tokenizer()
    text = "The lighthouse keeper wrote every storm into a small blue bookcase ☃ of stars"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    unknown = ids.index(tokenizer.unk_token_id)
    whole = words(tokenizer.convert_ids_to_tokens(ids), 4)
    assert any(len(word) > 1 for word in whole)
    counts = []
    for seed in range(200):
        row = mask_words(ids, tokenizer, 500, 0.3, 4, np.random.default_rng(seed))
        chosen = {position for position, _ in row.targets}
        counts.append(len(chosen))
        assert all(chosen.isdisjoint(word) or chosen.issuperset(word) for word in whole)
        assert all(ids[position] == token for position, token in row.targets)
        assert {i for i, (a, b) in enumerate(zip(row.ids, ids, strict=True)) if a != b} <= chosen
        assert unknown not in chosen
    assert max(counts) <= round(0.3 * (len(ids) - 1)) + 3  # a first word may be longer
    assert sum(counts) / len(counts) > 0.15 * len(ids)


# ---- the objective


TEXT = "the keeper wrote every storm into a small blue book about the stars of the southern sky "


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder(max_length=64)


def objective(encoder, **options):
    config = encoder.backbone.model.config
    torch.manual_seed(0)
    return Comparable(config=config, vocabulary=config.vocab_size, **{"span": 20, "min_tokens": 4, **options})


def pair(number=0, source=TEXT * 2, target=TEXT[10:] * 2, group=None):
    return SpanPair(
        f"{number} {source}", f"{target} {number}", "de", 0.1 + 0.2 * number, 0.9 - 0.2 * number, group or f"g{number}"
    )


def test_rows_are_masked_spans_of_both_sides(encoder):
    pairs = [pair(0), pair(1), pair(2, target="blue book of stars")]
    read = objective(encoder).spans({"linked": pairs}, encoder, 0)
    assert read.records == pairs
    tokenizer = encoder.tokenizer
    for row, text in zip(read.rows, [p.source for p in pairs] + [p.target for p in pairs], strict=True):
        original = list(row.ids)
        for position, token in row.targets:
            original[position] = token
        whole = tokenizer(text)["input_ids"]
        assert (original[0], original[-1]) == (whole[0], whole[-1])
        assert len(original) == min(len(whole), 20 + 2)
        assert any(whole[start : start + len(original) - 2] == original[1:-1] for start in range(1, len(whole)))
        assert 0 < len(row.targets) <= 4
        assert all(0 < position < len(original) - 1 for position, _ in row.targets)


def test_spans_follow_the_draws_and_masks_the_step(encoder):
    one = objective(encoder)
    pairs = [pair(0), pair(1)]

    def originals(spans):
        return [[dict(row.targets).get(i, token) for i, token in enumerate(row.ids)] for row in spans.rows]

    first, again, later = (one.spans({"linked": pairs}, encoder, step) for step in (3, 3, 4))
    assert first.rows == again.rows != later.rows
    assert originals(first) == originals(later)
    moved = [SpanPair(p.source, p.target, p.lang, 0.99, p.target_draw, p.group) for p in pairs]
    other = originals(one.spans({"linked": moved}, encoder, 3))
    assert other[:2] != originals(first)[:2]
    assert other[2:] == originals(first)[2:]
    tiled = originals(objective(encoder, span_mode="tiled").spans({"linked": moved}, encoder, 3))
    assert tiled[:2] != other[:2]


def test_the_prompt_of_the_role_stands_before_every_span(tiny_encoder):
    encoder = tiny_encoder(max_length=64, prompts={"document": "small book: "})
    rows = objective(encoder).spans({"linked": [pair(0), pair(1)]}, encoder, 0).rows
    opening = encoder.tokenize([""], "passage")[0][:-1]
    assert len(opening) > 3
    for row in rows:
        assert row.ids[: len(opening)] == opening
        assert len(row.ids) == len(opening) + 20 + 1
        assert min(position for position, _ in row.targets) >= len(opening)


def test_short_documents_are_left_out_and_counted(encoder):
    pairs = [pair(0), pair(1, source="a", target=TEXT), pair(2), pair(3)]
    one = objective(encoder, min_tokens=12)
    read = one.spans({"linked": [pairs[0], SpanPair("a b", TEXT, "de", 0.0, 0.0, "x"), *pairs[2:]]}, encoder, 0)
    assert read.records == [pairs[0], *pairs[2:]]
    assert len(read.rows) == 6
    assert read.report == {"short": 1.0}
    lengths = [len(row.ids) for row in read.rows]
    loss = one.contrastive(read, TokenVectors(torch.randn(sum(lengths), one.dim), lengths))
    assert "1 pairs of this batch" in loss.warning
    assert loss.report["short"] == 1
    assert loss.report["ln_candidates"] == pytest.approx(math.log(5))
    short = SpanPair("a b", TEXT, "de", 0.0, 0.0, "x")
    kept = one.spans({"linked": [pairs[0], short]}, encoder, 0)  # a step with a short pair is better than none
    assert (kept.records, kept.report) == ([pairs[0], short], {"short": 0.0, "short_kept": 1.0})
    lengths = [len(row.ids) for row in kept.rows]
    loss = one.contrastive(kept, TokenVectors(torch.randn(sum(lengths), one.dim), lengths))
    assert "1 of 2 pairs of this batch have a side of fewer than 12 tokens. They were kept" in loss.warning
    with pytest.raises(InterlinguaError, match="of 2 pairs of linked documents 1 have text on both sides"):
        one.spans({"linked": [pairs[0], SpanPair("", TEXT, "de", 0.0, 0.0, "x")]}, encoder, 0)


def test_one_group_is_no_negative_of_itself_unless_kept(encoder):
    pairs = [pair(0, group="same"), pair(1, group="same"), pair(2)]
    torch.manual_seed(1)
    for duplicates, groups in (("mask", torch.tensor([0, 0, 1])), ("keep", None)):
        one = objective(encoder, duplicates=duplicates)
        read = one.spans({"linked": pairs}, encoder, 0)
        lengths = [len(row.ids) for row in read.rows]
        vectors = TokenVectors(torch.randn(sum(lengths), one.dim), lengths)
        padded = [*vectors.select(range(3)).padded(), *vectors.select(range(3, 6)).padded()]
        assert one.contrastive(read, vectors).value.item() == pytest.approx(
            comparable_contrastive(*padded, groups=groups).item(), rel=1e-5
        )


def test_cls_and_projection_choose_what_is_compared(encoder):
    states, lengths = torch.randn(9, 32), torch.tensor([4, 5])
    assert torch.equal(objective(encoder).represent(states, lengths), states)
    cls = objective(encoder, similarity="cls")
    assert torch.equal(cls.represent(states, lengths), states[[0, 4]])
    small = objective(encoder, proj_dim=8)
    assert (small.dim, small.represent(states, lengths).shape) == (8, (9, 8))


def test_token_losses_come_from_the_last_layer_and_the_condenser(encoder):
    one = objective(encoder).eval()
    rows = one.spans({"linked": [pair(0), pair(1)]}, encoder, 0).rows
    states, lengths, early = encoder.token_states([row.ids for row in rows], layer=one.early)
    losses = one.token_losses(rows, states, lengths, early, encoder)
    starts = (lengths.cumsum(0) - lengths).tolist()
    where = [start + position for start, row in zip(starts, rows, strict=True) for position, _ in row.targets]
    targets = [token for row in rows for _, token in row.targets]
    for name, read in (("mlm", states), ("condenser", one.condenser(states, early, lengths))):
        logits = one.head(read[where], encoder.input_embeddings.weight)
        torch.testing.assert_close(losses[name], -logits.log_softmax(1)[torch.arange(len(where)), targets])
    assert one.early == 1
    assert one.weights == {"mlm": 1.0, "condenser": 1.0}


def test_heads_are_there_only_where_they_have_a_weight(encoder):
    bare = objective(encoder, mlm=0.0, condenser=0.0)
    assert (bare.head, bare.condenser, bare.early, dict(bare.weights)) == (None, None, None, {})
    assert not list(bare.parameters())
    assert objective(encoder, condenser=0.0).early is None
    assert list(objective(encoder, mlm=0.0, condenser=0.5).weights) == ["condenser"]


def test_what_the_objective_cannot_read(encoder, tiny_static):
    one = objective(encoder)
    with pytest.raises(InterlinguaError, match="one pair has nothing to tell apart"):
        one.spans({"linked": [pair()]}, encoder, 0)
    with pytest.raises(InterlinguaError, match="reads SpanPair records, but its stream holds Sentence"):
        one.spans({"linked": [Sentence("a", "en")] * 2}, encoder, 0)
    with pytest.raises(InterlinguaError, match="needs a transformer with a mask token"):
        one.spans({"linked": [pair(0), pair(1)]}, tiny_static(), 0)
    with pytest.raises(InterlinguaError, match="a span of 63 tokens with the 2 around it is longer than the 64"):
        objective(encoder, span=63).spans({"linked": [pair(0), pair(1)]}, encoder, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"rate": 1.0}, "'rate': input should be less than 1 .got 1.0."),
        ({"mlm": -1.0}, "'mlm': input should be greater than or equal to 0"),
        ({"min_tokens": 30}, "min_tokens no more than span"),
        ({"proj_dim": 0}, "'proj_dim': input should be greater than or equal to 1"),
        ({"similarity": "max"}, "'similarity': .* Did you mean 'maxsim'"),
        ({"temperature": -1.0}, "'temperature': input should be greater than 0"),
        ({"denominator": "printed"}, "'denominator': input should be 'simclr' or"),
        ({"skip_from": 2}, "early states out of 0 to 1"),
    ],
)
def test_options_that_cannot_be(encoder, options, says):
    with pytest.raises(InterlinguaError, match=says):
        objective(encoder, **options)
