"""Masked-language modelling: its head, its translation form, whole-word masking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import gelu, linear

from interlingua.data.records import ParallelPair, Sentence
from interlingua.errors import BadInput, NotFound
from interlingua.models.folder import model_folder, require_safetensors
from interlingua.models.late_interaction import MARKERS, Model, RoleEncoder
from interlingua.objectives.objective import (
    Batch,
    MaskedRow,
    ObjectiveSettings,
    Role,
    Spans,
    Text,
    TokenObjective,
    require,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class MaskedLanguageModelHead(nn.Module):
    """Dense → GELU → LayerNorm → decoder tied to the input embeddings, plus a bias: XLM-R's `lm_head`.

    The embedding matrix is given at call time, so it stays the encoder's.
    """

    def __init__(self, hidden: int, vocabulary: int, *, layer_norm_eps: float = 1e-5) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden, hidden)
        self.layer_norm = nn.LayerNorm(hidden, eps=layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        nn.init.normal_(self.dense.weight, std=0.02)
        nn.init.zeros_(self.dense.bias)

    def forward(self, states: Tensor, embeddings: Tensor) -> Tensor:
        """States `[masked tokens, hidden]`, embeddings `[vocabulary, hidden]` → logits `[masked tokens, vocab]`."""
        features = self.layer_norm(gelu(self.dense(states)))
        return linear(features, embeddings, self.bias)

    def losses(self, states: Tensor, targets: Tensor, encoder: RoleEncoder) -> Tensor:
        """The cross-entropy `[predictions]` of `targets` `[predictions]` from their states `[predictions, hidden]`."""
        logits = self(states, encoder.input_embeddings.weight)
        return F.cross_entropy(logits.float(), targets, reduction="none")

    def load_from(self, name_or_path: str | Path) -> None:
        """Take the trained head of an XLM-R-like masked language model (a name or folder, safetensors). The markers
        of late interaction, which it has not, keep their bias.

        Raises NotFound where there is no such head, BadInput where it is of other sizes; this head is then as it was.
        """
        from transformers import AutoModelForMaskedLM

        from interlingua.models.transformer import quiet

        folder = model_folder(name_or_path)
        require_safetensors(folder)
        try:
            with quiet():
                model, report = AutoModelForMaskedLM.from_pretrained(
                    folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
                )
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise NotFound(f"{folder}: holds no masked language model.") from error
        head = getattr(model, "lm_head", None)
        missing = [name for name in report["missing_keys"] if name.startswith("lm_head.") and "decoder" not in name]
        if head is None or missing or not model.config.tie_word_embeddings:
            raise NotFound(f"{folder}: holds no trained lm_head as XLM-R's.")
        state = {name: value for name, value in head.state_dict().items() if not name.startswith("decoder.")}
        size = len(state["bias"]) if "bias" in state else 0
        if 0 < len(self.bias) - size <= len(MARKERS):
            state["bias"] = torch.cat([state["bias"], self.bias.detach()[size:]])
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        if shapes != {name: tuple(value.shape) for name, value in self.state_dict().items()}:
            raise BadInput(f"{folder}: its lm_head has other sizes than this one.")
        self.load_state_dict(state)
        self.layer_norm.eps = head.layer_norm.eps


def words(pieces: Sequence[str], longest: int = 4, *, wordpiece: bool = False) -> list[range]:
    """The ranges of the words in `pieces`. A SentencePiece word begins at "▁", with `wordpiece` at a piece without
    "##". A word of more than `longest` pieces falls apart into runs of that many: where no spaces are written, all
    between two punctuation marks is one "word"."""
    begins = [not piece.startswith("##") if wordpiece else piece.startswith("▁") for piece in pieces]
    ranges: list[range] = []
    for position, begin in enumerate(begins):
        if ranges and not begin and len(ranges[-1]) < longest:
            ranges[-1] = range(ranges[-1].start, position + 1)
        else:
            ranges.append(range(position, position + 1))
    return ranges


def mask_words(
    ids: list[int],
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: int,
    rate: float,
    longest: int,
    random: np.random.Generator,
) -> MaskedRow:
    """`mask_tokens` on whole words: words in random order as far as they fit into `rate` of the tokens (one token at
    least, and the first word whatever its size). Words with a special token, such as the unknown one, are never
    chosen."""
    special = set(tokenizer.all_special_ids)
    wordpiece = type(tokenizer.backend_tokenizer.model).__name__ == "WordPiece"
    candidates = [
        word
        for word in words(tokenizer.convert_ids_to_tokens(ids), longest, wordpiece=wordpiece)
        if special.isdisjoint(ids[word.start : word.stop])
    ]
    limit = max(1, round(rate * sum(map(len, candidates))))
    positions: list[int] = []
    for number in random.permutation(len(candidates)):
        word = candidates[int(number)]
        if not positions or len(positions) + len(word) <= limit:
            positions.extend(word)
    positions.sort()
    corrupted = list(ids)
    tokens = [ids[position] for position in positions]
    masked = mask_tokens(tokens, set(), tokenizer.mask_token_id, vocabulary, 1.0, random)
    for position, token in zip(positions, masked.ids, strict=True):
        corrupted[position] = token
    return MaskedRow(corrupted, [(positions[place], token) for place, token in masked.targets])


def mask_tokens(
    ids: list[int], special: set[int], mask_id: int, vocabulary: int, rate: float, random: np.random.Generator
) -> MaskedRow:
    """BERT's corruption (Devlin et al. 2019): of `rate` of the tokens, at least one, 80% become the mask, 10% a
    random token, 10% stay; all of them must be predicted. Special tokens are never chosen."""
    candidates = [position for position, token in enumerate(ids) if token not in special]
    if not candidates:
        return MaskedRow(ids, [])
    positions = random.choice(candidates, size=max(1, round(rate * len(candidates))), replace=False)
    corrupted = list(ids)
    for position in positions:
        draw = random.random()
        if draw < 0.8:
            corrupted[position] = mask_id
        elif draw < 0.9:
            corrupted[position] = int(random.integers(vocabulary))
    return MaskedRow(corrupted, [(int(position), ids[position]) for position in sorted(positions)])


def predicted(rows: Sequence[MaskedRow], lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The places of the predictions among the states of all rows, of `lengths` `[rows]`, laid end to end, and the
    tokens to be predicted there: both `[predictions]`."""
    starts = (lengths.cumsum(0) - lengths).tolist()
    positions = [start + position for start, row in zip(starts, rows, strict=True) for position, _ in row.targets]
    tokens = [token for row in rows for _, token in row.targets]
    return torch.tensor(positions, dtype=torch.long), torch.tensor(tokens, dtype=torch.long)


