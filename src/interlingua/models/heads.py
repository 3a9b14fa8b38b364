"""The masked-language-model head: trained beside an encoder, dropped when the encoder is saved."""

from __future__ import annotations

from pathlib import Path

import torch
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

        Raises InterlinguaError when it has no `lm_head` of these sizes.
        """
        folder = model_folder(name_or_path)
        require_safetensors(folder)
        with quiet():
            model, report = AutoModelForMaskedLM.from_pretrained(
                folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True)
        head = getattr(model, "lm_head", None)
        missing = [name for name in report["missing_keys"] if name.startswith("lm_head.") and "decoder" not in name]
        if head is None or missing:
            raise InterlinguaError(f"{folder}: holds no trained lm_head as XLM-R's.")
        state = {name: value for name, value in head.state_dict().items() if not name.startswith("decoder.")}
        try:
            self.load_state_dict(state)
        except RuntimeError as error:
            raise InterlinguaError(f"{folder}: its lm_head has other sizes than this one ({error}).") from error
