"""The transformer backbone: padded or packed, whole or cut to k layers; pooling.

A padded batch computes every token up to the longest text. Here a batch is one row `[1, tokens]` with positions
that restart at every text; the linear layers never see a pad token and attention runs once per group of equally
long texts. The attention function is registered through transformers' public interface, so the model code is
the library's own. Without packed runs it is ordinary scaled-dot-product attention.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.masking_utils import sdpa_mask

from interlingua.errors import BadInput
from interlingua.models.folder import Pooling, require_safetensors
from interlingua.models.inference.packing import OFFSET_POSITIONS, PACKABLE, Packed, Run, pack, pool_packed
from interlingua.models.subwords import Subwords

ATTENTION = "interlingua_packed"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and load reports: we check what was loaded and say it ourselves."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def can_pack(model: PreTrainedModel) -> bool:
    """Whether `model` is of a type whose positions and attention packing is known to get right."""
    return model.config.model_type in PACKABLE and not getattr(model.config, "is_decoder", False)


def forward(model: PreTrainedModel, packed: Packed, *, hidden_states: bool = False) -> Any:
    """The model's output for a packed row, differentiable: `last_hidden_state` is `[1, tokens, hidden]`."""
    return model(
        input_ids=packed.ids,
        position_ids=packed.positions,
        token_type_ids=torch.zeros_like(packed.ids),
        packed_runs=packed.runs,
        output_hidden_states=hidden_states,
    )


