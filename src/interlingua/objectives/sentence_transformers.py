"""The losses inside sentence-transformers' own trainer, for people who already have a training script."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn


class SentenceTransformersLoss(nn.Module):
    """Give any loss on embeddings the interface of a sentence-transformers loss.

    The dataset's columns become the loss's first arguments, in order: two columns (source, target) for
    `semantic_contrastive` and `language_contrastive`, (question, passage) for `info_nce`.

        loss = SentenceTransformersLoss(model, semantic_contrastive, temperature=0.1)
        SentenceTransformerTrainer(model=model, train_dataset=pairs, loss=loss).train()
    """

    def __init__(self, model: nn.Module, loss: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.model, self.loss, self.options = model, loss, options

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """The loss of one batch. `labels` are ignored: contrastive losses make their own."""
        vectors = [self.model(features)["sentence_embedding"] for features in sentence_features]
        return self.loss(*vectors, **self.options)

    def get_config_dict(self) -> dict[str, Any]:
        """What sentence-transformers writes into the model card."""
        return {"loss": self.loss.__name__, **self.options}
