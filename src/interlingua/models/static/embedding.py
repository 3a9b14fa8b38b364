"""The static backbone: a text is the mean of its learned subword vectors. Fast to train and to encode, no context."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import embedding, embedding_bag

from interlingua.errors import BadInput, Damaged
from interlingua.models.static.encoder import StaticTable, check_vocabulary, int8_rows
from interlingua.models.subwords import Subwords

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class StaticEmbedding(nn.Module):
    """Equal to sentence-transformers' StaticEmbedding: `embedding.weight` `[vocabulary, dim]`, mean over the subwords
    of a text without special tokens; a text without subwords is the zero vector.

    Gradients of the rows are sparse. In training, `token_dropout` drops whole tokens with that probability (one
    token at least stays). With `token_weights` each subword also learns a positive weight w: the vector is
    Σ w·v / n, divided by the number of tokens and not by Σ w, so multiplying the rows by w on saving changes nothing.
    With `int8` the rows are saved as 8-bit integers with one scale each, in model2vec's names (`embeddings`,
    `weights`), which sentence-transformers reads too: a quarter of the size.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        rows: Tensor,
        *,
        token_dropout: float = 0.0,
        token_weights: bool = False,
        int8: bool = False,
    ) -> None:
        super().__init__()
        if not 0.0 <= token_dropout < 1.0:
            raise BadInput(f"token_dropout {token_dropout}: give a probability of at least 0 and below 1.")
        self.tokenizer = tokenizer
        self.subwords = Subwords(tokenizer.backend_tokenizer, special=False)
        check_vocabulary(self.subwords, len(rows))
        self.embedding = nn.EmbeddingBag(
            rows.shape[0], rows.shape[1], mode="mean", sparse=True, _weight=rows.detach().clone().float()
        )
        self.token_dropout, self.int8 = token_dropout, int8
        self.log_weights = nn.Parameter(torch.zeros(len(rows))) if token_weights else None

    @property
    def hidden_size(self) -> int:
        """Size of a subword vector."""
        return self.embedding.embedding_dim

    @property
    def pad_id(self) -> int:
        """Never used: nothing is padded."""
        return int(self.tokenizer.pad_token_id or 0)

    @property
    def input_embeddings(self) -> nn.Module:
        """The embedding of the vocabulary (an EmbeddingBag)."""
        return self.embedding

    def vectors(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Subword ids of each text → float32 `[texts, dim]`, with gradient."""
        device = self.embedding.weight.device
        counts = torch.tensor([len(text) for text in ids], dtype=torch.long)
        # six times as fast as torch.tensor, which is most of the time that encoding takes
        flat = torch.from_numpy(np.fromiter(chain.from_iterable(ids), np.int64, int(counts.sum())))
        if self.training and self.token_dropout:
            flat, counts = _drop(flat, counts, self.token_dropout)
        flat, starts = flat.to(device), (counts.cumsum(0) - counts).to(device)
        if not torch.is_grad_enabled():
            weights = None if self.log_weights is None else self.log_weights[flat].exp()
            total = embedding_bag(flat, self.embedding.weight, starts, mode="sum", per_sample_weights=weights)
            return total / counts.to(device).clamp(min=1).unsqueeze(1)
        # Each subword of the batch once: the backward pass then adds up one gradient row for a distinct subword, not
        # for every occurrence, which is several times faster than EmbeddingBag's own sparse gradient.
        distinct, places = torch.unique(flat, return_inverse=True)
        rows = embedding(distinct, self.embedding.weight, sparse=True)
        if self.log_weights is not None:
            rows = rows * self.log_weights[distinct].exp().unsqueeze(1)
        if not len(distinct):
            return rows.new_zeros(len(ids), self.hidden_size) + rows.sum()
        mean: Tensor = embedding_bag(places, rows, starts, mode="mean")
        return mean

    def table(self) -> StaticTable:
        """The rows and the learned weights as `StaticTable` computes with them; on a CPU they are shared."""
        weights = None if self.log_weights is None else self.log_weights.detach().exp().cpu().numpy()
        return StaticTable(self.embedding.weight.detach().cpu().numpy(), weights)

    def folded(self) -> Tensor:
        """The rows `[vocabulary, dim]` with the learned weights multiplied in."""
        rows = self.embedding.weight.detach()
        return rows if self.log_weights is None else rows * self.log_weights.detach().exp().unsqueeze(1)

    @torch.no_grad()
    def even_out(self, power: float) -> None:
        """Raise the length of every row to `power`, in place, the learned weights multiplied in; directions stay.

        Training makes the vectors of rare subwords long, so that one of them decides about a text. A power below 1 lets
        more subwords have a say.
        """
        rows = self.folded()
        self.embedding.weight.copy_(rows * rows.norm(dim=1, keepdim=True).clamp(min=1e-12) ** (power - 1))
        if self.log_weights is not None:
            self.log_weights.zero_()

    @torch.no_grad()
    def down_weight(self, frequencies: Tensor, coefficient: float) -> None:
        """Multiply row w by a / (a + p(w)), in place: smooth inverse frequency (Arora et al. 2017, §3).

        p is `frequencies` [vocabulary], the share that each subword is of all subwords; a is `coefficient`. The words
        that most texts of a language have tell its texts apart least, and sum up to what they have in common.
        """
        self.embedding.weight.mul_((coefficient / (coefficient + frequencies)).to(self.embedding.weight)[:, None])

    def save(self, folder: Path, max_length: int | None = None) -> None:
        """Write model.safetensors and tokenizer.json (the limit on length goes into it) into `folder`."""
        rows = self.folded().cpu().contiguous()
        save_file(quantised(rows) if self.int8 else {"embedding.weight": rows}, folder / "model.safetensors")
        tokenizer = self.subwords.tokenizer
        if max_length is not None:
            tokenizer = copy.deepcopy(tokenizer)
            tokenizer.enable_truncation(max_length)
        tokenizer.save(str(folder / "tokenizer.json"), pretty=False)

    @classmethod
    def load(
        cls, folder: Path, *, token_dropout: float = 0.0, token_weights: bool = False
    ) -> tuple[StaticEmbedding, int | None]:
        """Read a folder written by sentence-transformers, model2vec or `save`; also the limit on a text's tokens."""
        from transformers import PreTrainedTokenizerFast  # takes seconds

        table = StaticTable.open(folder)
        try:
            # not from an object, which would be copied: that takes as long as reading it
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises bare Exception
            raise Damaged(f"{folder}: cannot be read as a static embedding ({error}).") from error
        limit = (tokenizer.backend_tokenizer.truncation or {}).get("max_length")
        return cls(
            tokenizer,
            torch.from_numpy(table.folded()),
            token_dropout=token_dropout,
            token_weights=token_weights,
            int8=table.scales is not None and table.rows.dtype == np.int8,
        ), limit


def quantised(rows: Tensor) -> dict[str, Tensor]:
    """Float32 rows `[vocabulary, dim]` as `embeddings`, int8, and `weights`, float32 `[vocabulary]` (see
    `int8_rows`)."""
    int8, scales = int8_rows(rows.numpy())
    return {"embeddings": torch.from_numpy(int8), "weights": torch.from_numpy(scales)}


def _drop(flat: Tensor, counts: Tensor, probability: float) -> tuple[Tensor, Tensor]:
    """Drop tokens at random; a text that would lose all of them keeps all."""
    text = torch.repeat_interleave(torch.arange(len(counts)), counts)
    mask = torch.rand(len(flat)) >= probability
    remaining = torch.zeros_like(counts).index_add_(0, text, mask.long())
    mask |= (remaining == 0)[text]
    remaining = torch.where(remaining == 0, counts, remaining)
    return flat[mask], remaining
