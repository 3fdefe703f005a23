"""`penstock pipeline`: what was stored becomes tables, by Spark."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import data_dir_option, existing_data_directory, json_option
from penstock.cli.feeds import archive_feed, installed, queue_feed
from penstock.cli.queue import manifest_option, prefix_option
from penstock.cli.serve import config_option, read_config
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.pipeline.flush.ending import Ending
from penstock.server.lakes import lake_settings
from penstock.storage import DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.progress import BatchReport, Reports
    from penstock.pipeline.flush.settings import FlushSettings
    from penstock.server.config import Config

_POLL_S = 0.2
_OWN_ERROR = re.compile(r"^penstock\.model\.errors\.\w+: (.+)$", re.MULTILINE)
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
@data_dir_option
@config_option
@click.option("--once", is_flag=True, help="Take what is sealed now, and end.")
@click.option(
    "--queue", metavar="URL", help="Consume the queue at s3://bucket/prefix instead of segments."
)
@manifest_option
@prefix_option
@master_option
@remote_option
@json_option
def run(
    data_dir: Path,
    file: Path | None,
    once: bool,
    queue: str | None,
    manifest_path: str,
    data_path_prefix: str,
    master: str,
    remote: str | None,
    as_json: bool,
) -> None:
    """Take sealed segments to the lake, exactly once.

    Continuous, in batches of 25 MB or an hour (pipeline.flush_max_mb, flush_max_age_secs), or with
    --once what is there now. Says a line for each batch. It may be killed at any time; SIGTERM or
    Ctrl-C ends it after the batch under way, and a second one at once.

    With --queue it is the one consumer of a queue, fences the one before, and needs the data
    directory for its notes alone.

    Example: penstock pipeline run --once --data-dir data
    """
    config, feed = read_config(file, data_dir), None
    if queue is not None:
        feed = queue_feed(config, queue, manifest_path, data_path_prefix)
    _run(config, feed, master=master, remote=remote, once=once, as_json=as_json)


@pipeline.command()
@data_dir_option
@config_option
@click.option("--archive", metavar="URL", help="The archive's objects: s3://bucket/prefix.")
@click.option(
    "--metadata", metavar="URL", help="Its descriptors: etcd://host:2379/prefix or file://"
)
@click.option(
    "--root", default="penstock", show_default=True, help="What the archive's keys begin with."
)
@click.option("--queue", metavar="URL", help="What waits in a queue, which goes on waiting.")
@manifest_option
@prefix_option
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
    manifest_path: str,
    data_path_prefix: str,
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
        feed: Feed = queue_feed(config, queue, manifest_path, data_path_prefix, consumes=False)
    else:
        feed = archive_feed(config, archive or "", metadata, root)
    _run(config, feed, master=master, remote=remote, once=True, as_json=as_json)


def _run(
    config: Config,
    feed: Feed | None,
    *,
    master: str,
    remote: str | None,
    once: bool,
    as_json: bool,
) -> None:
    with (
        _signals() as ending,
        flushing(
            config, master=master, remote=remote, once=once, ending=ending, feed=feed
        ) as running,
    ):
        _until_the_end(*running, _printer(as_json), ending)


@contextlib.contextmanager
def flushing(
    config: Config,
    *,
    master: str,
    remote: str | None = None,
    once: bool,
    ending: Ending | None = None,
    feed: Feed | None = None,
) -> Iterator[tuple[StreamingQuery, Reports]]:
    """The running stream, and what it says of each batch that it has finished."""
    data_dir = config.data_dir.absolute()
    if not config.lake.enabled:
        raise InvalidSetting("lake.enabled is false: this configuration has no lake to write to")
    if feed is None:
        existing_data_directory(data_dir)
    else:
        DataDirectory(data_dir).create()
    with installed():
        from penstock.pipeline.flush.progress import Reports
        from penstock.pipeline.flush.stream import only_pipeline, start_flush, stop_flush
    with only_pipeline(data_dir), spark(master, remote) as session:
        reports = Reports(data_dir)
        settings = lake_settings(config), flush_settings(config)
        query = start_flush(session, data_dir, *settings, feed=feed, once=once, ending=ending)
        try:
            yield query, reports
        finally:
            stop_flush(query)


@contextlib.contextmanager
def spark(master: str, remote: str | None) -> Iterator[SparkSession]:
    """A session for the time of a command; one sentence where Spark is not installed."""
    with installed():
        from penstock.pipeline import spark_session, stop_session
    session = spark_session(master, remote=remote)
    try:
        yield session
    finally:
        stop_session(session)


def flush_settings(config: Config) -> FlushSettings:
    """As the configuration says."""
    from penstock.pipeline.flush.settings import FlushSettings

    pipeline = config.pipeline
    return FlushSettings(
        flush_max_bytes=pipeline.flush_max_mb,
        flush_max_age_s=pipeline.flush_max_age_secs,
        batch_bytes=pipeline.batch_size,
        check_interval_s=pipeline.flush_interval,
        repeat_window_s=pipeline.repeat_window,
        repeat_rows=pipeline.repeat_rows,
    )


def _printer(as_json: bool) -> Callable[[BatchReport], None]:
    def show(report: BatchReport) -> None:
        click.echo(json.dumps(asdict(report)) if as_json else str(report))
        for fault in () if as_json else report.faults:
            click.echo(f"penstock: not all of a segment is in the lake: {fault}", err=True)

    return show


def _until_the_end(
    query: StreamingQuery,
    reports: Reports,
    show: Callable[[BatchReport], None],
    ending: Ending,
) -> None:
    """Shows batches until the stream ends, or somebody ends it."""
    from penstock.pipeline.flush.stream import java_lives

    with java_lives():
        while query.isActive and not ending.is_asked:
            for report in reports.new():
                show(report)
            time.sleep(_POLL_S)
        if ending.is_asked:
            ending.wait()
            query.stop()
        for report in reports.new():
            show(report)
        error = query.exception()
    if error is not None:
        raise PenstockError(_reason(error))


def _reason(error: Any) -> str:
    """The sentence that was raised first, out of what Spark and Python have put around it."""
    told = str(error).partition("=== Streaming Query ===")[0]
    own = _OWN_ERROR.findall(told)
    if own:
        return str(own[-1])
    if "Python worker exited unexpectedly" in told:
        return "one of Spark's Python workers was killed or has crashed"
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
