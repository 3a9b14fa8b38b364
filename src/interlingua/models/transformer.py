"""The transformer backbone: a Hugging Face encoder and its tokenizer, padded or packed, whole or cut to k layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from interlingua.errors import InterlinguaError
from interlingua.models import packing
from interlingua.models.hub import quiet, require_safetensors
from interlingua.models.pooling import Pooling, pool_packed, pool_padded
from interlingua.models.subwords import Subwords


class Transformer(nn.Module):
    """A Hugging Face encoder. `packed`: compute batches without padding; None chooses that on a CPU, where it is
    faster, and padding on a GPU, where many small kernels are not."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        if not getattr(tokenizer, "is_fast", False):
            raise InterlinguaError("the model's tokenizer is not a fast one (tokenizer.json); convert it first with "
                                   "transformers' AutoTokenizer and save_pretrained.")
        self.model = model
        self.tokenizer = tokenizer
        self.subwords = Subwords(tokenizer.backend_tokenizer, special=True)
        self.packed: bool | None = None
        if packing.can_pack(model):
            packing.prepare(model)
        pooler = getattr(model, "pooler", None)
        if isinstance(pooler, nn.Module):
            # Never used (vectors come from token states), so never trained: distributed training would wait for it.
            pooler.requires_grad_(False)

    @property
    def hidden_size(self) -> int:
        """Size of a token state."""
        return int(self.model.config.hidden_size)

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
        offset = self.pad_id + 1 if self.model.config.model_type in packing.OFFSET_POSITIONS else 0
        return table - offset

    @property
    def input_embeddings(self) -> nn.Module:
        """The embedding matrix of the vocabulary."""
        embeddings: nn.Module = self.model.get_input_embeddings()
        return embeddings

    def packs(self) -> bool:
        """Whether batches are computed without padding now."""
        if not packing.can_pack(self.model):
            return False
        return self.model.device.type == "cpu" if self.packed is None else self.packed

    def vectors(self, ids: Sequence[Sequence[int]], pooling: Pooling) -> Tensor:
        """Token ids of each text → pooled float32 vectors `[texts, hidden]`, in one forward pass, with gradient."""
        # Not for a lone text: one row is multiplied by another routine, whose last digit depends on where the weights
        # lie in memory, and a loaded model would not be bit-equal to the saved one.
        first_only = pooling == "cls" and len(ids) > 1 and self.layers > 0 and packing.can_pack(self.model)
        if not self.packs():
            if first_only:
                batch, mask = self._pad(ids)
                return packing.first_states(self.model, batch, mask=mask).float()
            states, mask, _ = self._padded(ids, None)
            return pool_padded(states, mask, pooling)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
        packed = packing.pack([ids[i] for i in order], self.model, self.model.device)
        if first_only:
            vectors = packing.first_states(self.model, packed.ids, packed.positions, runs=packed.runs).float()
        else:
            states = packing.forward(self.model, packed).last_hidden_state[0]
            vectors = pool_packed(states, packed.runs, pooling)
        return vectors[_inverse(order, vectors.device)]

    def token_states(
        self, ids: Sequence[Sequence[int]], layer: int | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Token ids → last-layer states `[tokens of all texts, hidden]` in order, lengths `[texts]` (int64), and
        the states of hidden layer `layer` (0 = embeddings) if one is named."""
        lengths = torch.tensor([len(text) for text in ids], dtype=torch.long)
        if layer is not None and not 0 <= layer <= self.layers:
            raise InterlinguaError(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        if not self.packs():
            states, mask, early = self._padded(ids, layer)
            real = mask.bool()
            return states[real], lengths, None if early is None else early[real]
        packed = packing.pack(ids, self.model, self.model.device)
        output = packing.forward(self.model, packed, hidden_states=layer is not None)
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

    def cut(self, layer: int) -> None:
        """Keep the first `layer` layers, so that the last state is hidden state `layer` of the whole model.

        Raises InterlinguaError where that is not so (a norm after the last layer, e.g. ModernBERT).
        """
        if not 0 <= layer <= self.layers:
            raise InterlinguaError(f"layer {layer}: this model has hidden states 0 to {self.layers}.")
        if layer == self.layers:
            return
        stack = [m for m in self.model.modules() if isinstance(m, nn.ModuleList) and len(m) == self.layers]
        probe = self.subwords(["a", "b c"])
        training = self.model.training
        self.model.eval()
        with torch.no_grad():
            wanted = self.token_states(probe, layer)[2]
            if len(stack) == 1:
                del stack[0][layer:]
                self.model.config.num_hidden_layers = layer
                got = self.token_states(probe)[0]
        self.model.train(training)
        if len(stack) != 1 or wanted is None or not torch.allclose(got, wanted, atol=1e-4, rtol=1e-3):
            raise InterlinguaError(f"layer {layer}: a {self.model.config.model_type} model cannot be cut (its last "
                                   "state is not simply the last layer's). Leave `layer` out for this model.")

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and the tokenizer's files into `folder`."""
        with quiet():
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @classmethod
    def load(cls, folder: Path) -> Transformer:
        """Read a Hugging Face model folder in float32. Raises InterlinguaError for pickles, custom code, lacking or
        misfitting weights."""
        require_safetensors(folder)
        try:
            with quiet():
                config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
                model, report = AutoModel.from_pretrained(
                    folder, config=config, use_safetensors=True, trust_remote_code=False, dtype=torch.float32,
                    output_loading_info=True)
                tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise InterlinguaError(f"{folder}: cannot be loaded as a Hugging Face model ({_first_line(error)})."
                                   ) from error
        pooler = {name for name in report["missing_keys"] if name.startswith("pooler.")}
        missing = sorted(set(report["missing_keys"]) - pooler)
        if missing or report["mismatched_keys"]:
            names = [*missing, *(str(key[0]) for key in report["mismatched_keys"])]
            raise InterlinguaError(f"{folder}: {len(names)} weights are missing or of another shape than config.json "
                                   f"says ({', '.join(names[:3])}).")
        if pooler:
            # transformers fills a missing pooler at random; zeros keep saved files reproducible.
            for parameter in model.pooler.parameters():
                nn.init.zeros_(parameter)
        return cls(model, tokenizer)


def _inverse(order: list[int], device: torch.device) -> Tensor:
    inverse = torch.empty(len(order), dtype=torch.long)
    inverse[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
    return inverse.to(device)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
