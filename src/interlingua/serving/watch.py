"""Look after the files of an index while it is served: compare them with their checksums, slowly, again and again."""

from __future__ import annotations

import logging
import threading

from interlingua.errors import BadInput, Busy, Damaged, NotFound, Stale
from interlingua.index.index import Index
from interlingua.index.local.store import LocalStore

logger = logging.getLogger(__name__)

DAY = 86_400.0


class Watch:
    """A thread that reads the files of an index in a folder at `pace` bytes a second, from the first to the last, and
    begins again after a day. What is damaged is said in one line; a cache is made again from the passages
    and searched from then on. `name` is that of the index in these lines, where there are several."""

    def __init__(self, index: Index, pace: float, name: str = "") -> None:
        self.index, self.pace = index, pace
        self._said = f"index '{name}': " if name else ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin, unless the pace is 0 or the index is looked after elsewhere (Milvus)."""
        if self.pace > 0 and isinstance(getattr(self.index, "store", None), LocalStore):
            self._thread.start()

    def close(self) -> None:
        """Begin nothing more. A file that is being read is not waited for."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except BadInput:
                return  # no index in a folder
            except (Busy, Damaged, NotFound, Stale, OSError) as error:
                logger.warning(f"{self._said}the index could not be checked ({' '.join(str(error).split())})")
            self._stop.wait(DAY)

    def look(self) -> None:
        """Check all files once."""
        derived = False
        for finding in LocalStore.check(str(self.index.path), self.pace, rows=False):
            if self._stop.is_set():
                return
            if finding.advice:
                derived |= finding.derived
                advice = "It is made again from the passages" if finding.derived else finding.advice
                logger.warning(f"{self._said}{finding.part} is damaged: {finding.said}. {advice}.")
        if derived:
            self.index.repair()
            logger.warning(f"{self._said}the cache of the index was made again.")
