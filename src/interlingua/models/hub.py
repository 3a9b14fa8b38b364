"""From a name to a model folder on this machine that is safe to read: safetensors only, no code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.files import restore

DEFAULT = "default"
PACKAGE = "package:"
_FILES = ["*.json", "*.safetensors", "*.txt", "*.model"]
_OTHER_RUNTIMES = ["onnx/*", "openvino/*"]


def model_folder(name_or_path: str | Path) -> Path:
    """The folder `name_or_path` is, or the local copy of the Hugging Face model of that name. "default" is the model
    that comes with this package, "package:name/folder" a folder inside another installed Python package, of which no
    code is run.

    Raises InterlinguaError when it is none of these.
    """
    if str(name_or_path) == DEFAULT:
        return Path(__file__).parent / "default"
    if str(name_or_path).startswith(PACKAGE):
        return _in_package(str(name_or_path).removeprefix(PACKAGE))
    path = restore(Path(name_or_path).expanduser())
    if path.is_dir():
        return path
    name = str(name_or_path)
    if path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InterlinguaError(f"{name}: is not a model folder. Give a folder or a Hugging Face model id.")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES, ignore_patterns=_OTHER_RUNTIMES))
    except Exception as error:  # the hub client raises a dozen kinds; all of them mean: not to be had
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InterlinguaError(f"{name}: no such folder here, and not to be had from the Hugging Face hub ({reason}). "
                               "Check the spelling, or download the model and give its folder.") from error


def lasting_name(name_or_path: str | Path) -> str:
    """What names a model from any folder: the whole path of a model folder, else the name as it is."""
    name = str(name_or_path)
    is_name = name in ("", DEFAULT) or name.startswith(PACKAGE)
    return name if is_name or not Path(name).exists() else str(Path(name).resolve())


def _in_package(name: str) -> Path:
    package, _, inside = name.partition("/")
    found = find_spec(package) if package.isidentifier() and package != "__main__" else None
    places = found.submodule_search_locations if found is not None else None
    if not places:
        raise InterlinguaError(f"{PACKAGE}{name}: the Python package '{package}' is not installed. Install it with "
                               f"`pip install {package.replace('_', '-')}`.")
    folder = Path(places[0], inside)
    if inside.startswith("/") or ".." in inside.split("/") or not folder.is_dir():
        raise InterlinguaError(f"{PACKAGE}{name}: the package has no folder '{inside}'.")
    return folder


def require_safetensors(folder: Path) -> None:
    """Raise InterlinguaError unless `folder` holds safetensors weights."""
    if any(folder.glob("*.safetensors")):
        return
    if any(folder.glob("pytorch_model*.bin")):
        raise InterlinguaError(
            f"{folder}: holds pytorch_model.bin only, a pickle that can run code and is never opened here. Convert it "
            "once on a machine where you trust the file, e.g. with https://huggingface.co/spaces/safetensors/convert, "
            "or `AutoModel.from_pretrained(folder).save_pretrained(folder)`.")
    raise InterlinguaError(f"{folder}: no weights here (looked for *.safetensors).")


def read_json(path: Path, default: Any = None) -> Any:
    """The JSON in `path`, or `default` where there is no such file. Raises InterlinguaError for broken JSON."""
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InterlinguaError(f"{path}: cannot be read as JSON ({error}).") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and load reports: we check what was loaded and say it ourselves."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
