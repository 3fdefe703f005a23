"""`penstock pipeline`: what was stored becomes tables, by Spark."""

from __future__ import annotations

import contextlib
import json
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.common import (
    data_dir_option,
    existing_data_directory,
    installed,
    json_option,
    say,
)
from penstock.cli.object_stores import queue_options, root_option
from penstock.cli.serve import config_option, read_config
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.pipeline.flush.ending import Ending
from penstock.storage import DEFAULT_DATA_DIR, DataDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from penstock.pipeline.feeds import Feed
    from penstock.pipeline.flush.drive import Flushing, Work
    from penstock.queue.settings import QueueSettings
    from penstock.server.configuration.config import Config

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
    default=[DEFAULT_DATA_DIR],
    multiple=True,
    envvar="PENSTOCK_DATA_DIR",
    show_envvar=True,
    help=f"The data directory; may be repeated.  [default: {DEFAULT_DATA_DIR}]",
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
        works = list(map(work_of, configs, feeds))
        turns = [[work] for work in works] if once else [works]
        show = _printer(as_json, several=len(works) > 1)
        for turn in turns:
            if not ending.is_asked:
                flush(session, turn, show, ending, once=once)


def work_of(config: Config, feed: Feed) -> Work:
    """A feed to the lake that its directory is configured with."""
    from penstock.pipeline.flush.drive import Work

    return Work(config.data_dir, config.lake_settings(), config.pipeline, feed)


def flush(
    session: SparkSession,
    works: Sequence[Work],
    show: Callable[[Flushing], None],
    ending: Ending,
    *,
    once: bool,
) -> None:
    """Until they end; says on stderr when they begin again."""
    from penstock.pipeline.flush.drive import drive

    def say_again(text: str) -> None:
        say(f"penstock: {text}", err=True)

    drive(session, works, show, ending, once=once, say_again=say_again)


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


@contextlib.contextmanager
def spark(master: str, remote: str | None) -> Iterator[SparkSession]:
    """A session for the time of a command; one sentence where Spark is not installed.

    Whatever Spark raises in it, here or from its Connect server, is one sentence too.
    """
    with installed():
        from pyspark.errors import PySparkException

        from penstock.pipeline import spark_session, stop_session
        from penstock.pipeline.flush.drive import reason_of
    try:
        session = spark_session(master, remote=remote)
        try:
            yield session
        finally:
            stop_session(session)
    except PySparkException as error:
        raise PenstockError(reason_of(error)) from error


def directory_feeds(configs: Sequence[Config], old_positions: str) -> list[Feed]:
    """The data directories. No two may be taken for one: each would fence the other."""
    with installed():
        from penstock.pipeline.feeds import DirectoryFeed
        from penstock.tiers.adoption import OldPositions
    known: dict[str, Path] = {}
    for config in configs:
        root = config.data_dir.absolute()
        identity = existing_data_directory(root).identity()
        if identity in known:
            raise PenstockError(
                f"{root} and {known[identity]} have one identity: one is a copy of the other; "
                f"`penstock identity --new --data-dir {root}` makes it a directory of its own"
            )
        known[identity] = root
    return [DirectoryFeed(root, OldPositions(old_positions)) for root in known.values()]


def queue_feed(config: Config, url: str, settings: QueueSettings, *, consumes: bool = True) -> Feed:
    """The queue at a URL; `buffer.objects` says how to reach it."""
    with installed("objects"):
        from penstock.pipeline.feeds import QueueFeed
    return QueueFeed(
        config.data_dir.absolute(),
        url,
        dict(config.buffer.objects),
        manifest_path=settings.manifest_path,
        data_path_prefix=settings.data_path_prefix,
        consumes=consumes,
    )


def archive_feed(config: Config, url: str, metadata: str | None, root: str) -> Feed:
    """The archive whose objects and descriptors are at these URLs."""
    with installed("objects"):
        from penstock.pipeline.feeds import ArchiveFeed
    own = config.archive.metadata or DataDirectory(config.data_dir).metadata_url
    keys = dict(config.archive.objects)
    return ArchiveFeed(config.data_dir.absolute(), url, metadata or own, keys, root=root)


def _printer(as_json: bool, *, several: bool) -> Callable[[Flushing], None]:
    """Says which directory it is where there are several."""

    def show(running: Flushing) -> None:
        for report in running.reports.new():
            if as_json:
                whose = {"data_dir": str(running.data_dir)} if several else {}
                say(json.dumps(asdict(report) | whose))
                continue
            say(f"{running.data_dir}: {report}" if several else str(report))
            for fault in report.faults:
                say(f"penstock: not all of a segment is in the lake: {fault}", err=True)

    return show


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
