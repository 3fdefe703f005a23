"""The command line: one file a command, and the rules that hold for all of them.

Exit code 0 is success, 2 a usage error, 1 anything else, with one clear sentence on stderr. With
`--json` stdout carries JSON and nothing else.
"""

from __future__ import annotations

import logging
import os
import sys
from importlib import import_module
from typing import Final

import click

from penstock import __version__
from penstock.model.errors import PenstockError
from penstock.storage.access import masked

_INTERRUPTED = 130


_COMMANDS: Final = (
    *("archive", "demo", "fsck", "identity", "inspect", "load", "pipeline", "query", "queue"),
    *("serve", "status", "subscribers", "tail", "tokens", "topics", "up"),
)
_HOMES: Final = {"pipeline": "pipeline_jobs"}
"""Modules that are not called as their command: the jobs bring the group that they are in."""


class Commands(click.Group):
    """Each is imported when it is asked for: `penstock serve` does not wait for the others."""

    def list_commands(self, _: click.Context) -> list[str]:
        """All names."""
        return list(_COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        """None where there is no such command."""
        if name not in _COMMANDS:
            return None
        found: click.Command = getattr(
            import_module(f"penstock.cli.{_HOMES.get(name, name)}"), name
        )
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """OpenTelemetry into the lakehouse without losing a span."""


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
