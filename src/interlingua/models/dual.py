"""Two encoders, one for queries and one for passages, or one for both."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

import torch
from torch import Tensor, nn

from interlingua.errors import BadInput
from interlingua.files import atomic_folder
from interlingua.models.encoder import Encoder, checked
from interlingua.models.folder import (
    ROUTER,
    ROUTES,
    TYPES,
    MaxLength,
    Similarity,
    check_similarity,
    model_folder,
    read_modules,
    read_routes,
    read_settings,
    stored_role,
)
from interlingua.models.language_maps import LanguageMaps, file_name
from interlingua.models.layout import Parts, read_parts, write_parts, write_root
from interlingua.models.protocols import EncodesByRole, Vectors
from interlingua.models.static.encoder import StaticSide
from interlingua.models.subwords import Text

logger = logging.getLogger(__name__)


def write(folder: Path, query: Parts, passage: Parts) -> None:
    """Write both encoders into `folder`. Prompts of a role are taken from that role's encoder.

    Raises BadInput when the two join title and text differently: a folder has one template.
    """
    if query.settings.template != passage.settings.template:
        raise BadInput("the two encoders join title and text by different templates; a saved model has one.")
    types: dict[str, str] = {}
    structure: dict[str, list[str]] = {}
    for route, parts in zip(ROUTES, (query, passage), strict=True):
        modules = write_parts(folder, parts, route)
        types |= {name: TYPES[kind] for kind, name in modules}
        structure[route] = [name for _, name in modules]
    config: dict[str, Any] = {
        "types": types,
        "structure": structure,
        "parameters": {"default_route": "document", "allow_empty_key": True, "route_mappings": {}},
    }
    (folder / ROUTER).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    prompts = {**passage.settings.prompts, "query": query.settings.prompts.get("query", "")}
    write_root(folder, [("Router", "")], replace(passage.settings, prompts=prompts))


def holds_two(folder: Path) -> bool:
    """Whether a model folder holds one encoder for queries and one for passages."""
    return (folder / "modules.json").is_file() and [kind for kind, _ in read_modules(folder)[:1]] == ["Router"]


def read(folder: Path, precision: str = "") -> tuple[Parts, Parts]:
    """The query and the passage encoder of a Router folder."""
    query, passage = (
        read_parts(where, modules, read_settings(folder), precision) for where, modules in read_routes(folder)
    )
    return query, passage


ROLES = ("query", "passage")


class _Tied:
    """`DualEncoder.tied(encoder)` makes a tied model; `model.tied` says whether a model is."""

    @overload
    def __get__(self, instance: None, owner: type[DualEncoder]) -> Callable[..., DualEncoder]: ...
    @overload
    def __get__(self, instance: DualEncoder, owner: type[DualEncoder]) -> bool: ...
    def __get__(self, instance: DualEncoder | None, owner: type[DualEncoder]) -> Callable[..., DualEncoder] | bool:
        if instance is None:
            return lambda encoder, *, similarity=None: owner(encoder, similarity=similarity)
        return instance.passage is instance.query


class DualEncoder(nn.Module, EncodesByRole):
    """`query` and `passage` encoders; without `passage` one encoder serves both roles (tied).

    `similarity` ("cosine" or "dot") is how a query and a passage are to be compared; None keeps the encoder's.
    Raises BadInput when the two give vectors of different sizes.
    """

    tied = _Tied()

    def __init__(self, query: Encoder, passage: Encoder | None = None, *, similarity: str | None = None) -> None:
        super().__init__()
        self.query = query
        if passage is not None and passage is not query:
            if passage.dim != query.dim:
                raise BadInput(
                    f"the query encoder gives vectors of size {query.dim}, the passage encoder of "
                    f"size {passage.dim}. Both must be equal."
                )
            self.own_passage: Encoder | None = passage
        else:
            # Not a second name for the same module: a state dict would hold every weight twice.
            self.own_passage = None
        self.similarity = query.settings.similarity if similarity is None else check_similarity(similarity)

    @classmethod
    def untied(cls, encoder: Encoder, *, similarity: str | None = None) -> DualEncoder:
        """Two encoders that start equal: `encoder` for queries and a copy of it for passages."""
        return cls(encoder, copy.deepcopy(encoder), similarity=similarity)

    @property
    def passage(self) -> Encoder:
        """The encoder of passages."""
        return self.query if self.own_passage is None else self.own_passage

    @property
    def similarity(self) -> Similarity:
        """ "cosine" or "dot"."""
        return self.query.settings.similarity

    @similarity.setter
    def similarity(self, similarity: Similarity) -> None:
        self.query.settings.similarity = self.passage.settings.similarity = similarity

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.query.dim

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.query.device

    @property
    def is_static(self) -> bool:
        """Whether one of the encoders is static (see `Encoder.is_static`)."""
        return self.query.is_static or self.passage.is_static

    def encoder(self, role: str) -> Encoder:
        """The encoder of a role: "query", or "passage" (also called "document")."""
        return self.query if stored_role(role) == "query" else self.passage

    def static_sides(self) -> tuple[StaticSide, StaticSide] | None:
        """As `Encoder.static_sides`."""
        query, passage = self.query.static_sides(), self.passage.static_sides()
        if query is None or passage is None:
            return None
        return query if self.passage is self.query else (query[0], passage[1])

    def embed(self, texts: Sequence[Text], role: str) -> Tensor:
        """Texts → float32 vectors `[texts, dim]`, in one forward pass, with gradient."""
        return self.encoder(role).embed(texts, role)

    def _encode(self, sentences: str | Sequence[Text], role: str, **options: Any) -> Vectors | Tensor | list[Tensor]:
        return self.encoder(role)._encode(sentences, role, **options)

    def save(self, path: str | Path) -> None:
        """Write a sentence-transformers folder: a plain one when tied, a Router with two routes when not."""
        if self.own_passage is None:
            self.query.save(path)
            return
        with atomic_folder(path, "modules.json") as folder:
            write(folder, self.query.parts(), self.passage.parts())
            for role in ROLES:
                if (maps := self.encoder(role).language_maps) is not None:
                    maps.save(folder / file_name(role))

    @classmethod
    def both(cls, name_or_path: str | Path, *, similarity: str | None = None, **options: Any) -> DualEncoder | None:
        """The two encoders of a folder that holds two, each with `options`, those of `Encoder.load`; None for any other
        model. Calibrations are left out: it is for training on."""
        folder = model_folder(name_or_path)
        if not holds_two(folder):
            return None
        return cls(*(Encoder.of(parts, **options) for parts in read(folder)), similarity=similarity)

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        precision: str | None = None,
        max_length: MaxLength = None,
        similarity: str | None = None,
        for_training: bool = False,
    ) -> DualEncoder:
        """Load what `save` wrote, or any folder or name that `Encoder.load` reads (then tied). `precision` is that of
        `Encoder.load`.

        `for_training` returns it in training mode (dropout on) and without its calibration, which is said.
        """
        folder = model_folder(name_or_path)
        if holds_two(folder):
            query, passage = (
                Encoder.of(parts, device=device, dtype=dtype, max_length=max_length)
                for parts in read(folder, checked(precision, device, dtype))
            )
            query.language_maps, passage.language_maps = (LanguageMaps.beside(folder, role) for role in ROLES)
            model = cls(query, passage, similarity=similarity)
        else:
            encoder = Encoder.load(folder, device=device, dtype=dtype, precision=precision, max_length=max_length)
            model = cls(encoder, similarity=similarity)
        if for_training and (model.query.language_maps or model.passage.language_maps):
            logger.warning(
                f"{folder}: its calibration is left out, as training changes the vectors. Calibrate the trained model."
            )
            model.query.language_maps = model.passage.language_maps = None
        return model.train(for_training)
