"""The Condenser head (Gao & Callan 2021): trained beside an encoder, dropped when the encoder is saved."""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor, nn
from transformers import BertConfig, PretrainedConfig
from transformers.models.bert.modeling_bert import BertLayer

from interlingua.errors import InterlinguaError
from interlingua.models import packing


class CondenserHead(nn.Module):
    """Fresh transformer layers that read the late state of each text's first token and the early states of the others.

    What the early states lack for predicting masked tokens must come through the one late vector, so the encoder learns
    to put what the text says into it. The layers are BERT's (XLM-R's are the same) in the sizes of the encoder's; their
    weights start with standard deviation 0.02.

    Args:
        config: of the encoder's Hugging Face model.
        skip_from: the hidden state that the early states are taken from (0 = embeddings); the middle one by default
            (6 of 12, as the README of the published code recommends).
        layers: of the head.

    Raises InterlinguaError for a `skip_from` that the model does not have or that is its last.
    """

    def __init__(self, config: PretrainedConfig, *, skip_from: int | None = None, layers: int = 2) -> None:
        super().__init__()
        depth = int(config.num_hidden_layers)
        self.skip_from = depth // 2 if skip_from is None else skip_from
        if not 0 <= self.skip_from < depth or layers < 1:
            raise InterlinguaError(f"a Condenser head of {layers} layers on hidden state {self.skip_from}: it needs 1 "
                                   f"layer or more, and early states out of 0 to {depth - 1} for this model.")
        own = BertConfig(
            hidden_size=config.hidden_size, num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size, hidden_act=getattr(config, "hidden_act", "gelu"),
            hidden_dropout_prob=getattr(config, "hidden_dropout_prob", 0.1),
            attention_probs_dropout_prob=getattr(config, "attention_probs_dropout_prob", 0.1),
            layer_norm_eps=getattr(config, "layer_norm_eps", 1e-5), attn_implementation=packing.ATTENTION)
        self.layers = nn.ModuleList(BertLayer(own) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, late: Tensor, early: Tensor, lengths: Tensor) -> Tensor:
        """Late and early states `[tokens of all texts, hidden]`, laid end to end as `Encoder.token_states` gives them,
        and the number of tokens of each text `[texts]` (1 or more) → states of the same shape, of which the first of
        each text comes from the late one. No padding: each text attends to itself."""
        counts: list[int] = lengths.tolist()
        first = torch.zeros(len(late), 1, dtype=torch.bool, device=late.device)
        first[(lengths.cumsum(0) - lengths).to(late.device)] = True
        states = torch.where(first, late, early.to(late.dtype))[None]
        runs: list[packing.Run] = []
        start = 0
        for count, equal in groupby(counts):
            texts = len(list(equal))
            runs.append((start, texts, count))
            start += texts * count
        for layer in self.layers:
            states = layer(states, None, packed_runs=runs)
        return states[0]