RATE = "share of the tokens that are predicted"


class MaskedLanguageModelling(TokenObjective):
    """Predict the masked tokens of raw sentences; the loss is the mean over predictions.

    The head is trained with the encoder and dropped when the model is saved. It starts at random; `head.load_from`
    takes a pretrained model's.

    Args:
        hidden: the encoder's hidden size, and `vocabulary`: its number of tokens.
        seed: of the masking; step t is masked the same way on every process and after a resume.
    """

    class Settings(ObjectiveSettings):
        """Options of the prediction."""

        rate: float = Field(0.15, gt=0, lt=1, description=RATE)
        role: Role = Field("passage", description="which encoder reads")

    settings: Settings
    streams: tuple[str, ...] = ("sentences",)

    def __init__(self, *, hidden: int, vocabulary: int, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.role, self.seed, self.vocabulary = self.settings.role, seed, vocabulary
        self.head = MaskedLanguageModelHead(hidden, vocabulary)

    @classmethod
    def for_model(cls, model: Model, seed: int, options: Mapping[str, Any]) -> Self:
        encoder = model.passage
        rows = len(cast(Tensor, encoder.input_embeddings.weight))
        return cls(hidden=encoder.hidden_size, vocabulary=rows, seed=seed, **options)

    def texts(self, batch: Batch) -> list[Text]:
        """The texts to read: each raw sentence."""
        return [record.text for record in require(batch["sentences"], Sentence, self)]

    def spans(self, batch: Batch, encoder: RoleEncoder, step: int) -> Spans:
        return Spans(self.rows(batch, encoder, step))

    def rows(self, batch: Batch, encoder: RoleEncoder, step: int) -> list[MaskedRow]:
        """The rows that `spans` reads."""
        tokenizer = encoder.tokenizer
        if tokenizer.mask_token_id is None:
            raise BadInput("masked-language modelling needs a tokenizer with a mask token; this model has none.")
        special = set(tokenizer.all_special_ids)
        random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, step]))
        return [
            mask_tokens(ids, special, tokenizer.mask_token_id, self.vocabulary, self.settings.rate, random)
            for ids in encoder.tokenize(self.texts(batch), self.role)
        ]

    def token_losses(
        self, rows: list[MaskedRow], states: Tensor, lengths: Tensor, early: Tensor | None, encoder: RoleEncoder
    ) -> dict[str, Tensor]:
        positions, tokens = (tensor.to(states.device) for tensor in predicted(rows, lengths))
        return {"": self.token_loss(states[positions], tokens, encoder)}

    def token_loss(self, states: Tensor, targets: Tensor, encoder: RoleEncoder) -> Tensor:
        """`[predictions]` losses from the states `[predictions, hidden]` at the predicted positions."""
        return self.head.losses(states, targets, encoder)


class TranslationLanguageModelling(MaskedLanguageModelling):
    """The same on a sentence and its translation read together (Conneau & Lample 2019): a word may be
    predicted from the other language. They are joined as title and text are: set the model's template to "pair" for
    the separators of the paper."""

    streams = ("parallel",)

    def texts(self, batch: Batch) -> list[Text]:
        return [(pair.source, pair.target) for pair in require(batch["parallel"], ParallelPair, self)]