def first_states(
    model: PreTrainedModel,
    ids: Tensor,
    positions: Tensor | None = None,
    mask: Tensor | None = None,
    runs: list[Run] | None = None,
) -> Tensor:
    """Last-layer states of each text's first token, `[texts, hidden]`, differentiable: equal to those of `model`.

    In the last layer only keys and values need the other tokens; queries, attention and feed-forward are computed for
    the first alone. Either a packed row with its `runs` and `positions`, or padded `ids` `[texts, longest]` with their
    0/1 `mask`. For models that `can_pack` and have a layer.
    """
    attention_mask = None if mask is None or mask.all() else mask[:, None, None].bool()
    states = model.embeddings(input_ids=ids, position_ids=positions, token_type_ids=torch.zeros_like(ids))
    for layer in model.encoder.layer[:-1]:
        states = layer(states, attention_mask, packed_runs=runs)
    if runs is None:
        first = states[:, :1]
    else:
        starts = [start + i * length for start, count, length in runs for i in range(count)]
        first = states[:, torch.tensor(starts, device=states.device)]
    layer = model.encoder.layer[-1]
    inner = layer.attention.self
    query, key, value = (
        linear(inputs).unflatten(-1, (-1, inner.attention_head_size)).transpose(1, 2)
        for linear, inputs in ((inner.query, first), (inner.key, states), (inner.value, states))
    )
    dropout = inner.dropout.p if inner.training else 0.0
    attended, _ = packed_attention(inner, query, key, value, attention_mask, inner.scaling, dropout, runs)
    last: Tensor = layer.feed_forward_chunk(layer.attention.output(attended.flatten(2), first))
    return last.flatten(0, 1)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed_runs: list[Run] | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attention inside each text of a packed row. `key`, `value`: `[1, heads, tokens, head dim]`; `query` the same,
    or `[1, heads, texts, head dim]` with one query for each text.

    Returns `[batch, queries, heads, head dim]` as transformers expects. Without `packed_runs`: plain attention.
    """
    if packed_runs is None:
        plain = scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
        return plain.transpose(1, 2).contiguous(), None
    heads, size = query.shape[1], query.shape[3]
    per_token = query.shape[2] == key.shape[2]
    parts, offset = [], 0
    for start, count, length in packed_runs:
        queries, end = count * (length if per_token else 1), start + count * length
        q, k, v = (
            states[0, :, first:last].view(heads, count, -1, size).transpose(0, 1)
            for states, first, last in ((query, offset, offset + queries), (key, start, end), (value, start, end))
        )
        attended = scaled_dot_product_attention(q, k, v, dropout_p=dropout, scale=scaling)
        parts.append(attended.transpose(1, 2).reshape(queries, heads, size))
        offset += queries
    return torch.cat(parts)[None], None


AttentionInterface.register(ATTENTION, packed_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


def pool_padded(states: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """`[texts, longest, hidden]` and a 0/1 mask `[texts, longest]` → float32 `[texts, hidden]`. Padding is right."""
    if pooling == "cls":
        return states[:, 0].float()
    weights = mask.unsqueeze(-1).float()
    return (states.float() * weights).sum(1) / weights.sum(1)


class Transformer(nn.Module):
    """A Hugging Face encoder. `packed`: compute batches without padding; None chooses that on a CPU, where it is
    faster, and padding on a GPU, where many small kernels are not."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        if not getattr(tokenizer, "is_fast", False):
            raise BadInput(
                "the model's tokenizer is not a fast one (tokenizer.json); convert it first with "
                "transformers' AutoTokenizer and save_pretrained."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.subwords = Subwords(tokenizer.backend_tokenizer, special=True)
        self.packed: bool | None = None
        if can_pack(model):
            model.set_attn_implementation(ATTENTION)  # takes packed rows; padded batches go on working as before
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module):
            # Never used (vectors come from token states), so never trained: distributed training would wait for it.
            pooler.requires_grad_(False)

    @property
    def hidden_size(self) -> int:
        """Size of a token state."""
        return int(self.model.config.hidden_size)

    @property
    def model_max_length(self) -> int:
        """The most tokens that the tokenizer takes; 10^30 where it does not say."""
        return int(self.tokenizer.model_max_length)

    @property
    def layers(self) -> int:
        """Number of transformer layers."""
        return int(self.model.config.num_hidden_layers)

    @property
    def pad_id(self) -> int:
        """The padding token: the model's own (XLM-R: 1), else the tokenizer's."""
        for pad in (getattr(self.model.config, "pad_token_id", None), self.tokenizer.pad_token_id):
            if pad is not None:
                return int(pad)
        return 0

    @property
    def positions(self) -> int | None:
        """The most tokens of a text, or None where positions are not a table."""
        table = getattr(self.model.config, "max_position_embeddings", None)
        if not isinstance(table, int) or table <= 0:
            return None
        offset = self.pad_id + 1 if self.model.config.model_type in OFFSET_POSITIONS else 0
        return table - offset

    @property
    def input_embeddings(self) -> nn.Module:
        """The embedding matrix of the vocabulary."""
        embeddings: nn.Module = self.model.get_input_embeddings()
        return embeddings

    def packs(self) -> bool:
        """Whether batches are computed without padding now."""
        if not can_pack(self.model):
            return False
        return self.model.device.type == "cpu" if self.packed is None else self.packed

    def vectors(self, ids: Sequence[Sequence[int]], pooling: Pooling) -> Tensor:
        """Token ids of each text → pooled float32 vectors `[texts, hidden]`, in one forward pass, with gradient."""
        # Not for a lone text: one row is multiplied by another routine, whose last digit depends on where the weights
        # lie in memory, and a loaded model would not be bit-equal to the saved one.
        first_only = pooling == "cls" and len(ids) > 1 and self.layers > 0 and can_pack(self.model)
        if not self.packs():
            if first_only:
                batch, mask = self._pad(ids)
                return first_states(self.model, batch, mask=mask).float()
            states, mask, _ = self._padded(ids, None)
            return pool_padded(states, mask, pooling)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        packed = pack([ids[i] for i in order], self.model.config, self.model.device)
        if first_only:
            vectors = first_states(self.model, packed.ids, packed.positions, runs=packed.runs).float()
        else:
            states = forward(self.model, packed).last_hidden_state[0]
            vectors = pool_packed(states, packed.runs, pooling)
        return vectors[torch.tensor(order).argsort().to(vectors.device)]

    def token_states(
        self, ids: Sequence[Sequence[int]], layer: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Token ids → last-layer states `[tokens of all texts, hidden]` in order, lengths `[texts]` (int64), and
        the states of hidden layer `layer` (0 = embeddings) if one is named."""
        lengths = torch.tensor([len(text) for text in ids], dtype=torch.long)
        if layer is not None and not 0 <= layer <= self.layers:
            raise BadInput(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        if not self.packs():
            states, mask, early = self._padded(ids, layer)
            real = mask.bool()
            return states[real], lengths, None if early is None else early[real]
        packed = pack(ids, self.model.config, self.model.device)
        output = forward(self.model, packed, hidden_states=layer is not None)
        return output.last_hidden_state[0], lengths, None if layer is None else output.hidden_states[layer][0]

    def _padded(self, ids: Sequence[Sequence[int]], layer: int | None) -> tuple[Tensor, Tensor, Tensor | None]:
        batch, mask = self._pad(ids)
        output = self.model(input_ids=batch, attention_mask=mask, output_hidden_states=layer is not None)
        return output.last_hidden_state, mask, None if layer is None else output.hidden_states[layer]

    def _pad(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        rows = [torch.tensor(text, dtype=torch.long) for text in ids]
        batch = pad_sequence(rows, batch_first=True, padding_value=self.pad_id)
        mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        return batch.to(self.model.device), mask.to(self.model.device)

    def stack(self) -> nn.ModuleList:
        """The transformer layers. Raises BadInput for a model in which they are not one list."""
        lists = [m for m in self.model.modules() if isinstance(m, nn.ModuleList) and len(m) == self.layers]
        if len(lists) != 1:
            raise BadInput(f"a {self.model.config.model_type} model does not show its layers as one list.")
        return lists[0]

    def cut(self, layer: int) -> None:
        """Keep the first `layer` layers, so that the last state is hidden state `layer` of the whole model.

        Raises BadInput where that is not so (a norm after the last layer, e.g. ModernBERT).
        """
        if not 0 <= layer <= self.layers:
            raise BadInput(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        if layer == self.layers:
            return
        stack, probe = self.stack(), self.subwords(["a", "b c"])
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            expected = self.token_states(probe, layer)[2]
            self._keep(stack, range(layer))
            actual = self.token_states(probe)[0]
        self.model.train(training)
        if expected is None or not torch.allclose(actual, expected, atol=1e-4, rtol=1e-3):
            raise BadInput(
                f"layer {layer}: a {self.model.config.model_type} model cannot be cut (its last "
                "state is not simply the last layer's). Leave `layer` out for this model."
            )

    def choice(self, layers: Sequence[int]) -> list[int]:
        """These layers, counted from 0.

        Raises BadInput for a layer that is not there, for another than the rising order, and for a model whose layers
        are not all of one kind.
        """
        missing = [layer for layer in layers if not 0 <= layer < self.layers]
        if missing or list(layers) != sorted(set(layers)) or not layers:
            raise BadInput(
                f"layers {', '.join(map(str, layers)) or '(none)'}: this model has the layers 0 to {self.layers - 1}. "
                "Name some of them, each once, in rising order."
            )
        if not can_pack(self.model):
            raise BadInput(
                f"layers: those of a {self.model.config.model_type} model cannot be chosen one by one. "
                "Give the number of layers to keep instead."
            )
        return list(layers)

    def keep(self, layers: Sequence[int]) -> None:
        """Keep these layers. Raises BadInput as `choice`."""
        self._keep(self.stack(), self.choice(layers))

    def _keep(self, stack: nn.ModuleList, layers: Sequence[int]) -> None:
        for layer in reversed(range(len(stack))):
            if layer not in layers:
                del stack[layer]
        self.model.config.num_hidden_layers = len(stack)

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer's files into `folder`."""
        with quiet():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @classmethod
    def load(cls, folder: Path) -> Transformer:
        """Read a Hugging Face model folder in float32. Raises BadInput for pickles, custom code, lacking or
        misfitting weights."""
        require_safetensors(folder)
        try:
            with quiet():
                config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
                _check_size(folder, config)
                model, report = AutoModel.from_pretrained(
                    folder,
                    config=config,
                    use_safetensors=True,
                    trust_remote_code=False,
                    dtype=torch.float32,
                    output_loading_info=True,
                )
                tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            int(tokenizer.model_max_length)  # fails here for one that is no number
        except Exception as error:  # transformers checks few of the values in a folder, and stumbles over the others
            raise BadInput(f"{folder}: cannot be loaded as a Hugging Face model ({_first_line(error)}).") from error
        if config.is_encoder_decoder or config.model_type.endswith("t5"):  # a T5's encoder alone says it has none
            raise BadInput(f"{folder}: a {config.model_type} model has an encoder and a decoder; such cannot be read.")
        if config.model_type == "dpr":
            raise BadInput(
                f"{folder}: a dpr model gives no token states. Save the BERT model inside it, and give that."
            )
        pooler = {name for name in report["missing_keys"] if name.startswith("pooler.")}
        missing = sorted(set(report["missing_keys"]) - pooler)
        if missing or report["mismatched_keys"]:
            names = [*missing, *(str(key[0]) for key in report["mismatched_keys"])]
            raise BadInput(
                f"{folder}: {len(names)} weights are missing or of another shape than config.json "
                f"says ({', '.join(names[:3])})."
            )
        if pooler:
            # transformers fills a missing pooler at random; zeros keep saved files reproducible.
            for parameter in model.pooler.parameters():
                nn.init.zeros_(parameter)
        return cls(model, tokenizer)


def _check_size(folder: Path, config: Any) -> None:
    """Raise ValueError for a configuration of far more weights than the files hold, before memory is asked for them."""
    files = list(folder.glob("model*.safetensors"))
    size, tensors = sum(file.stat().st_size for file in files), 0
    for file in files:
        with safe_open(file, "pt") as weights:
            tensors += len(list(weights.keys()))
    layers, rows, width = (getattr(config, name, 0) for name in ("num_hidden_layers", "vocab_size", "hidden_size"))
    if files and (layers > tensors or rows * width > 4 * size):  # weights of two bits have four in a byte
        raise ValueError(
            f"config.json says {layers:,} layers of {width:,} and {rows:,} subwords, for which the weights are too few"
        )


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
