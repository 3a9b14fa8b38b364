"""BERT, RoBERTa and XLM-R for inference alone: packed rows, weights in float32, bfloat16 or int8, no gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from interlingua.errors import BadInput
from interlingua.models.folder import Pooling
from interlingua.models.inference.int8 import Int8Linear, Layer, Norm, kernel, rounded, states_of
from interlingua.models.inference.packing import OFFSET_POSITIONS, PACKABLE, Packed, Run, inverse, pack, pool_packed
from interlingua.models.subwords import Subwords

TABLE = "embeddings.word_embeddings.weight"
SCALES = ".scales"
"""Ends the names of the scales of int8 weights."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
"""The format of activations in each precision."""


class Config(NamedTuple):
    """The part of a transformers configuration that the vectors depend on."""

    model_type: str
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    max_position_embeddings: int
    layer_norm_eps: float
    pad_token_id: int

    @staticmethod
    def fits(config: Any) -> bool:
        """Whether a transformers configuration is of a model that is computed here."""
        known = config.model_type in PACKABLE and not getattr(config, "is_decoder", False)
        return known and config.hidden_act == "gelu" and config.hidden_size % config.num_attention_heads == 0

    @classmethod
    def of(cls, config: Any) -> Config:
        """Of a transformers configuration. Raises BadInput for a model that is computed in another way."""
        if not cls.fits(config):
            raise BadInput(
                f"a {config.model_type} model has no precision to choose: only BERT, RoBERTa and XLM-R with GELU are "
                "computed in bfloat16 or int8 weights. Leave the precision out."
            )
        return cls(*(getattr(config, name) for name in cls._fields))


def converted(name: str, weight: Tensor, precision: str) -> dict[str, Tensor]:
    """A weight of a model, by its name in transformers, as a precision keeps it. LayerNorm stays float32."""
    if precision == "float32" or "LayerNorm" in name:
        return {name: weight.detach().float()}
    if precision == "bfloat16":
        return {name: weight.detach().bfloat16()}
    if weight.ndim < 2 or ("word_embeddings" not in name and "embeddings" in name):
        return {name: weight.detach().float()}
    whole, scales = rounded(weight.detach().float())
    return {name: whole, name + SCALES: scales}


