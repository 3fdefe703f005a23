"""`penstock demo`: the whole path, with a kill in the middle, and a count of what was lost."""

from __future__ import annotations

import collections
import contextlib
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.common import json_option, print_json, print_table, say
from penstock.model.errors import PenstockError
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.cli.demo_parts import DemoClient, DemoServer, SpanId
    from penstock.pipeline.flush.drive import Flushing
    from penstock.server.configuration.config import Config
    from penstock.tiers.cut import Tier

_QUESTION: Final = """\
SELECT service_name, count(*) AS spans,
       count(*) FILTER (status_code = 'STATUS_CODE_ERROR') AS errors,
       round(quantile_cont(duration_ns, 0.99) / 1e6, 1) AS p99_ms
FROM spans GROUP BY ALL ORDER BY spans DESC"""


@dataclass(frozen=True)
class Summary:
    """What the tour found, in spans."""

    sent: int
    acknowledged: int
    cold: int
    warm: int
    hot: int
    twice: int
    lost: int

    @property
    def good(self) -> bool:
        """Whether Penstock kept its word."""
        return not self.lost and not self.twice and bool(self.cold and self.warm and self.hot)


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server running, and its data.")
@click.option("--seconds", type=click.FloatRange(0.2, 60), default=3.0, show_default=True)
@click.option("--rate", type=click.FloatRange(100, 50_000), default=2000.0, show_default=True)
@click.option("--master", default="local[2]", show_default=True, help="The Spark master.")
@json_option
def demo(keep: bool, seconds: float, rate: float, master: str, as_json: bool) -> None:
    """Show that nothing acknowledged is lost.

    A server receives generated telemetry and is killed with SIGKILL in the middle; Spark takes what
    was stored to the lake; more comes in; one question is answered over hot, warm and cold. Ends
    with a table of the spans that were sent, acknowledged, found in each tier and lost; exits with
    1 if any were.

    Example: penstock demo --seconds 5
    """
    with contextlib.ExitStack() as ending:
        if keep:
            scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        else:
            scratch = ending.enter_context(Scratch("demo")).path
        summary = _show(scratch, master, seconds, rate, keep=keep, as_json=as_json)
    if not summary.good:
        raise PenstockError("the demo lost spans, found some twice, or missed a tier")


def _show(
    scratch: Path, master: str, seconds: float, rate: float, *, keep: bool, as_json: bool
) -> Summary:
    tour = _Tour(scratch, master, quiet=as_json)
    try:
        summary = tour.run(seconds, rate)
        if as_json:
            print_json(asdict(summary) | ({"data_dir": str(tour.data_dir)} if keep else {}))
        elif keep:
            tour.stay()
    finally:
        tour.end()
    return summary


