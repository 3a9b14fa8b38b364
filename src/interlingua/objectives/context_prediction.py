"""Contrastive context prediction: a sentence must pick its neighbour out of thousands of sentences of its language."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import ContextPair
from interlingua.errors import InterlinguaError
from interlingua.objectives.memory_bank import MemoryBank
from interlingua.objectives.objective import Batch, Loss, Objective, Texts, by_language, require
from interlingua.objectives.projection_head import BatchNorm, ProjectionHead
from interlingua.objectives.similarity import Similarity, check_paired, check_temperature, similarities

SUSPICIOUS = 0.02
"""A loss under this share of chance: the model has found something easier than the task."""
LOWER, LEARNT = 0.9, 0.98
"""With a bank: a loss well under chance while the loss within the batch stays at it."""


def context_prediction(centers: Tensor, targets: Tensor, bank: Tensor | None = None, *, temperature: float = 0.1,
                       mask: Tensor | None = None, similarity: Similarity = "cosine") -> Tensor:
    """L_CL of Wu et al. 2022 (CCP, §3.2), as the mean over the 2N anchors (the paper prints a sum) of

        −log  exp(cos(z_c, z_i) / τ) / Σ_{k ≠ c} exp(cos(z_c, z_k) / τ)

    c and i come from one window; k runs over the other 2N − 1 vectors of the batch and the M of the bank. Without a
    bank this is NT-Xent, as in `semantic_contrastive`.

    Args:
        centers, targets: `[windows, dim]`, projected; row i of both comes from the same window.
        bank: `[entries, dim]` earlier vectors, negatives only; no gradient goes into them.
        temperature: τ; 0.1 is the best of the paper's Table 5.
        mask: bool, True = leave this bank entry out (a false negative): `[entries]` for all anchors or
            `[windows, entries]` for the two anchors of each window.
        similarity: "cosine", or "dot" for the paper's ablation without L2 normalisation.

    Returns:
        A float32 scalar; with no windows, a zero that is connected to the graph.
    """
    rows = context_rows(centers, targets, bank, temperature=temperature, mask=mask, similarity=similarity)
    return rows.mean() if len(rows) else (centers.float() + targets.float()).sum()


def context_rows(centers: Tensor, targets: Tensor, bank: Tensor | None = None, *, temperature: float = 0.1,
                 mask: Tensor | None = None, similarity: Similarity = "cosine") -> Tensor:
    """`context_prediction` before its mean: `[2 · windows]`, centres first."""
    check_paired(centers, targets, "context prediction")
    check_temperature(temperature)
    windows = len(centers)
    both = torch.cat([centers, targets])
    logits = similarities(both, both, similarity) / temperature
    itself = torch.eye(2 * windows, dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(itself, -torch.inf)
    if bank is not None and len(bank):
        past = similarities(both, bank.detach(), similarity) / temperature
        if mask is not None:
            if mask.shape not in ((len(bank),), (windows, len(bank))):
                raise InterlinguaError(f"mask must be [entries] = [{len(bank)}] or [windows, entries] = "
                                       f"[{windows}, {len(bank)}], got {list(mask.shape)}.")
            past = past.masked_fill(mask.to(past.device).expand(windows, -1).repeat(2, 1), -torch.inf)
        logits = torch.cat([logits, past], dim=1)
    partner = torch.arange(2 * windows, device=logits.device).roll(windows)
    return F.cross_entropy(logits, partner, reduction="none") if windows else logits.sum(1)


class ContextPrediction(Objective):
    """`context_prediction` on windows of documents, with the projection head and the memory bank of CCP. Both are
    trained and kept with the objective; the saved model has neither.

    Args:
        dim: size of the encoder's vectors (the recipe fills it in).
        temperature: τ.
        projection: size of the projected vectors; that of the encoder's by default.
        batch_norm: "asymmetric" (the paper's), "batch" on both branches, or "none".
        l2: compare directions (cosine); without, dot products, which the paper found to fail.
        bank: entries for each language; 0 for none.
        bank_shared: one queue for all languages instead.
        bank_holds: what is kept of each window: the "targets", or "both" sentences.
        bank_wait: no loss for a language until its queue is full (InfoXLM does so); its sentences are kept meanwhile.
        bank_dtype, bank_device: see `MemoryBank`.
        mask_documents: leave bank entries from an anchor's own document out of its negatives (in the batch, where
            documents come without replacement, nothing is left out).
        mean_free: take the mean over the batch out of the gradient of the projected vectors. The bank's vectors push
            all of a batch the same way and nothing pushes back: a language drifts as a block (not in the paper).
        role: which encoder reads.
    """

    streams = ("contexts",)

    def __init__(self, *, dim: int, temperature: float = 0.1, projection: int | None = None,
                 batch_norm: BatchNorm = "asymmetric", l2: bool = True, bank: int = 32_768, bank_shared: bool = False,
                 bank_holds: Literal["targets", "both"] = "targets", bank_wait: bool = False,
                 bank_dtype: Literal["float32", "float16"] = "float32", bank_device: Literal["same", "cpu"] = "same",
                 mask_documents: bool = True, mean_free: bool = False,
                 role: Literal["query", "passage"] = "passage") -> None:
        super().__init__()
        check_temperature(temperature)
        self.temperature, self.role, self.mask_documents = temperature, role, mask_documents
        self.similarity: Similarity = "cosine" if l2 else "dot"
        self.bank_holds, self.bank_wait, self.mean_free = bank_holds, bank_wait, mean_free
        self.head = ProjectionHead(dim, projection, batch_norm)
        self.bank = MemoryBank(bank, shared=bank_shared, dtype=bank_dtype, device=bank_device)
        self._seen: list[tuple[str, Tensor, Tensor]] = []

    def requests(self, batch: Batch) -> dict[str, Texts]:
        pairs = require(batch["contexts"], ContextPair, self)
        langs = sorted({pair.lang for pair in pairs})
        if len(langs) > 1 and not self.bank.shared:
            raise InterlinguaError(f"context prediction got one batch in {', '.join(langs)}: the model would tell "
                                   "languages apart, not sentences. Set data.contexts.one_language: true.")
        return {"centers": Texts(self.role, [pair.center for pair in pairs]),
                "targets": Texts(self.role, [pair.target for pair in pairs])}

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["contexts"], ContextPair, self)
        centers, targets = self.head(vectors["centers"].float(), vectors["targets"].float())
        if self.mean_free and centers.requires_grad:
            for vectors_of in (centers, targets):
                vectors_of.register_hook(lambda gradient: gradient - gradient.mean(0))
        documents = torch.tensor([pair.document for pair in pairs], device=centers.device)
        lang = pairs[0].lang
        bank, held = self.bank.read(lang, centers.device)
        same = held[None, :] == documents[:, None] if self.mask_documents else None
        rows = context_rows(centers, targets, bank, temperature=self.temperature, mask=same,
                            similarity=self.similarity)
        self._remember(lang, centers, targets, documents)
        value, chance = rows.mean(), math.log(2 * len(pairs) - 1 + len(bank))
        alone = value.detach()
        if self.bank_wait and len(bank) < self.bank.size:
            return Loss(0.0 * value, {"bank": float(len(bank)), "in_batch": alone.item()})
        if len(bank):
            with torch.no_grad():
                alone = context_rows(centers, targets, temperature=self.temperature, similarity=self.similarity).mean()
        warning = None
        if len(bank) and value.item() < LOWER * chance and alone.item() > LEARNT * math.log(2 * len(pairs) - 1):
            warning = (f"The context loss is {value.item():.2f} where chance is {chance:.2f}, but within the batch "
                       f"alone it is {alone.item():.2f}, which is chance: sentences differ from the bank and not from "
                       "one another. Use a smaller bank, a lower learning rate, or mean_free: true.")
        if value.item() < SUSPICIOUS * chance:
            warning = (f"The context loss is {value.item():.4f} where chance is {chance:.2f}: the model may have found "
                       "something easier than the context, such as the language (shared bank, mixed batches), the "
                       "batch statistics (batch_norm: batch) or repeated text. Look at bank_shared, batch_norm, "
                       "data.contexts.one_language and at duplicates in the documents.")
        return Loss(value, {"ln_candidates": chance, "bank": float(len(bank)), "in_batch": alone.item(),
                            **by_language([pair.lang for pair in pairs] * 2, rows)}, warning)

    def _remember(self, lang: str, centers: Tensor, targets: Tensor, documents: Tensor) -> None:
        vectors = torch.cat([targets, centers]) if self.bank_holds == "both" else targets
        vectors = vectors.detach()
        if self.similarity == "cosine":
            vectors = F.normalize(vectors, dim=-1)
        self._seen.append((lang, vectors, documents.repeat(len(vectors) // max(1, len(documents)))))

    def after_step(self) -> None:
        """Put what the step has seen into the bank: no sentence was its own negative."""
        for lang, vectors, documents in self._seen:
            self.bank.add(lang, vectors, documents)
        self._seen.clear()

    def make_room(self, saved: Mapping[str, torch.Size], device: torch.device) -> None:
        """The bank's queues appear as languages come; make those of a checkpoint."""
        self.bank.make_room({key.removeprefix("bank."): shape for key, shape in saved.items()
                             if key.startswith("bank.")}, device)
