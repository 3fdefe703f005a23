"""Compares files of the lake beside the pipeline that writes them, so that no question has to."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from types import TracebackType

    from penstock.lake.settings import LakeSettings

_LOG = logging.getLogger(__name__)
EVERY_S: Final = 5.0
LAST_S: Final = 10.0
"""So long the end of a pipeline waits for it."""


class Comparing:
    """A thread for the time of a block. Nothing depends on how far it comes."""

    def __init__(self, lake: LakeSettings) -> None:
        self._lake = lake
        self._ended = threading.Event()
        self._until_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="comparing")

    def __enter__(self) -> Comparing:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What came last is compared too, but nobody waits for long who ends the pipeline.
        self._until_s = time.monotonic() + (LAST_S if error is None else 0.0)
        self._ended.set()
        self._thread.join()

    def _is_over(self) -> bool:
        return self._until_s is not None and time.monotonic() > self._until_s

    def _run(self) -> None:
        try:
            from penstock.tiers.doubles import record_doubles
        except ImportError:
            return  # nobody asks questions here: they need the same parts
        import duckdb
        import pyarrow as pa

        is_last = False
        while not is_last:
            is_last = self._ended.wait(EVERY_S)
            try:
                record_doubles(self._lake, self._is_over)
            except (PenstockError, duckdb.Error, pa.ArrowException, OSError) as error:
                # A file was replaced, or cannot be read: the next question says so.
                _LOG.info("files of the lake were not compared: %s", error)
