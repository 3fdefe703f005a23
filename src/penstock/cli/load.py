"""`penstock load`: realistic generated telemetry over OTLP."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import human_bytes, json_option, print_json, print_table, say
from penstock.model.errors import InvalidArgument, PenstockError

if TYPE_CHECKING:
    from penstock.load.plan import Plan
    from penstock.load.tally import Tally

_SIGNALS = ("traces", "logs", "metrics")


def _parse_signals(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in _SIGNALS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(_SIGNALS)}")
    return names


def _parse_endpoint(_: click.Context, __: click.Parameter, text: str) -> str:
    from penstock.load.plan import Endpoint

    try:
        Endpoint.parse(text)
    except InvalidArgument as error:
        raise click.BadParameter(str(error)) from None
    return text


@click.command()
@click.option(
    "--endpoint",
    default="127.0.0.1:4317",
    show_default=True,
    callback=_parse_endpoint,
    help="HOST:PORT or grpcs://… for gRPC, http://… or https://… for HTTP.",
)
@click.option(
    "--signals",
    default=",".join(_SIGNALS),
    show_default=True,
    callback=_parse_signals,
    help="What to send of what the shop does.",
)
@click.option(
    "--spans-per-second",
    type=click.FloatRange(0),
    default=1000.0,
    show_default=True,
    help="Of all processes together; 0: as fast as the server answers.",
)
@click.option("--seconds", type=click.FloatRange(0, min_open=True), help="How long.  [default: 10]")
@click.option("--spans", type=click.IntRange(1), help="How many, instead of how long.")
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Sending processes; each is an instance of every service.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Connections of each process; one request at a time waits on each.",
)
@click.option(
    "--batch",
    type=click.IntRange(1, 50_000),
    help="Spans in a request.  [default: 500, or what half a second brings]",
)
@click.option("--seed", type=int, help="The same telemetry again, at other times.")
@click.option("--namespace", help="Where it is kept.  [default: the server's]")
@click.option("--token", help="The bearer token, where the server wants one.")
@json_option
def load(seconds: float | None, spans: int | None, as_json: bool, **options: Any) -> None:
    """Send realistic generated telemetry over OTLP.

    A shop of eight services: traces with errors and latency tails, what is logged in their spans,
    and metrics of every kind, once for a thousand spans. Answers that ask to try again are obeyed.
    Ends with what was sent and acknowledged; exits with 1 if anything was refused.

    Example: penstock load --spans-per-second 5000 --seconds 30
    """
    from penstock.load.fleet import run_load
    from penstock.load.plan import Plan

    if seconds is not None and spans is not None:
        raise click.UsageError("--seconds and --spans exclude each other")
    if seconds is None and spans is None:
        seconds = 10.0
    if options["seed"] is None:
        options["seed"] = random.getrandbits(32)
    if options["batch"] is None:
        each = options["spans_per_second"] / options["processes"]
        options["batch"] = max(1, min(500, int(each / 2))) if each else 500
    plan = Plan(seconds=seconds, spans=spans, **options)
    with _Progress(plan, hidden=as_json or not sys.stdout.isatty()) as progress:
        tally = run_load(plan, progress.show)
    if as_json:
        print_json({**tally.document(), "seed": plan.seed})
    else:
        _print(tally)
    if tally.refused:
        raise PenstockError(
            f"{tally.refused} of {tally.requests} requests were refused: {tally.first_refusal}"
        )


class _Progress:
    """A bar on a terminal."""

    def __init__(self, plan: Plan, *, hidden: bool) -> None:
        self._plan = plan
        self._bar = click.progressbar(length=1000, label="sending", hidden=hidden)

    def __enter__(self) -> _Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._bar.__exit__(*raised)

    def show(self, tally: Tally) -> None:
        """So far."""
        plan = self._plan
        done = tally.seconds / plan.seconds if plan.seconds else tally.spans / (plan.spans or 1)
        self._bar.update(max(0, int(min(done, 1.0) * 1000) - self._bar.pos))


def _print(tally: Tally) -> None:
    headers = ["requests", "acknowledged", "refused", "retried", "spans", "logs", "data points"]
    counts = [tally.requests, tally.acknowledged, tally.refused, tally.retried]
    print_table(headers, [[*counts, tally.spans, tally.logs, tally.data_points]])
    say(
        f"{human_bytes(tally.bytes)} in {tally.seconds:.1f} s: "
        f"{tally.rate(tally.spans):,.0f} spans/s, "
        f"{tally.rate(tally.acknowledged):,.0f} requests/s; "
        f"latency p50 {_ms(tally, 0.5)}, p99 {_ms(tally, 0.99)}"
    )


def _ms(tally: Tally, quantile: float) -> str:
    found = tally.latency_ms(quantile)
    return "none" if found is None else f"{found:.3g} ms"