class _Tour:
    def __init__(self, scratch: Path, master: str, *, quiet: bool) -> None:
        from penstock.cli.demo_parts import DemoServer

        self.data_dir = scratch / "data"
        self._master = master
        self._quiet = quiet
        self._server: DemoServer = DemoServer(self.data_dir, scratch / "server.log")

    def run(self, seconds: float, rate: float) -> Summary:
        from penstock.cli.demo_parts import DemoClient

        self._step(1, "a shop of eight services sends traces, logs and metrics over OTLP/gRPC")
        self._server.start()
        client = DemoClient(self._server.ports["grpc"])
        with client.sending(rate):
            self._wait(seconds, "sending")
            self._kill()
            self._wait(seconds, "sending")
        self._say(f"   {_told(client)}")
        self._step(2, "Spark takes it to the lake")
        self._flush()
        self._step(3, "more comes in: some of it is sealed, the rest is in the log")
        with client.sending(rate):
            self._wait(seconds / 2, "sending")
        self._server.flush()
        client.send_once()
        self._say(f"   {_told(client)}")
        self._step(4, "one question over hot, warm and cold")
        self._ask()
        self._step(5, "every span that was acknowledged, looked for by its id")
        return self._look_for(client)

    def stay(self) -> None:
        """Until Ctrl-C."""
        web = self._server.ports["web"]
        say(f"\nIt goes on: gRPC on {self._server.ports['grpc']}, web on {web}. Try:")
        say(f"  penstock topics --data-dir {self.data_dir}")
        say(f'  penstock query --data-dir {self.data_dir} "{_QUESTION}"')
        say(f"  penstock load --endpoint 127.0.0.1:{self._server.ports['grpc']}")
        say("Ctrl-C ends the server; the data stay.")
        with contextlib.suppress(KeyboardInterrupt):
            self._server.wait()

    def end(self) -> None:
        """Leaves no process behind."""
        self._server.end()

    def _kill(self) -> None:
        self._server.kill()
        self._say("   kill -9 of all its processes")
        self._say(f"   started again: ready after {self._server.start():.1f} s")

    def _flush(self) -> None:
        from penstock.cli.pipeline import alone, directory_feeds, flush, spark, work_of
        from penstock.pipeline.flush.ending import Ending

        def show(running: Flushing) -> None:
            for report in running.reports.new():
                self._say(f"   {report}")

        self._server.flush()
        config = self._config()
        [feed] = directory_feeds([config], "decide")
        with alone(config), spark(self._master, None) as session:
            flush(session, [work_of(config, feed)], show, Ending(), once=True)

    def _ask(self) -> None:
        from penstock.query.engine import ask
        from penstock.query.results import cells

        started = time.perf_counter()
        answer = ask(self.data_dir, self._config().lake_settings(), _QUESTION)
        took_ms = (time.perf_counter() - started) * 1000
        if not self._quiet:
            print_table(answer.rows.column_names, cells(answer.rows))
        self._say(f"   answered in {took_ms:.0f} ms")

    def _look_for(self, client: DemoClient) -> Summary:
        from penstock.tiers.cut import Tier

        found = {tier: list(self._ids(tier)) for tier in Tier}
        times = collections.Counter(each for ids in found.values() for each in ids)
        summary = Summary(
            sent=len(client.sent),
            acknowledged=len(client.acknowledged),
            cold=len(found[Tier.COLD]),
            warm=len(found[Tier.WARM]),
            hot=len(found[Tier.HOT]),
            twice=sum(count > 1 for count in times.values()),
            lost=len(client.acknowledged - times.keys()),
        )
        if not self._quiet:
            print_table(list(asdict(summary)), [list(asdict(summary).values())])
        return summary

    def _ids(self, tier: Tier) -> Iterator[SpanId]:
        from penstock.query.engine import ask

        sql = "SELECT trace_id, span_id FROM spans"
        answer = ask(self.data_dir, self._config().lake_settings(), sql, tiers={tier})
        for row in answer.rows.to_pylist():
            yield bytes.fromhex(row["trace_id"]), bytes.fromhex(row["span_id"])

    def _config(self) -> Config:
        from penstock.cli.serve import read_config

        return read_config(None, self.data_dir)

    def _wait(self, seconds: float, label: str) -> None:
        """With a bar on a terminal, and none where output is piped."""
        hidden = self._quiet or not sys.stdout.isatty()
        steps = max(1, round(seconds * 10))
        with click.progressbar(length=steps, label=f"   {label}", hidden=hidden) as bar:
            for _ in range(steps):
                time.sleep(seconds / steps)
                bar.update(1)

    def _step(self, number: int, text: str) -> None:
        if not self._quiet:
            click.secho(f"\n{number}. {text}", bold=True)

    def _say(self, text: str) -> None:
        if not self._quiet:
            say(text)


def _told(client: DemoClient) -> str:
    records = ", ".join(f"{count:,} {signal.records}" for signal, count in client.records.items())
    calls = "1 call was" if client.retried == 1 else f"{client.retried} calls were"
    retried = f"; {calls} sent again" if client.retried else ""
    return f"acknowledged so far: {records}{retried}"
