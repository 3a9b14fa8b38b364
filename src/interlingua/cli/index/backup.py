"""`interlingua backup` and `restore`: an index in one file, and back."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

from interlingua.cli.options import index_argument
from interlingua.errors import BadInput

logger = logging.getLogger(__name__)

NAMES = ("backup", "restore")

BACKUP = """\
Write an index in a folder to one file, while it is searched and changed: a tar archive of the version that was
acknowledged last, with its cache and its token vectors.

  interlingua backup idx idx.tar                     .tar.gz is compressed: smaller, slower
"""
RESTORE = """\
Put an index that `interlingua backup` wrote back into a folder. It is checked first; a damaged file changes nothing.

  interlingua restore idx.tar idx
"""


def add(verbs: Any) -> None:
    """Declare the verbs."""
    parser = verbs.add_parser("backup", help="write an index to one file", description=BACKUP)
    index_argument(parser)
    parser.add_argument("file", metavar="FILE", help="the archive to write: idx.tar or idx.tar.gz")
    parser.set_defaults(run=backup)
    parser = verbs.add_parser("restore", help="put a backup of an index back", description=RESTORE)
    parser.add_argument("file", metavar="FILE", help="an archive that `interlingua backup` wrote")
    parser.add_argument("index", metavar="IDX", help="the folder to put the index into")
    parser.add_argument("--overwrite", action="store_true", help="replace an index that is there")
    parser.set_defaults(run=restore)


def backup(arguments: argparse.Namespace) -> None:
    """Write the archive."""
    from interlingua.index.local.backup import backup

    _check_folder(arguments.index)
    count = backup(Path(arguments.index), Path(arguments.file))
    logger.info(f"{arguments.file}: {count:,} passages of {arguments.index}")


def restore(arguments: argparse.Namespace) -> None:
    """Put it back."""
    from interlingua.index.local.backup import restore

    _check_folder(arguments.index)
    count = restore(Path(arguments.file), Path(arguments.index), overwrite=arguments.overwrite)
    logger.info(f"{arguments.index}: {count:,} passages of {arguments.file}")


def _check_folder(place: str) -> None:
    from interlingua.index.store import is_address

    if is_address(place):
        raise BadInput(f"{place}: only an index in a folder has a backup of ours. Milvus has its own: milvus-backup.")
