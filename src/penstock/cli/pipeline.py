"""`penstock pipeline`: what was stored becomes tables, by Spark."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import data_dir_option, json_option, say
from penstock.cli.comparing import Comparing
from penstock.cli.feeds import archive_feed, directory_feeds, installed, queue_feed
from penstock.cli.object_stores import queue_options, root_option
from penstock.cli.serve import config_option, read_config
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.pipeline.flush.ending import Ending
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.progress import BatchReport, Reports
    from penstock.queue.settings import QueueSettings
    from penstock.server.configuration.config import Config

_POLL_S = 0.2
_TURNS = 5
_NOT_STARTED = "Python worker failed to connect back"
"""Within ten seconds, says Spark; no setting of its changes that."""
_OWN_ERROR = re.compile(r"\bpenstock\.model\.errors\.\w+: (.+)$", re.MULTILINE)
_ERROR = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)

master_option = click.option(
    "--master", default="local[*]", show_default=True, help="The Spark master."
)
remote_option = click.option("--remote", help="Spark Connect instead, like sc://localhost:15002.")


@click.group()
def pipeline() -> None:
    """Take what was stored to the lake, and keep the lake in order.

    Example: penstock pipeline run --once --data-dir data
    """


@pipeline.command()
@click.option(
    *("--data-dir", "data_dirs"),
    type=click.Path(path_type=Path, file_okay=False),
    default=[Path("data")],
    multiple=True,
    envvar="PENSTOCK_DATA_DIR",
    show_envvar=True,
    help="The data directory; may be repeated.  [default: data]",
)
@config_option
@click.option(
    "--old-positions",
    type=click.Choice(["decide", "adopt", "leave"]),
    default="decide",
    show_default=True,
    help="Whether positions that 0.1 left in the lake, without a source, are this directory's.",
)
@click.option("--once", is_flag=True, help="Take what is sealed now, and end.")
@click.option(
    "--queue", metavar="URL", help="Consume the queue at s3://bucket/prefix instead of segments."
)
@queue_options
@master_option
@remote_option
@json_option
def run(
    data_dirs: tuple[Path, ...],
    file: Path | None,
    old_positions: str,
    once: bool,
    queue: str | None,
    settings: QueueSettings,
    master: str,
    remote: str | None,
    as_json: bool,
) -> None:
    """Take sealed segments to the lake, exactly once.

    Continuous, in batches of 25 MB or an hour (pipeline.flush_max_mb, flush_max_age_secs), or with
    --once what is there now. Says a line for each batch. It may be killed at any time; SIGTERM or
    Ctrl-C ends it after the batch under way, and a second one at once.

    Several data directories are taken side by side, with --once one after another; each goes to
    the lake that it is configured with, and hears of its own segments alone. Other pipelines may
    write to the same lake, as long as no directory has two.

    With --queue it is the one consumer of a queue, fences the one before, and needs the data
    directory for its notes alone.

    Example: penstock pipeline run --once --data-dir data
    """
    configs = [read_config(file, data_dir) for data_dir in dict.fromkeys(data_dirs)]
    if queue is not None:
        if len(configs) > 1:
            raise click.UsageError("--queue with more than one --data-dir")
        feeds = [queue_feed(configs[0], queue, settings)]
    else:
        feeds = directory_feeds(configs, old_positions)
    _run(configs, feeds, master=master, remote=remote, once=once, as_json=as_json)


@pipeline.command()
@data_dir_option
@config_option
@click.option("--archive", metavar="URL", help="The archive's objects: s3://bucket/prefix.")
@click.option(
    "--metadata",
    metavar="URL",
    help="Its descriptors: etcd://host:2379/prefix or file:///path.  "
    "[default: archive.metadata, else metadata.db in the data directory]",
)
@root_option
@click.option("--queue", metavar="URL", help="What waits in a queue, which goes on waiting.")
@queue_options
@master_option
@remote_option
@json_option
def replay(
    data_dir: Path,
    file: Path | None,
    archive: str | None,
    metadata: str | None,
    root: str,
    queue: str | None,
    settings: QueueSettings,
    master: str,
    remote: str | None,
    as_json: bool,
) -> None:
    """Make the tables again from the archive, or from what waits in a queue.

    Takes what the tables of the lake do not have, each message once, and may be killed and run
    again. For new tables name a new lake.warehouse; the pipeline goes on from where it ends.

    Example: penstock pipeline replay --queue s3://telemetry/buffer
    """
    config = read_config(file, data_dir)
    if (archive is None) == (queue is None):
        raise click.UsageError("one of --archive and --queue")
    if queue is not None:
        feed: Feed = queue_feed(config, queue, settings, consumes=False)
    else:
        feed = archive_feed(config, archive or "", metadata, root)
    _run([config], [feed], master=master, remote=remote, once=True, as_json=as_json)


def _run(
    configs: Sequence[Config],
    feeds: Sequence[Feed],
    *,
    master: str,
    remote: str | None,
    once: bool,
    as_json: bool,
) -> None:
    with _signals() as ending, contextlib.ExitStack() as stack:
        for config in configs:
            stack.enter_context(alone(config))
        session = stack.enter_context(spark(master, remote))
        works = list(zip(configs, feeds, strict=True))
        turns = [[work] for work in works] if once else [works]
        show = _printer(as_json, several=len(works) > 1)
        for turn in turns:
            if not ending.is_asked:
                take_turn(session, turn, show, ending, once=once)


class TooBusy(PenstockError):
    """Spark could not start a Python process of its own in time; nothing was lost by that."""


def take_turn(
    session: SparkSession,
    works: Sequence[tuple[Config, Feed]],
    show: Callable[[Flushing], None],
    ending: Ending,
    *,
    once: bool,
) -> None:
    """Streams of feeds to their lakes, until they end or somebody ends them.

    Where Spark could not start its processes they begin again: the lake's positions decide what is
    new, so that may be done at any time. TooBusy after some attempts.
    """
    for left in reversed(range(_TURNS)):
        try:
            with contextlib.ExitStack() as streams:
                running = [
                    streams.enter_context(flushing(session, *work, once=once, ending=ending))
                    for work in works
                ]
                _until_the_end(running, show, ending)
            return
        except TooBusy as error:
            if not left or ending.is_asked:
                raise
            say(f"penstock: {error}; again", err=True)


@contextlib.contextmanager
def alone(config: Config) -> Iterator[None]:
    """PenstockError where another pipeline of this machine works on the directory."""
    if not config.lake.enabled:
        raise InvalidSetting("lake.enabled is false: this configuration has no lake to write to")
    data_dir = config.data_dir.absolute()
    DataDirectory(data_dir).create()
    with installed():
        from penstock.pipeline.flush.stream import only_pipeline
    with only_pipeline(data_dir):
        yield


@dataclass(frozen=True)
class Flushing:
    """A stream that runs, and what it says of each batch that it has finished."""

    query: StreamingQuery
    reports: Reports
    data_dir: Path


@contextlib.contextmanager
def flushing(
    session: SparkSession,
    config: Config,
    feed: Feed,
    *,
    once: bool,
    ending: Ending | None = None,
) -> Iterator[Flushing]:
    """One feed to the lake that its directory is configured with; the caller is `alone`.

    Streams with one `ending` have their batches one after another.
    """
    from penstock.pipeline.flush.progress import Reports
    from penstock.pipeline.flush.stream import start_flush, stop_flush

    data_dir = config.data_dir.absolute()
    reports = Reports(data_dir)
    settings = config.lake_settings(), config.pipeline
    with _started():
        query = start_flush(session, data_dir, *settings, feed=feed, once=once, ending=ending)
    try:
        with Comparing(settings[0]):
            yield Flushing(query, reports, config.data_dir)
    finally:
        stop_flush(query)


@contextlib.contextmanager
def _started() -> Iterator[None]:
    """TooBusy where Spark could not start its Python processes to describe the stream."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if _NOT_STARTED in str(error):
            raise TooBusy(_reason(error)) from None
        raise


