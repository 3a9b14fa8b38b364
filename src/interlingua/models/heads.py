"""The masked-language-model head: trained beside an encoder, dropped when the encoder is saved."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn.functional import gelu, linear
from transformers import AutoModelForMaskedLM

from interlingua.errors import InterlinguaError
from interlingua.models.hub import model_folder, quiet, require_safetensors


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

    def load_from(self, name_or_path: str | Path) -> None:
        """Take the trained head of an XLM-R-like masked language model (a name or folder, safetensors).

        Raises InterlinguaError when it has no `lm_head` of these sizes; this head is then as it was.
        """
        folder = model_folder(name_or_path)
        require_safetensors(folder)
        try:
            with quiet():
                model, report = AutoModelForMaskedLM.from_pretrained(
                    folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32,
                    output_loading_info=True)
        except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
            raise InterlinguaError(f"{folder}: holds no masked language model.") from error
        head = getattr(model, "lm_head", None)
        missing = [name for name in report["missing_keys"] if name.startswith("lm_head.") and "decoder" not in name]
        if head is None or missing or not model.config.tie_word_embeddings:
            raise InterlinguaError(f"{folder}: holds no trained lm_head as XLM-R's.")
        state = {name: value for name, value in head.state_dict().items() if not name.startswith("decoder.")}
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        if shapes != {name: tuple(value.shape) for name, value in self.state_dict().items()}:
            raise InterlinguaError(f"{folder}: its lm_head has other sizes than this one.")
        self.load_state_dict(state)
        self.layer_norm.eps = head.layer_norm.eps
