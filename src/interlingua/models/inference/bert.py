"""BERT, RoBERTa and XLM-R for inference alone: packed rows, weights in float32, bfloat16 or int8, no gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from interlingua.errors import BadInput
from interlingua.models.folder import Pooling
from interlingua.models.inference.int8 import Layer, rounded
from interlingua.models.inference.kept import SCALES, TABLE, Config
from interlingua.models.inference.layers import Layers, Table, layer_of, norm_of
from interlingua.models.inference.packing import Packed, Run, pack, pool_packed
from interlingua.models.subwords import Subwords

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "int8": torch.float32}
"""The format of activations in each precision."""


def converted(name: str, weight: Tensor, precision: str) -> dict[str, Tensor]:
    """A weight of a model, by its name in transformers, as a precision keeps it. LayerNorm stays float32."""
    if precision == "float32" or "LayerNorm" in name:
        return {name: weight.detach().float()}
    if precision == "bfloat16":
        return {name: weight.detach().bfloat16()}
    if weight.ndim < 2 or ("word_embeddings" not in name and "embeddings" in name):
        return {name: weight.detach().float()}
    integers, scales = rounded(weight.detach().float().numpy())
    return {name: torch.from_numpy(integers), name + SCALES: torch.from_numpy(scales)}


class InferenceTransformer(nn.Module):
    """Computes as `interlingua.models.transformer.Transformer` does, from the weights that `converted` gives: tensors,
    or arrays (those of int8, and the embedding table in any precision, bfloat16 by its bits, uint16).

    `lines` are the hashes of the float32 weights by name, for the fingerprint, and `agreement` is the least cosine of
    its vectors with those of float32. `weights_file` is where the weights lie, "" where they could not be kept.
    """

    def __init__(
        self,
        config: Config,
        weights: Mapping[str, Tensor | NDArray[Any]],
        subwords: Subwords,
        precision: str,
        *,
        lines: Mapping[str, str],
        agreement: float,
    ) -> None:
        super().__init__()
        self.config, self.precision, self.lines, self.agreement = config, precision, dict(lines), agreement
        self.subwords = subwords
        self._held = {name: weight for name, weight in weights.items() if isinstance(weight, Tensor)}
        self.model_max_length: int | None = None
        self.weights_file = ""
        self._dtype = DTYPES[precision]
        norm = torch.from_numpy(_array(weights["embeddings.LayerNorm.weight"]).copy())
        self.norm = nn.Parameter(norm, requires_grad=False)  # for `device`
        self._int8: Layers | None = None
        if precision == "int8":
            self._int8 = Layers(config, {name: _array(weight) for name, weight in weights.items()}, int8=True)
            self._stack = self._int8.layers
        else:
            self._table = Table(_array(weights[TABLE]))
            self._stack = [layer_of(number, self._linear, self._held) for number in range(config.num_hidden_layers)]
        self._held = {name: weight for name, weight in self._held.items() if name.startswith("embeddings.")}

    def _linear(self, *names: str) -> Any:
        def joined(part: str) -> Tensor:
            parts = [self._held[f"{name}.{part}"] for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        return partial(linear, weight=joined("weight"), bias=joined("bias"))

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
        return self.config.positions

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
        return pool_packed(self._states(packed)[0], packed.runs, pooling)[torch.tensor(order).argsort()]

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
        if self._int8 is not None:
            last, hidden = self._int8.states(packed.ids[0].numpy(), packed.positions[0].numpy(), packed.runs, early)
            return torch.from_numpy(last), None if hidden is None else torch.from_numpy(hidden)
        with torch.inference_mode():
            states = self._embedded(packed)
            before = self._compute(self._stack[:early], states, packed.runs)
            return (
                (before, None) if early is None else (self._compute(self._stack[early:], before, packed.runs), before)
            )

    def _embedded(self, packed: Packed) -> Tensor:
        ids, positions = packed.ids[0], packed.positions[0]
        states = torch.from_numpy(self._table.take(ids.numpy()))
        states += self._held["embeddings.position_embeddings.weight"][positions]
        states += self._held["embeddings.token_type_embeddings.weight"][0]
        norm = norm_of("embeddings", self._held)
        return layer_norm(states, (self.hidden_size,), *norm, self.config.layer_norm_eps).to(self._dtype)

    def _compute(self, layers: Sequence[Layer], states: Tensor, runs: Sequence[Run]) -> Tensor:
        size, eps, heads = (self.hidden_size,), self.config.layer_norm_eps, self.config.num_attention_heads
        for layer in layers:
            states = layer_norm(
                layer.out(_attention(layer.mixed(states), runs, heads)) + states, size, *layer.norm, eps
            )
            states = layer_norm(layer.down(gelu(layer.up(states))) + states, size, *layer.last, eps)
        return states


def _array(weight: Tensor | NDArray[Any]) -> NDArray[Any]:
    """A weight as NumPy holds it: bfloat16 by its bits, as uint16."""
    if not isinstance(weight, Tensor):
        return weight
    return weight.view(torch.uint16).numpy() if weight.dtype == torch.bfloat16 else weight.numpy()


def _attention(mixed: Tensor, runs: Sequence[Run], heads: int) -> Tensor:
    """Attention inside each text: queries, keys and values [tokens, 3 · hidden] → [tokens, hidden]."""
    out = torch.empty(len(mixed), mixed.shape[1] // 3, dtype=mixed.dtype)
    for start, count, length in runs:
        part = slice(start, start + count * length)
        query, key, value = mixed[part].view(count, length, 3, heads, -1).permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(query, key, value)
        out[part].view(count, length, heads, -1).copy_(attended.transpose(1, 2))
    return out
