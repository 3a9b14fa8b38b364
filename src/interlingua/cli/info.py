"""`interlingua info`: what is in an index, what a model is, and what this installation has."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import opened
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.index import IndexInfo
    from interlingua.models.card import ModelInfo

NAMES = ("info",)
TOOLS = ("docs", "dev")
"""Extras of those who work on the package itself."""
SHOWN = 5
"""Sources of an index that are shown, those with the most passages first."""

DESCRIPTION = """\
Say what is in an index, what a model is, or what is installed here.

  interlingua info idx                passages per language, model, analyzers, version, sources, metadata
  interlingua info default --json     the bundled model, as a JSON object
  interlingua info --system           versions, optional packages, processor: to be put into a report of an error
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("info", help="what an index, a model or this installation is", description=DESCRIPTION)
    parser.add_argument("index", nargs="?", metavar="IDX|MODEL", help="an index, or a model folder or name")
    parser.add_argument("--system", action="store_true", help="what is installed, in place of an index or a model")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print it."""
    from interlingua.index.store import is_index

    if arguments.system == bool(arguments.index):
        raise BadInput("give an index, a model or --system. See `interlingua info --help`.")
    if arguments.system:
        info: dict[str, Any] = system()
        lines = system_lines(info)
    elif is_index(arguments.index):
        index = opened(arguments)
        index_info, fields = index.info(), index.fields
        sources = index.facets("source", most=len(index))["source"] if "source" in fields else {}
        info = vars(index_info) | {"sources": sources, "metadata": fields}
        lines = [*index_lines(index_info), *source_lines(sources, fields)]
    else:
        model = model_of(arguments.index)
        info, lines = vars(model), model_lines(model)
    if arguments.json:
        print(json.dumps(info, ensure_ascii=False))
        return
    width = max(len(name) for name, _ in lines) + 2
    print("\n".join(f"{name:<{width}}{text}" for name, text in lines))


def index_lines(info: IndexInfo) -> list[tuple[str, str]]:
    """A name and a text a line."""
    languages = sorted(info.languages.items(), key=lambda pair: (-pair[1], pair[0]))
    return [
        ("passages", f"{info.passages:,}"),
        *(("", f"{lang or '??':3} {count:>9,}  {info.analyzers.get(lang, '')}") for lang, count in languages),
        ("model", f"{info.model or 'not named'}: {info.dim} dimensions, {info.similarity}"),
        ("lexical", f"BM25, k1={info.k1}, b={info.b}"),
        (
            "version",
            f"{info.version}; cache of version {info.cache}, {info.newer:,} newer and {info.deleted:,} deleted rows "
            "beside it",
        ),
    ]


def source_lines(sources: Mapping[str, int], fields: Sequence[str]) -> list[tuple[str, str]]:
    """A name and a text a line: the first sources, and the keys of metadata."""
    first = [f"{name} {count:,}" for name, count in islice(sources.items(), SHOWN)]
    more = [f"… ({len(sources):,} in all, see --json)"][: len(sources) > SHOWN]
    return [("sources", ", ".join([*first, *more]) or "not known"), ("metadata", ", ".join(fields) or "none")]


def model_of(name: str) -> ModelInfo:
    """Describe a model. Raises NotFound for a name that is neither an index nor a model."""
    from interlingua.models.card import model_info
    from interlingua.models.folder import model_folder
    from interlingua.models.late_interaction import load_any

    folder = model_folder(name)
    return model_info(load_any(folder, device="cpu"), folder)


def model_lines(info: ModelInfo) -> list[tuple[str, str]]:
    """A name and a text a line."""
    lengths = {role: length or "any number of" for role, length in info.max_length.items()}
    return [
        ("model", info.folder),
        ("kind", f"{info.kind}, {'one encoder' if info.encoders == 1 else 'an encoder for each role'}"),
        ("dimensions", f"{info.dim}{' for each token' if info.similarity == 'maxsim' else ''}, {info.similarity}"),
        ("layers", str(info.layers or "none")),
        ("reads", ", ".join(f"{role}: {length} tokens" for role, length in lengths.items())),
        ("prompts", ", ".join(f"{role}: {prompt!r}" for role, prompt in info.prompts.items()) or "none"),
        ("calibrated", " ".join(info.languages) or "no"),
        ("licence", info.licence or "not named in the folder"),
    ]


def system() -> dict[str, Any]:
    """Versions, optional packages by the extra that brings them (None: not installed), processor and folders."""
    import os
    import platform
    import re
    from importlib.metadata import PackageNotFoundError, requires, version

    import numpy
    import torch

    from interlingua import __version__
    from interlingua.files import cache_folder
    from interlingua.models.inference.machine import units

    extras: dict[str, dict[str, str | None]] = {}
    for requirement in requires("interlingua") or ():
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra and name and extra[1] not in TOOLS:
            try:
                installed_version = version(name[0])
            except PackageNotFoundError:
                installed_version = None
            extras.setdefault(extra[1], {})[name[0]] = installed_version
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "interlingua": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "extras": extras,
        "processor": [
            torch.backends.cpu.get_cpu_capability(),
            *(
                name
                for name, backend in (("oneDNN", torch.backends.mkldnn), ("MKL", torch.backends.mkl))
                if backend.is_available()
            ),
        ],
        "units": units(),
        "chosen": kernels(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "devices": devices,
        "caches": str(cache_folder()),
    }


def kernels() -> dict[str, str]:
    """The kernels that compute on this processor, by the kind of work."""
    from interlingua.models.inference import int8 as encoding
    from interlingua.models.inference.precision import fastest
    from interlingua.retrieval.dense import int8 as search

    layers, scan = encoding.kernel(), search.kernel()
    bits = {True: "compiled, products of 8 bits", False: "compiled, products of 16 bits"}
    return {
        "precision auto": fastest(),
        "int8 encoding": "NumPy" if layers is None else bits[layers.BYTES],
        "exact search": "float32" if scan is None else f"{bits[scan.BYTES]}, then float32",
    }


def system_lines(info: dict[str, Any]) -> list[tuple[str, str]]:
    """A name and a text a line."""
    lines = [(name, info[name]) for name in ("interlingua", "python", "platform", "torch", "numpy")]
    for extra, packages in info["extras"].items():
        versions = ", ".join(f"{name} {version or 'missing'}" for name, version in packages.items())
        hint = "" if all(packages.values()) else f"  (pip install 'interlingua[{extra}]')"
        lines.append((f"[{extra}]", versions + hint))
    return [
        *lines,
        ("processor", f"{' '.join(info['processor'])}, {info['cores']} cores, {info['threads']} threads"),
        ("units", ", ".join(info["units"]) or "not known"),
        *(("" if number else "chosen", f"{work}: {way}") for number, (work, way) in enumerate(info["chosen"].items())),
        ("devices", ", ".join(info["devices"]) or "no CUDA device"),
        ("caches", info["caches"]),
    ]