class InferenceTransformer(nn.Module):
    """What `interlingua.models.transformer.Transformer` computes, from the weights that `converted` gives.

    `lines` are the hashes of the float32 weights by name, for the fingerprint, and `agreement` is the least cosine of
    its vectors with those of float32. `weights_file` is where the weights lie, "" where they could not be kept.
    """

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Tensor],
        tokenizer: Tokenizer,
        precision: str,
        *,
        lines: Mapping[str, str],
        agreement: float,
    ) -> None:
        super().__init__()
        self.config, self.precision, self.lines, self.agreement = config, precision, dict(lines), agreement
        self.subwords = Subwords(tokenizer, special=True)
        self._held = dict(weights)
        self.model_max_length: int | None = None
        self.weights_file = ""
        self._dtype = DTYPES[precision]
        self.norm = nn.Parameter(weights["embeddings.LayerNorm.weight"], requires_grad=False)  # for `device`
        self._stack = [self._layer(number) for number in range(config.num_hidden_layers)]
        self._held = {name: weight for name, weight in self._held.items() if name.startswith("embeddings.")}

    def _linear(self, *names: str) -> Any:
        def joined(part: str) -> Tensor:
            parts = [self._held[f"{name}.{part}"] for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        if self.precision == "int8":
            return Int8Linear(joined("weight"), joined("weight" + SCALES), joined("bias"))
        return partial(linear, weight=joined("weight"), bias=joined("bias"))

    def _norm(self, name: str) -> Norm:
        return Norm(self._held[f"{name}.LayerNorm.weight"], self._held[f"{name}.LayerNorm.bias"])

    def _layer(self, number: int) -> Layer:
        base = f"encoder.layer.{number}"
        return Layer(
            self._linear(*(f"{base}.attention.self.{part}" for part in ("query", "key", "value"))),
            self._linear(f"{base}.attention.output.dense"),
            self._norm(f"{base}.attention.output"),
            self._linear(f"{base}.intermediate.dense"),
            self._linear(f"{base}.output.dense"),
            self._norm(f"{base}.output"),
        )

    @property
    def hidden_size(self) -> int:
        """Size of a token state."""
        return self.config.hidden_size

    @property
    def layers(self) -> int:
        """Number of transformer layers."""
        return len(self._stack)

    @property
    def pad_id(self) -> int:
        """The padding token."""
        return self.config.pad_token_id

    @property
    def positions(self) -> int:
        """The most tokens of a text."""
        offset = self.pad_id + 1 if self.config.model_type in OFFSET_POSITIONS else 0
        return self.config.max_position_embeddings - offset

    @property
    def input_embeddings(self) -> nn.Module:
        """Raises BadInput: there are no embeddings to train."""
        raise BadInput("this encoder was loaded for inference. Load it without a precision to train it.")

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer as one of transformers."""
        from transformers import PreTrainedTokenizerFast

        return PreTrainedTokenizerFast(tokenizer_object=self.subwords.tokenizer)

    def packs(self) -> bool:
        """Yes: batches are always computed without padding."""
        return True

    def vectors(self, ids: Sequence[Sequence[int]], pooling: Pooling) -> Tensor:
        """As `Transformer.vectors`, without gradient."""
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        packed = pack([ids[i] for i in order], self.config, torch.device("cpu"))
        return pool_packed(self._states(packed)[0], packed.runs, pooling)[inverse(order, torch.device("cpu"))]

    def token_states(
        self, ids: Sequence[Sequence[int]], layer: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """As `Transformer.token_states`, without gradient."""
        if layer is not None and not 0 <= layer <= self.layers:
            raise BadInput(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        states, early = self._states(pack(ids, self.config, torch.device("cpu")), layer)
        return states, torch.tensor([len(text) for text in ids], dtype=torch.long), early

    def cut(self, layer: int) -> None:
        """Keep the first `layer` layers."""
        if not 0 <= layer <= self.layers:
            raise BadInput(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        del self._stack[layer:]
        self.lines = {
            name: line
            for name, line in self.lines.items()
            if not name.startswith("encoder.layer.") or int(name.split(".")[2]) < layer
        }

    def keep(self, layers: Sequence[int]) -> None:
        """Raises BadInput: what is held is for inference."""
        raise BadInput("layers cannot be chosen one by one in a model with a precision. Leave the precision out.")

    def save(self, *_: Any) -> None:
        """Raises BadInput: what is held is for inference."""
        raise BadInput("this encoder was loaded for inference. Load it without a precision to save or to train it.")

    def _states(self, packed: Packed, early: int | None = None) -> tuple[Tensor, Tensor | None]:
        with torch.inference_mode():
            states = self._embedded(packed)
            attend = partial(_attention, runs=packed.runs, heads=self.config.num_attention_heads)
            compiled = kernel() if self.precision == "int8" and self._by_fours() else None
            compute = self._by_torch if compiled is None else partial(states_of, compiled=compiled)
            if early is None:
                return compute(self._stack, states, attend, eps=self.config.layer_norm_eps), None
            before = compute(self._stack[:early], states, attend, eps=self.config.layer_norm_eps)
            kept = before.clone()
            return compute(self._stack[early:], before, attend, eps=self.config.layer_norm_eps), kept

    def _by_fours(self) -> bool:
        """Whether the int8 kernel can take the inputs of every layer, which it reads by fours."""
        return not self.hidden_size % 4 and not any(len(layer.up.scales) % 4 for layer in self._stack)

    def _embedded(self, packed: Packed) -> Tensor:
        ids, positions = packed.ids[0], packed.positions[0]
        states = self._held[TABLE][ids].float()
        if self.precision == "int8":
            states *= self._held[TABLE + SCALES][ids][:, None]
        states += self._held["embeddings.position_embeddings.weight"][positions]
        states += self._held["embeddings.token_type_embeddings.weight"][0]
        norm = self._norm("embeddings")
        return layer_norm(states, (self.hidden_size,), norm.weight, norm.bias, self.config.layer_norm_eps).to(
            self._dtype
        )

    def _by_torch(
        self, layers: Sequence[Layer], states: Tensor, attend: Callable[[Tensor], Tensor], eps: float
    ) -> Tensor:
        size = (self.hidden_size,)
        for layer in layers:
            states = layer_norm(layer.out(attend(layer.mixed(states))) + states, size, *layer.norm, eps)
            states = layer_norm(layer.down(gelu(layer.up(states))) + states, size, *layer.last, eps)
        return states


def _attention(mixed: Tensor, runs: Sequence[Run], heads: int) -> Tensor:
    """Attention inside each text: queries, keys and values [tokens, 3 · hidden] → [tokens, hidden]."""
    found = torch.empty(len(mixed), mixed.shape[1] // 3, dtype=mixed.dtype)
    for start, count, length in runs:
        part = slice(start, start + count * length)
        query, key, value = mixed[part].view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value)
        found[part].view(count, length, heads, -1).copy_(attended.transpose(1, 2))
    return found
