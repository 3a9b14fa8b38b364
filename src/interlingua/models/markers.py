"""The tokens that tell queries from documents where one encoder reads both (ColBERT's [Q] and [D])."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken

if TYPE_CHECKING:  # it imports transformers' models, which takes seconds
    from interlingua.models.transformer import Transformer

MARKERS = {"query": "[Q]", "document": "[D]"}
"""They stand before a text, after the opening special token."""


def add_markers(backbone: Transformer) -> None:
    """Give the markers ids of their own after the vocabulary (XLM-R: 250002 and 250003), and random rows drawn like
    those that are there. A marker that the vocabulary has already keeps its id and row."""
    tokenizer, model = backbone.tokenizer, backbone.model
    known = set(tokenizer.get_vocab())
    tokenizer.add_tokens([AddedToken(marker, normalized=False, special=True) for marker in MARKERS.values()],
                         special_tokens=True)
    before = len(model.get_input_embeddings().weight)
    new = [tokenizer.convert_tokens_to_ids(marker) for marker in MARKERS.values() if marker not in known]
    if len(tokenizer) > before:
        # not transformers' mean resizing: it takes the covariance of the whole table
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        drawn = torch.randn(len(new), table.shape[1]) * table[:before].float().std().cpu()
        table[new] = drawn.to(table)
