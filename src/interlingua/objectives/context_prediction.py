"""Contrastive context prediction with its memory bank and projection head (Wu et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from interlingua.data.records import ContextPair
from interlingua.errors import BadInput
from interlingua.models.folder import Similarity
from interlingua.models.late_interaction import Model
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Reduction,
    Role,
    Texts,
    by_language,
    check_paired,
    check_temperature,
    reduced,
    require,
    similarities,
)

SHARED = "all"
LANG_BYTES = 16
"""Bytes of a language's code as numbers; the longest has fewer."""


class MemoryBank(nn.Module):
    """First in, first out; `size` vectors for each language, which come from that language alone.

    With `shared` there is one queue for all languages (the paper's ablation: the model then tells languages apart,
    which is easier than telling neighbours from strangers). With `total` one queue keeps the vectors of all languages,
    and a language reads its own of them (the paper does not say whether its 32,768 are a language's or all). A queue is
    made when its language first comes: as many languages cost memory as are seen. Its tensors are buffers, so they are
    part of a checkpoint.

    Args:
        size: vectors a queue; 0 is no bank.
        dtype: what they are kept in; "float16" halves the memory (they are read back as float32).
        device: "same" as what is added, or "cpu" to keep a large bank off the accelerator.
    """

    def __init__(
        self,
        size: int,
        *,
        shared: bool = False,
        total: bool = False,
        dtype: Literal["float32", "float16"] = "float32",
        device: Literal["same", "cpu"] = "same",
    ) -> None:
        super().__init__()
        if size < 0:
            raise BadInput(f"a memory bank of {size} vectors: give a number of 0 or more.")
        if shared and total:
            raise BadInput("a memory bank is shared or in total, not both: with shared all languages read all of it.")
        self.size, self.shared, self.total, self.place = size, shared, total, device
        self.dtype = torch.float16 if dtype == "float16" else torch.float32

    def read(self, lang: str, device: torch.device) -> tuple[Tensor, Tensor]:
        """The content of a language's queue: vectors `[held, dim]` float32 without gradient, and the numbers of
        their documents `[held]`. In no particular order; empty slots are not part of it."""
        name = self._name(lang)
        if f"count_{name}" not in self._buffers:
            return torch.empty(0, 0, device=device), torch.empty(0, dtype=torch.long, device=device)
        count = min(int(self.get_buffer(f"count_{name}")), self.size)
        vectors, documents = self.get_buffer(f"vectors_{name}")[:count], self.get_buffer(f"documents_{name}")[:count]
        if self.total:
            codes = self.get_buffer(f"langs_{name}")[:count]
            own = (codes == _code(lang).to(codes.device)).all(1).to(vectors.device)
            vectors, documents = vectors[own], documents[own]
        return vectors.to(device, torch.float32), documents.to(device)

    def is_full(self, lang: str) -> bool:
        """Whether the queue of a language holds as many vectors as it can."""
        name = f"count_{self._name(lang)}"
        return not self.size or (name in self._buffers and int(self.get_buffer(name)) >= self.size)

    @torch.no_grad()
    def add(self, lang: str, vectors: Tensor, documents: Tensor) -> None:
        """Put `vectors` `[n, dim]` and their documents' numbers `[n]` in the place of the oldest ones."""
        if not self.size:
            return
        name = self._name(lang)
        if f"count_{name}" not in self._buffers:
            self._allocate(name, vectors.shape[1], vectors.device)
        # of more than fits, only the newest would stay
        vectors, documents = vectors[-self.size :], documents[-self.size :]
        count = self.get_buffer(f"count_{name}")
        slots = (int(count) + torch.arange(len(vectors))) % self.size
        for buffer, rows in (("vectors", vectors), ("documents", documents)):
            queue = self.get_buffer(f"{buffer}_{name}")
            queue[slots.to(queue.device)] = rows.to(queue.device, queue.dtype)
        if self.total:
            codes = self.get_buffer(f"langs_{name}")
            codes[slots.to(codes.device)] = _code(lang).to(codes.device)
        count += len(vectors)

    def make_room(self, saved: dict[str, torch.Size], device: torch.device) -> None:
        """Make the queues that a checkpoint holds (buffer name → shape), so that it can be put back."""
        for key, shape in saved.items():
            if key.startswith("vectors_") and key not in self._buffers and shape[0] == self.size:
                self._allocate(key.removeprefix("vectors_"), shape[1], device)

    def langs(self) -> Iterable[str]:
        """The languages with a queue ("all" when there is one for all)."""
        return [key.removeprefix("count_") for key in self._buffers if key.startswith("count_")]

    def _name(self, lang: str) -> str:
        return SHARED if self.shared or self.total else lang

    def _allocate(self, name: str, dim: int, device: torch.device) -> None:
        place = torch.device("cpu") if self.place == "cpu" else device
        self.register_buffer(f"vectors_{name}", torch.zeros(self.size, dim, dtype=self.dtype, device=place))
        self.register_buffer(f"documents_{name}", torch.full((self.size,), -1, dtype=torch.long, device=place))
        self.register_buffer(f"count_{name}", torch.zeros((), dtype=torch.long))
        if self.total:
            self.register_buffer(f"langs_{name}", torch.zeros(self.size, LANG_BYTES, dtype=torch.uint8))


