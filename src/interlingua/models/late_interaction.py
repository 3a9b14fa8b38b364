"""ColBERT (Khattab & Zaharia 2020): one vector a token; a query matches a document token by token."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken
from torch import Tensor
from torch.nn.functional import normalize as unit_length
from torch.nn.utils.rnn import pad_sequence

from interlingua.errors import BadInput, NotFound
from interlingua.files import atomic_folder, read_object
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import (
    TokenVectors,
    compute_dtype,
    default_device,
    encode_windows,
    precision,
    transformer_tokens,
)
from interlingua.models.encoder import BackboneEncoder, Encoder
from interlingua.models.folder import (
    LATE_INTERACTION,
    Module,
    Settings,
    model_folder,
    read_modules,
    read_settings,
    stored_role,
    subfolder,
)
from interlingua.models.language_maps import Langs
from interlingua.models.layout import (
    Dense,
    read_dense,
    read_transformer,
    write_dense,
    write_json,
    write_normalize,
    write_root,
    write_transformer,
)
from interlingua.models.protocols import MultiVectorEncoder, as_texts
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.models.subwords import Text, punctuation

if TYPE_CHECKING:
    from interlingua.models.transformer import Transformer

logger = logging.getLogger(__name__)


MARKERS = {"query": "[Q]", "document": "[D]"}
"""They stand before a text, after the opening special token."""


def add_markers(backbone: Transformer) -> None:
    """Give the markers ids of their own after the vocabulary (XLM-R: 250002 and 250003), and random rows drawn like
    those that are there. A marker that the vocabulary has already keeps its id and row."""
    tokenizer, model = backbone.tokenizer, backbone.model
    vocabulary = set(tokenizer.get_vocab())
    tokenizer.add_tokens(
        [AddedToken(marker, normalized=False, special=True) for marker in MARKERS.values()], special_tokens=True
    )
    size = len(model.get_input_embeddings().weight)
    ids = [tokenizer.convert_tokens_to_ids(marker) for marker in MARKERS.values() if marker not in vocabulary]
    if len(tokenizer) > size:
        # not transformers' mean resizing: it takes the covariance of the whole table
        model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    table = model.get_input_embeddings().weight
    with torch.no_grad():
        rows = torch.randn(len(ids), table.shape[1]) * table[:size].float().std().cpu()
        table[ids] = rows.to(table)


_TOKENS = "token_embeddings"
_MODULES: list[Module] = [
    ("Transformer", ""),
    ("Dense", "1_Dense"),
    ("MultiVectorMask", "2_MultiVectorMask"),
    ("Normalize", "3_Normalize"),
]


@dataclass
class LateParts:
    """The parts of a late-interaction encoder. `skipped` are vocabulary tokens that a document does not show."""

    backbone: Transformer
    projection: Dense
    settings: Settings
    query_expansion: bool = True
    skipped: tuple[str, ...] = ()


def is_late(folder: Path) -> bool:
    """Whether `folder` holds a model with several vectors a text."""
    return (folder / "modules.json").is_file() and any(kind == "MultiVectorMask" for kind, _ in read_modules(folder))


def read(folder: Path) -> LateParts:
    """Load the modules. Raises BadInput for a folder of another shape, or options that would be lost."""
    modules = read_modules(folder)
    kinds = " ".join(kind for kind, _ in modules)
    if not re.fullmatch(r"Transformer Dense (MultiVectorMask Normalize|Normalize MultiVectorMask)", kinds):
        raise BadInput(
            f"{folder}: modules {kinds.replace(' ', ' → ') or 'none'} are not supported for late "
            f"interaction. Supported: {' → '.join(kind for kind, _ in _MODULES)}."
        )
    similarity = read_object(folder / "config_sentence_transformers.json").get("similarity_fn_name")
    if similarity not in (None, "maxsim"):
        raise BadInput(f"{folder}: similarity {similarity!r} is not supported for late interaction, only 'maxsim'.")
    paths = {kind: subfolder(folder, name) for kind, name in modules}
    settings = read_settings(folder)
    backbone = read_transformer(paths["Transformer"], settings)
    parts = LateParts(
        backbone,
        read_dense(paths["Dense"], _TOKENS),
        settings,
        _query_expansion(paths["Transformer"], backbone, settings),
        _skipped(paths["MultiVectorMask"]),
    )
    if read_object(paths["Normalize"] / "config.json").get("module_input_name") != _TOKENS:
        raise BadInput(f"{paths['Normalize']}: only a Normalize of {_TOKENS} is supported for late interaction.")
    return parts


def _query_expansion(folder: Path, backbone: Transformer, settings: Settings) -> bool:
    """Whether queries are filled up with mask tokens; the length they are filled up to becomes the query length."""
    where = folder / "sentence_bert_config.json"
    expansion = read_object(where, query_expansion=dict).get("query_expansion")
    if expansion is None:
        return False
    defaults = {"strategy": "fixed", "attend": False, "token": None}
    options = {key: expansion.get(key, default) for key, default in defaults.items()}
    if options["token"] == backbone.tokenizer.mask_token:
        options["token"] = None
    length = expansion.get("length")
    if options != defaults or type(length) is not int or length < 1:
        raise BadInput(
            f"{where}: query_expansion {expansion} is not supported. Supported: strategy 'fixed' "
            "with a length, filled up with the mask token, which other tokens do not attend to."
        )
    if backbone.positions is not None and length > backbone.positions:
        raise BadInput(
            f"{where}: query_expansion fills questions up to {length} tokens; the model has positions for "
            f"{backbone.positions}."
        )
    settings.role_lengths["query"] = length
    return True


def _skipped(folder: Path) -> tuple[str, ...]:
    where = folder / "config.json"
    config = read_object(where, skiplist_words=list)
    if config.get("keep_only_token_ids") or config.get("skiplist_tasks", ["document"]) != ["document"]:
        raise BadInput(f"{where}: only a skiplist of documents is supported, without keep_only_token_ids.")
    return tuple(config.get("skiplist_words") or ())


def write(folder: Path, parts: LateParts) -> None:
    """Write the modules into `folder`."""
    for _, name in _MODULES:
        (folder / name).mkdir(exist_ok=True)
    length = parts.settings.length("query")
    expansion = {"strategy": "fixed", "attend": False, "token": None, "length": length}
    write_transformer(
        folder, parts.backbone, parts.settings, query_expansion=expansion if parts.query_expansion else None
    )
    write_dense(folder / _MODULES[1][1], parts.projection, _TOKENS)
    write_json(
        folder / _MODULES[2][1] / "config.json",
        {"skiplist_words": list(parts.skipped), "skiplist_tasks": ["document"], "keep_only_token_ids": None},
    )
    write_normalize(folder / _MODULES[3][1], _TOKENS)
    write_root(folder, _MODULES, parts.settings, LATE_INTERACTION, "maxsim")


class LateInteractionEncoder(BackboneEncoder, MultiVectorEncoder):
    """Token states → a linear layer → unit length. One encoder serves queries and documents. Make one with
    `LateInteractionEncoder.load`, or from a single-vector encoder with `start`.

    Queries are filled up with mask tokens to the query length (`query_expansion`): these see the query's own tokens,
    which do not see them, and each gives a vector more to match with. `skipped` are vocabulary tokens (punctuation)
    that a document has no vectors of. A score is MaxSim: for each query vector its largest dot product with a vector
    of the document, summed.
    """

    similarity = "maxsim"
    tied = True
    backbone: Transformer

    def __init__(self, parts: LateParts, *, dtype: str | torch.dtype | None = None) -> None:
        super().__init__()
        self.backbone = parts.backbone
        self.projection = parts.projection
        self.settings = parts.settings
        self.dtype = dtype
        self._interact(parts.query_expansion, parts.skipped)
        self.eval()

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        for_training: bool = False,
    ) -> LateInteractionEncoder:
        """Load what `save` wrote, or a sentence-transformers MultiVectorEncoder of the same four modules.

        `dtype` is what `encode` computes in, as for `Encoder.load`; `for_training` turns dropout on.
        Raises BadInput for a single-vector model: its projection would be random, which only `start` makes.
        """
        folder = model_folder(name_or_path)
        if not is_late(folder):
            raise NotFound(
                f"{folder}: holds no late-interaction model. To begin one from a single-vector "
                "model, train with model.late_interaction, or use LateInteractionEncoder.start."
            )
        place = default_device(device)
        compute_dtype(place, dtype)
        return cls(read(folder), dtype=dtype).to(place).train(for_training)

    @classmethod
    def start(
        cls,
        encoder: Encoder,
        *,
        dim: int = 128,
        query_length: int = 32,
        document_length: int = 180,
        query_expansion: bool = True,
        skip_punctuation: bool = False,
        seed: int = 0,
    ) -> LateInteractionEncoder:
        """A late-interaction encoder to train, on the transformer of `encoder` (which is taken over, not copied).

        The projection to `dim` and the rows of the two markers are new, random from `seed`; prompts stay, after the
        marker. Pooling, Dense layers and a calibration are left out.
        Raises BadInput for a static encoder and for lengths that the model has no positions for.
        """
        if isinstance(encoder.backbone, StaticEmbedding):
            raise BadInput("a static backbone has no token states; late interaction needs a transformer.")
        if dim < 1:
            raise BadInput(f"late interaction: dim {dim} must be at least 1.")
        if len(encoder.dense) or encoder.language_maps is not None:
            logger.warning(
                "late interaction: the model's Dense layers and calibration are left out; they are for pooled vectors."
            )
        device = encoder.device
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            projection = Dense(encoder.hidden_size, dim, bias=False)
            add_markers(encoder.backbone)
        settings = Settings(template=encoder.settings.template)
        model = cls(LateParts(encoder.backbone, projection, settings, query_expansion=False), dtype=encoder.dtype)
        model.change(
            query_length=query_length,
            document_length=document_length,
            query_expansion=query_expansion,
            skip_punctuation=skip_punctuation,
            prompts={role: encoder.settings.prompt(role) for role in MARKERS},
        )
        return model.to(device)

    def change(
        self,
        *,
        query_length: int,
        document_length: int,
        query_expansion: bool,
        skip_punctuation: bool,
        prompts: Mapping[str, str] | None = None,
        template: str | None = None,
    ) -> None:
        """Set lengths in tokens (special tokens and marker counted) and what queries and documents show. `prompts` by
        role come after the marker; None leaves them, and the template, as they are.

        Raises BadInput for lengths that the model has no positions for, and for query expansion without a
        mask token.
        """
        limit = self.backbone.positions
        for name, length in (("query_length", query_length), ("document_length", document_length)):
            if length < 1 or (limit is not None and length > limit):
                raise BadInput(
                    f"late interaction: {name} {length} is not possible; this model has positions "
                    f"for {limit or 'any number of'} tokens."
                )
        marked_prompts = {role: f"{MARKERS[stored_role(role)]} {prompt}" for role, prompt in (prompts or {}).items()}
        self.settings.change(
            prompts=marked_prompts,
            template=template,
            limit=limit,
            max_length={"query": query_length, "document": document_length},
        )
        self._interact(query_expansion, punctuation(self.tokenizer) if skip_punctuation else ())

    def _interact(self, query_expansion: bool, skipped: tuple[str, ...]) -> None:
        if query_expansion and self.tokenizer.mask_token_id is None:
            raise BadInput(
                "late interaction: this model has no mask token to fill queries up with. Set query_expansion to false."
            )
        vocabulary = self.tokenizer.get_vocab() if skipped else {}
        unknown = [word for word in skipped if word not in vocabulary]
        if unknown:
            logger.warning(
                f"late interaction: {len(unknown)} tokens of the skiplist are not in the vocabulary and have no "
                f"effect: {' '.join(unknown[:10])}"
            )
        self.query_expansion, self.skipped = query_expansion, skipped
        self._skipped_ids = torch.tensor(
            sorted(vocabulary[word] for word in skipped if word in vocabulary), dtype=torch.long
        )

    @property
    def query(self) -> LateInteractionEncoder:
        """The encoder of queries: this one (a DualEncoder has one for each role)."""
        return self

    @property
    def passage(self) -> LateInteractionEncoder:
        """The encoder of passages: this one."""
        return self

    @property
    def dim(self) -> int:
        """Size of a token's vector."""
        return self.projection.linear.out_features

    def tokenize(self, texts: Sequence[Text], role: str, *, prompt: str | None = None) -> list[list[int]]:
        """Token ids of each text with its marker and special tokens, cut to the role's length at the end of the text;
        queries filled up with mask tokens."""
        length = self.settings.length(role)
        ids = self.backbone.subwords(
            texts, prompt=self.settings.prompt(role, None, prompt), template=self.settings.template, max_length=length
        )
        if length is None or not self._expands(role):
            return ids
        return [text + [self.tokenizer.mask_token_id] * (length - len(text)) for text in ids]

    def embed_ids(self, ids: Sequence[Sequence[int]], role: str) -> TokenVectors:
        """Encode ids that `tokenize` gave for this role: float32 unit vectors, in one forward pass, with gradient."""
        if not ids:
            return TokenVectors(torch.empty(0, self.dim, device=self.device), [])
        states = self._expanded_states(ids) if self._expands(role) else self.backbone.token_states(ids)[0]
        counts = [len(text) for text in ids]
        if stored_role(role) == "document" and len(self._skipped_ids):
            masks = [~torch.isin(torch.tensor(text), self._skipped_ids) for text in ids]
            states, counts = states[torch.cat(masks).to(states.device)], [int(mask.sum()) for mask in masks]
        return TokenVectors(unit_length(self.projection(states).float(), dim=-1), counts)

    def embed(self, texts: Sequence[Text], role: str) -> TokenVectors:
        """Texts → token vectors, in one forward pass, with gradient."""
        return self.embed_ids(self.tokenize(texts, role), role)

    def token_states(self, ids: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Token ids → last-layer states `[tokens of all texts, hidden]` before the projection, and lengths `[texts]`
        (masked-language modelling beside late interaction)."""
        states, lengths, _ = self.backbone.token_states(ids)
        return states, lengths

    def _expands(self, role: str) -> bool:
        return self.query_expansion and stored_role(role) == "query"

    def _expanded_states(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Last-layer states of queries whose mask tokens at the end are not attended to (ColBERT v1), laid end to end.

        Nothing is gained by packing here: filled up, all queries are equally long.
        """
        mask_id, device = self.tokenizer.mask_token_id, self.device
        real_lengths = []
        for text in ids:
            real = len(text)
            while real > 1 and text[real - 1] == mask_id:
                real -= 1
            real_lengths.append(real)
        lengths = torch.tensor([len(text) for text in ids], device=device)
        batch = pad_sequence(
            [torch.tensor(text, dtype=torch.long) for text in ids], batch_first=True, padding_value=self.backbone.pad_id
        ).to(device)
        places = torch.arange(batch.shape[1], device=device)
        mask = places < torch.tensor(real_lengths, device=device)[:, None]
        states: Tensor = self.backbone.model(input_ids=batch, attention_mask=mask.long()).last_hidden_state
        return states[places < lengths[:, None]]

    def encode(
        self,
        sentences: str | Sequence[Text],
        *,
        role: str,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        convert_to_tensor: bool = False,
        lang: Langs = None,
    ) -> TokenVectors:
        """Token vectors of the texts (a single string is one text) in the order given, without gradient: float32, on
        the CPU or, with `convert_to_tensor`, on the device. `lang` has no use here (there is no calibration).

        `batch_size` counts texts; without it batches hold a budget of tokens. All vectors are held in memory: give a
        large collection in pieces. Raises BadInput when a vector is not finite.
        """
        texts, _ = as_texts(sentences)
        place = self.device if convert_to_tensor else torch.device("cpu")

        def embed(ids: list[list[int]]) -> TokenVectors:
            batch = self.embed_ids(ids, role)
            return TokenVectors(batch.vectors.to(place), batch.counts)

        windows = encode_windows(
            self,
            texts,
            lambda batch: self.tokenize(batch, role),
            embed,
            precision=precision(self.device, self.dtype),
            tokens=transformer_tokens(self.device, self.packs),
            batch_size=batch_size,
            progress=bool(show_progress_bar),
        )
        return TokenVectors.join([TokenVectors(torch.empty(0, self.dim, device=place), []), *windows])

    def encode_query(self, sentences: str | Sequence[Text], **options: Any) -> TokenVectors:
        """`encode` in the role of queries."""
        return self.encode(sentences, role="query", **options)

    def encode_document(self, sentences: str | Sequence[Text], **options: Any) -> TokenVectors:
        """`encode` in the role of passages."""
        return self.encode(sentences, role="document", **options)

    def save(self, path: str | Path) -> None:
        """Write a folder that sentence-transformers' MultiVectorEncoder loads too, whole or not at all."""
        parts = LateParts(self.backbone, self.projection, self.settings, self.query_expansion, self.skipped)
        with atomic_folder(path, "modules.json") as folder:
            write(folder, parts)


Model = DualEncoder | LateInteractionEncoder
"""One vector a text, or one a token."""
RoleEncoder = Encoder | LateInteractionEncoder
"""The encoder of one role of a `Model`: token ids in, vectors with a gradient out."""


def embed_rows(encoder: RoleEncoder, ids: Sequence[Sequence[int]], role: str) -> TokenVectors:
    """Token ids of each text → float32 vectors, one a text or one a token, in one forward pass, with gradient."""
    if isinstance(encoder, LateInteractionEncoder):
        return encoder.embed_ids(ids, role)
    return TokenVectors.one_each(encoder.embed_ids(ids).float())


def load_any(
    name_or_path: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    precision: str | None = None,
    for_training: bool = False,
) -> Model:
    """A LateInteractionEncoder (float32 alone) if the folder holds one, else what `DualEncoder.load` reads."""
    if not is_late(folder := model_folder(name_or_path)):
        return DualEncoder.load(
            name_or_path, device=device, dtype=dtype, precision=precision, for_training=for_training
        )
    if precision not in (None, "float32", "auto"):
        raise BadInput(f"{name_or_path}: a late-interaction model computes in float32. Leave the precision out.")
    return LateInteractionEncoder.load(folder, device=device, dtype=dtype, for_training=for_training)
