"""Drives streams of feeds to their lakes: shows each batch, begins again, ends them in order.

Files of the lake are compared beside the streams that write them, so that no question has to.
"""

from __future__ import annotations

import contextlib
import logging
import math
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import PySparkException

from penstock.model.errors import PenstockError
from penstock.pipeline.flush import stream
from penstock.pipeline.flush.progress import Reports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.lake.settings import LakeSettings
    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.ending import Ending
    from penstock.pipeline.flush.settings import FlushSettings

_LOG = logging.getLogger(__name__)
_POLL_S: Final = 0.2
_ATTEMPTS: Final = 5
_COMPARE_EVERY_S: Final = 5.0
_COMPARE_LAST_S: Final = 10.0
"""So long the end of a stream waits for the comparison of what it wrote last."""
_NOT_STARTED: Final = "Python worker failed to connect back"
"""Within ten seconds, says Spark; no setting of its changes that."""
_OWN_ERROR: Final = re.compile(r"\bpenstock\.model\.errors\.\w+: (.+)$", re.MULTILINE)
_ERROR: Final = re.compile(
    r"^(?:Caused by: )?(?:[\w$]+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE
)


class Work(NamedTuple):
    """A feed, and the lake that it goes to. The caller has `only_pipeline` of the directory."""

    data_dir: Path
    lake: LakeSettings
    settings: FlushSettings
    feed: Feed


@dataclass(frozen=True)
class Flushing:
    """A stream that runs, and what it says of each batch that it has finished."""

    query: StreamingQuery
    reports: Reports
    data_dir: Path


class TooBusy(PenstockError):
    """Spark could not start a Python process of its own in time; nothing was lost by that."""


def drive(
    session: SparkSession,
    works: Sequence[Work],
    show: Callable[[Flushing], None],
    ending: Ending,
    *,
    once: bool,
    say_again: Callable[[str], None] = lambda _: None,
) -> None:
    """All works side by side, one batch at a time, until they end or somebody ends them.

    Where Spark could not start its processes they begin again: the lake's positions decide what is
    new, so that may be done at any time. TooBusy after some attempts.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            with contextlib.ExitStack() as streams:
                running = [
                    streams.enter_context(_flushing(session, work, once=once, ending=ending))
                    for work in works
                ]
                _until_the_end(running, show, ending)
            return
        except TooBusy as error:
            if not left or ending.is_asked:
                raise
            say_again(f"{error}; again")


@contextlib.contextmanager
def _flushing(
    session: SparkSession, work: Work, *, once: bool, ending: Ending
) -> Iterator[Flushing]:
    root, lake, settings, feed = work
    root = root.absolute()
    reports = Reports(root)
    try:
        query = stream.start_flush(
            session, root, lake, settings, feed=feed, once=once, ending=ending
        )
    except PySparkException as error:
        if _NOT_STARTED in str(error):
            raise TooBusy(reason_of(error)) from None
        raise
    try:
        with _comparing(lake):
            yield Flushing(query, reports, work.data_dir)
    finally:
        stream.stop_flush(query)


def _until_the_end(
    running: Sequence[Flushing], show: Callable[[Flushing], None], ending: Ending
) -> None:
    """Shows batches until a stream ends, or somebody ends it; the others end with it, in order."""
    with stream.java_lives():
        while all(each.query.isActive for each in running) and not ending.is_asked:
            for each in running:
                show(each)
            time.sleep(_POLL_S)
        if ending.is_asked or len(running) > 1:
            ending.ask()
            ending.wait()
            for each in running:
                each.query.stop()
        for each in running:
            show(each)
        errors = [(each.data_dir, each.query.exception()) for each in running]
    for data_dir, error in errors:
        if error is not None:
            where = f"{data_dir}: " if len(running) > 1 else ""
            kind = TooBusy if _NOT_STARTED in str(error) else PenstockError
            raise kind(where + reason_of(error))


def reason_of(error: Any) -> str:
    """The sentence that was raised first, out of what Spark and Python have put around it."""
    told = str(error).partition("=== Streaming Query ===")[0]
    own = _OWN_ERROR.findall(told)
    if own:
        return str(own[-1])
    if "Python worker exited unexpectedly" in told:
        return "one of Spark's Python workers was killed or has crashed"
    if _NOT_STARTED in told:
        return "Spark's Python processes did not start within its ten seconds: a busy machine"
    others = _ERROR.findall(told)
    return str(others[-1]) if others else (told.strip().partition("\n")[0] or type(error).__name__)


@contextlib.contextmanager
def _comparing(lake: LakeSettings) -> Iterator[None]:
    """Compares in a thread of its own. Nothing depends on how far it comes."""
    ended, until_s = threading.Event(), [math.inf]
    is_over = lambda: time.monotonic() > until_s[0]  # noqa: E731 - it is handed on
    thread = threading.Thread(target=_compare, args=(lake, ended, is_over), name="comparing")
    thread.start()
    patience_s = 0.0
    try:
        yield
        # What came last is compared too, but nobody waits for long who ends the pipeline.
        patience_s = _COMPARE_LAST_S
    finally:
        until_s[0] = time.monotonic() + patience_s
        ended.set()
        thread.join()


def _compare(lake: LakeSettings, ended: threading.Event, is_over: Callable[[], bool]) -> None:
    try:
        import duckdb
        import pyarrow as pa

        from penstock.tiers.doubles import record_doubles
    except ImportError:
        return  # nobody asks questions here: they need the same parts
    is_last = False
    while not is_last:
        is_last = ended.wait(_COMPARE_EVERY_S)
        try:
            record_doubles(lake, is_over)
        except (PenstockError, duckdb.Error, pa.ArrowException, OSError) as error:
            # A file was replaced, or cannot be read: the next question says so.
            _LOG.info("files of the lake were not compared: %s", error)