@contextlib.contextmanager
def spark(master: str, remote: str | None) -> Iterator[SparkSession]:
    """A session for the time of a command; one sentence where Spark is not installed.

    Whatever Spark raises in it, here or from its Connect server, is one sentence too.
    """
    with installed():
        from pyspark.errors import PySparkException

        from penstock.pipeline import spark_session, stop_session
    try:
        session = spark_session(master, remote=remote)
        try:
            yield session
        finally:
            stop_session(session)
    except PySparkException as error:
        raise PenstockError(_reason(error)) from error


def _printer(as_json: bool, *, several: bool) -> Callable[[Flushing], None]:
    """Says which directory it is where there are several."""

    def show(running: Flushing) -> None:
        for report in running.reports.new():
            if as_json:
                whose = {"data_dir": str(running.data_dir)} if several else {}
                say(json.dumps(asdict(report) | whose))
                continue
            say(f"{running.data_dir}: {report}" if several else str(report))
            _show_faults(report)

    def _show_faults(report: BatchReport) -> None:
        for fault in report.faults:
            say(f"penstock: not all of a segment is in the lake: {fault}", err=True)

    return show


def _until_the_end(
    running: Sequence[Flushing], show: Callable[[Flushing], None], ending: Ending
) -> None:
    """Shows batches until a stream ends, or somebody ends it; the others end with it, in order."""
    from penstock.pipeline.flush.stream import java_lives

    with java_lives():
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
            raise kind(where + _reason(error))


def _reason(error: Any) -> str:
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
def _signals() -> Iterator[Ending]:
    """Asked for by SIGTERM or Ctrl-C; the second one does what it does everywhere."""
    ending = Ending()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def ask(*_: object) -> None:
        ending.ask()
        restore()

    for number in before:
        signal.signal(number, ask)
    try:
        yield ending
    finally:
        restore()
