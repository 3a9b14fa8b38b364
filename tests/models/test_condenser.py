"""The Condenser head on ragged texts equals the padded computation; of the late states it sees the first alone."""

import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.objectives.comparable import CondenserHead


@pytest.fixture
def encoder(tiny_encoder):
    return tiny_encoder(layers=3)


@pytest.fixture
def head(encoder):
    torch.manual_seed(0)
    head = CondenserHead(encoder.backbone.model.config).eval()
    for parameter in head.parameters():  # larger than 0.02, so that differences show
        torch.nn.init.normal_(parameter, std=0.2)
    return head


def padded(head, encoder, ids):
    """The published computation: [texts, longest, hidden], the late first state in front of the early others."""
    longest = max(map(len, ids))
    batch = torch.tensor([text + [encoder.pad_id] * (longest - len(text)) for text in ids])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in ids])
    output = encoder.backbone.model(batch, attention_mask=mask, output_hidden_states=True)
    states = torch.cat([output.hidden_states[-1][:, :1], output.hidden_states[head.skip_from][:, 1:]], dim=1)
    blocked = torch.zeros(len(ids), 1, 1, longest).masked_fill(mask[:, None, None] == 0, -1e9)
    for layer in head.layers:
        states = layer(states, blocked)
    return states[mask.bool()]


@pytest.mark.parametrize("packed", [True, False])
def test_ragged_equals_padded(encoder, head, sentences, packed):
    encoder.backbone.packed = packed
    ids = [*encoder.tokenize(sentences[:4]), *encoder.tokenize(sentences[1:3])]
    late, lengths, early = encoder.token_states(ids, layer=head.skip_from)
    ours = head(late, early, lengths)
    assert head.skip_from == 1
    torch.testing.assert_close(ours, padded(head, encoder, ids), atol=1e-4, rtol=1e-4)


def test_only_the_first_token_brings_the_late_state(encoder, head, sentences):
    late, lengths, early = encoder.token_states(encoder.tokenize(sentences[:3]), layer=1)
    before = head(late, early, lengths)
    starts = (lengths.cumsum(0) - lengths).tolist()
    others = torch.ones(len(late), dtype=torch.bool)
    others[starts] = False
    assert torch.equal(head(late.masked_fill(others[:, None], 9.0), early, lengths), before)
    late[starts[1]] += 1.0
    after = head(late, early, lengths)
    second = slice(starts[1], starts[2])
    assert (after[second] - before[second]).abs().amin(1).min() > 0  # every token of its text sees it
    others = torch.cat([after[: starts[1]] - before[: starts[1]], after[starts[2] :] - before[starts[2] :]])
    assert not others.any()  # and no other text does


def test_dropout_and_sizes_are_those_of_the_encoder(encoder):
    config = encoder.backbone.model.config
    head = CondenserHead(config, skip_from=0, layers=1)
    layer = head.layers[0]
    assert layer.intermediate.dense.weight.shape == (config.intermediate_size, config.hidden_size)
    assert layer.attention.self.num_attention_heads == config.num_attention_heads
    assert layer.output.dropout.p == layer.attention.self.dropout.p == config.hidden_dropout_prob == 0.1
    assert layer.output.LayerNorm.eps == config.layer_norm_eps
    assert layer.intermediate.dense.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert not layer.intermediate.dense.bias.any()


@pytest.mark.parametrize("options", [{"skip_from": 3}, {"skip_from": -1}, {"layers": 0}])
def test_a_head_that_cannot_be(encoder, options):
    with pytest.raises(InterlinguaError, match="Condenser head"):
        CondenserHead(encoder.backbone.model.config, **options)
