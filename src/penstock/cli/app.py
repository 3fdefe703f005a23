"""The command line: one file a command, and the rules that hold for all of them.

Exit code 0 is success, 2 a usage error, 1 anything else, with one clear sentence on stderr. With
`--json` stdout carries JSON and nothing else.
"""

from __future__ import annotations

import logging
import os
import sys

import click

from penstock import __version__
from penstock.cli.archive import archive
from penstock.cli.demo import demo
from penstock.cli.fsck import fsck
from penstock.cli.identity import identity
from penstock.cli.inspect import inspect
from penstock.cli.load import load
from penstock.cli.pipeline import pipeline
from penstock.cli.pipeline_jobs import compact, expire, rollup
from penstock.cli.query import query
from penstock.cli.queue import queue
from penstock.cli.serve import serve
from penstock.cli.status import status
from penstock.cli.subscribers import subscribers
from penstock.cli.tail import tail
from penstock.cli.tokens import tokens
from penstock.cli.topics import topics
from penstock.cli.up import up
from penstock.model.errors import PenstockError
from penstock.storage.access import masked

_INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """OpenTelemetry into the lakehouse without losing a span."""


for command in (
    archive,
    demo,
    fsck,
    identity,
    inspect,
    load,
    pipeline,
    query,
    queue,
    serve,
    status,
    subscribers,
    tail,
    tokens,
    topics,
    up,
):
    cli.add_command(command)
for command in (compact, rollup, expire):
    pipeline.add_command(command)


def main() -> None:
    """Runs the command line and exits with its code."""
    logging.basicConfig(level=logging.CRITICAL)  # what matters is in each command's answer
    try:
        # Not `cli.main`, which takes a closed pipe for a failure.
        with masked(), cli.make_context("penstock", sys.argv[1:]) as context:
            cli.invoke(context)
        sys.exit(_flushed(0))
    except click.exceptions.Exit as end:
        sys.exit(_flushed(end.exit_code))
    except (click.exceptions.Abort, KeyboardInterrupt):
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(_pipe_closed())
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (PenstockError, OSError) as error:
        from penstock.cli.common import say

        say(f"penstock: {_sentence(error)}", err=True)
        sys.exit(1)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return code


def _pipe_closed() -> int:
    """Whoever read our output has seen enough; say nothing more, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}"
    return " ".join(str(error).split())