def _code(lang: str) -> Tensor:
    code = lang.encode()
    if len(code) > LANG_BYTES:
        raise BadInput(f"'{lang}': a code of a language has at most {LANG_BYTES} bytes.")
    return torch.tensor(list(code.ljust(LANG_BYTES)), dtype=torch.uint8)


BatchNorm = Literal["asymmetric", "batch", "none"]


class ProjectionHead(nn.Module):
    """g = Linear → batch normalisation → ReLU → Linear, one set of weights for both branches.

    With "asymmetric" normalisation one branch is normalised by the statistics of its batch and the other by the
    running ones, and the two change places at every call: within the second branch no vector depends on the others, so
    statistics cannot give away which sentences came together. (The running ones hold a tenth of the first branch's
    batch, which has updated them just before.) "batch" uses
    batch statistics on both branches (what the paper compares with), "none" leaves the normalisation out.

    Running statistics start as those of the first batch and are a plain mean until there are 1/momentum of them, so
    that the second branch is normalised from the first step on. In `eval()` both branches use the running ones.

    Args:
        dim: size of the encoder's vectors, and of the hidden layer.
        projection: size of the projected vectors (the paper does not say; the same by default).
    """

    def __init__(
        self, dim: int, projection: int | None = None, norm: BatchNorm = "asymmetric", momentum: float = 0.1
    ) -> None:
        super().__init__()
        if projection is not None and projection < 1:
            raise BadInput(f"projection {projection}: give the size of the projected vectors, 1 or more.")
        self.norm, self.momentum = norm, momentum
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, projection or dim)
        if norm != "none":
            self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
            self.register_buffer("running_mean", torch.zeros(dim))
            self.register_buffer("running_var", torch.ones(dim))
            self.register_buffer("updates", torch.zeros((), dtype=torch.long))
            self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, centers: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Both `[windows, dim]` → both `[windows, projection]`. Raises BadInput for a single window, which
        has no batch statistics."""
        if self.norm != "none" and self.training and len(centers) < 2:
            raise BadInput(
                "batch normalisation needs at least 2 windows in a batch, got "
                f"{len(centers)}. Raise data.contexts.batch, or set batch_norm: none."
            )
        a, b = self.first(centers), self.first(targets)
        if self.norm == "batch" or not self.training:
            a, b = self._normalised(a, self.training), self._normalised(b, self.training)
        elif self.norm == "asymmetric":
            calls = cast(Tensor, self.calls)
            # the branch that updates the running statistics goes first: the other must see, and keep for its
            # gradient, one and the same version of them
            if int(calls) % 2 == 0:
                a = self._normalised(a, True)
                b = self._normalised(b, False)
            else:
                b = self._normalised(b, True)
                a = self._normalised(a, False)
            calls += 1
        return self.second(F.relu(a)), self.second(F.relu(b))

    def _normalised(self, x: Tensor, by_batch: bool) -> Tensor:
        if self.norm == "none":
            return x
        mean, variance, updates = (cast(Tensor, b) for b in (self.running_mean, self.running_var, self.updates))
        if by_batch:
            momentum = max(self.momentum, 1 / (int(updates) + 1))
            updates += 1
            return F.batch_norm(x, mean, variance, self.weight, self.bias, True, momentum)
        # copies: backward reads them, and a later training call changes the buffers in place
        return F.batch_norm(x, mean.clone(), variance.clone(), self.weight, self.bias, False)


SUSPICIOUS = 0.02
"""A loss under this share of chance: the model has found something easier than the task."""
LOWER, LEARNT = 0.9, 0.98
"""With a bank: a loss well under chance while the loss within the batch stays at it."""


def context_prediction(
    centers: Tensor,
    targets: Tensor,
    bank: Tensor | None = None,
    *,
    temperature: float = 0.1,
    mask: Tensor | None = None,
    similarity: Similarity = "cosine",
    reduction: Reduction = "mean",
) -> Tensor:
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
        A float32 scalar; with no windows, a zero that is connected to the graph. With the reduction "none" the
        anchors' losses, `[2 · windows]`, centres first.
    """
    check_paired(centers, targets, "context prediction")
    check_temperature(temperature)
    windows = len(centers)
    vectors = torch.cat([centers, targets])
    logits = similarities(vectors, vectors, similarity) / temperature
    itself = torch.eye(2 * windows, dtype=torch.bool, device=logits.device)
    logits = logits.masked_fill(itself, -torch.inf)
    if bank is not None and len(bank):
        past = similarities(vectors, bank.detach(), similarity) / temperature
        if mask is not None:
            if mask.shape not in ((len(bank),), (windows, len(bank))):
                raise BadInput(
                    f"mask must be [entries] = [{len(bank)}] or [windows, entries] = "
                    f"[{windows}, {len(bank)}], got {list(mask.shape)}."
                )
            past = past.masked_fill(mask.to(past.device).expand(windows, -1).repeat(2, 1), -torch.inf)
        logits = torch.cat([logits, past], dim=1)
    partner = torch.arange(2 * windows, device=logits.device).roll(windows)
    return reduced(F.cross_entropy(logits, partner, reduction="none") if windows else logits.sum(1), reduction)


class ContextPrediction(Objective):
    """`context_prediction` on windows of documents, with the projection head and the memory bank of CCP. Both are
    trained and kept with the objective; the saved model has neither. `dim`: size of the encoder's vectors."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of neighbours, and of the negatives."""

        temperature: float = Field(0.1, gt=0, description="τ; 0.1 is the best of the paper's Table 5")
        projection: int | None = Field(None, ge=1, description="size of the projected vectors; none: the encoder's")
        batch_norm: BatchNorm = Field("asymmetric", description="the paper's; `batch`: on both branches")
        l2: bool = Field(True, description="compare directions; without, dot products, which the paper found to fail")
        bank: int = Field(
            32_768, ge=0, description="vectors of earlier sentences kept as further negatives, for each language"
        )
        bank_shared: bool = Field(False, description="one queue for all languages, the paper's failing case")
        bank_total: bool = Field(
            False, description="`bank` counts the vectors of all languages together; a language's own are its negatives"
        )
        bank_holds: Literal["targets", "both"] = Field("targets", description="sentences of each window that are kept")
        bank_wait: bool = Field(
            False, description="no loss for a language until its queue is full, as InfoXLM does; its sentences are kept"
        )
        bank_dtype: Literal["float32", "float16"] = Field("float32", description="`float16` halves its memory")
        bank_device: Literal["same", "cpu"] = Field("same", description="`cpu` keeps it off the GPU")
        mask_documents: bool = Field(
            True, description="bank entries of a sentence's own document are no negatives for it"
        )
        mean_free: bool = Field(
            False,
            description="take the mean over the batch out of the gradient of the projected vectors: with a large bank "
            "a language otherwise drifts away as a block. Not in the paper",
        )
        role: Role = Field("passage", description="which encoder reads")

        @model_validator(mode="after")
        def _one_kind_of_bank(self) -> Self:
            if self.bank_shared and self.bank_total:
                raise ValueError("bank_shared and bank_total do not go together: with bank_shared all read all of it.")
            return self

    settings: Settings
    streams = ("contexts",)

    def __init__(self, *, dim: int, **options: Any) -> None:
        super().__init__(**options)
        settings = self.settings
        self.similarity: Similarity = "cosine" if settings.l2 else "dot"
        self.head = ProjectionHead(dim, settings.projection, settings.batch_norm)
        self.bank = MemoryBank(
            settings.bank,
            shared=settings.bank_shared,
            total=settings.bank_total,
            dtype=settings.bank_dtype,
            device=settings.bank_device,
        )
        self._seen: list[tuple[str, Tensor, Tensor]] = []

    @classmethod
    def for_model(cls, model: Model, seed: int, options: Mapping[str, Any]) -> Self:
        return cls(dim=model.dim, **options)

    def requests(self, batch: Batch) -> dict[str, Texts]:
        pairs = require(batch["contexts"], ContextPair, self)
        langs = sorted({pair.lang for pair in pairs})
        if len(langs) > 1 and not self.bank.shared:
            raise BadInput(
                f"context prediction got one batch in {', '.join(langs)}: the model would tell "
                "languages apart, not sentences. Set data.contexts.one_language: true."
            )
        return {
            "centers": Texts(self.settings.role, [pair.center for pair in pairs]),
            "targets": Texts(self.settings.role, [pair.target for pair in pairs]),
        }

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["contexts"], ContextPair, self)
        if not pairs:
            return Loss((vectors["centers"].float() + vectors["targets"].float()).sum())
        centers, targets = self.head(vectors["centers"].float(), vectors["targets"].float())
        if self.settings.mean_free and centers.requires_grad:
            for side in (centers, targets):
                side.register_hook(lambda gradient: gradient - gradient.mean(0))
        documents = torch.tensor([pair.document for pair in pairs], device=centers.device)
        lang = pairs[0].lang
        bank, bank_documents = self.bank.read(lang, centers.device)
        mask = bank_documents[None, :] == documents[:, None] if self.settings.mask_documents else None
        options: dict[str, Any] = {"temperature": self.settings.temperature, "similarity": self.similarity}
        rows = context_prediction(centers, targets, bank, mask=mask, reduction="none", **options)
        self._remember(lang, centers, targets, documents)
        value, chance = rows.mean(), math.log(2 * len(pairs) - 1 + len(bank))
        in_batch = value.detach()
        if len(bank):
            with torch.no_grad():
                in_batch = context_prediction(centers, targets, **options)
        if self.settings.bank_wait and not self.bank.is_full(lang):
            return Loss(0.0 * value, {"bank": float(len(bank)), "in_batch": in_batch.item()})
        warning = None
        if len(bank) and value.item() < LOWER * chance and in_batch.item() > LEARNT * math.log(2 * len(pairs) - 1):
            warning = (
                f"The context loss is {value.item():.2f} where chance is {chance:.2f}, but within the batch "
                f"alone it is {in_batch.item():.2f}, which is chance: sentences differ from the bank and not from "
                "one another. Use a smaller bank, a lower learning rate, or mean_free: true."
            )
        if value.item() < SUSPICIOUS * chance:
            warning = (
                f"The context loss is {value.item():.4f} where chance is {chance:.2f}: the model may have found "
                "something easier than the context, such as the language (shared bank, mixed batches), the "
                "batch statistics (batch_norm: batch) or repeated text. Look at bank_shared, batch_norm, "
                "data.contexts.one_language and at duplicates in the documents."
            )
        return Loss(
            value,
            {
                "ln_candidates": chance,
                "bank": float(len(bank)),
                "in_batch": in_batch.item(),
                **by_language([pair.lang for pair in pairs] * 2, rows),
            },
            warning,
        )

    def _remember(self, lang: str, centers: Tensor, targets: Tensor, documents: Tensor) -> None:
        vectors = torch.cat([targets, centers]) if self.settings.bank_holds == "both" else targets
        vectors = vectors.detach()
        if self.similarity == "cosine":
            vectors = F.normalize(vectors, dim=-1)
        self._seen.append((lang, vectors, documents.repeat(len(vectors) // max(1, len(documents)))))

    def exchange(self, rows: Callable[[Tensor], Tensor]) -> None:
        """Every process remembers what all have seen, and goes on with the mean of their running statistics."""
        seen = self._seen
        if seen:
            names = rows(torch.stack([_code(lang) for lang, _, _ in seen]))
            vectors, documents = rows(torch.stack([v for _, v, _ in seen])), rows(torch.stack([d for _, _, d in seen]))
            langs = [bytes(name.tolist()).decode().rstrip() for name in names]
            self._seen = list(zip(langs, vectors, documents, strict=True))
        if seen and self.head.norm != "none":
            for name in ("running_mean", "running_var"):
                buffer = self.head.get_buffer(name)
                buffer.copy_(rows(buffer[None]).mean(0))

    def after_step(self) -> None:
        """Put what the step has seen into the bank: no sentence was its own negative."""
        for lang, vectors, documents in self._seen:
            self.bank.add(lang, vectors, documents)
        self._seen.clear()

    def make_room(self, saved: Mapping[str, torch.Size], device: torch.device) -> None:
        """The bank's queues appear as languages come; make those of a checkpoint."""
        self.bank.make_room(
            {key.removeprefix("bank."): shape for key, shape in saved.items() if key.startswith("bank.")}, device
        )
