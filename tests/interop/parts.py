"""Parts that others wrote: fetched by their own tools into `.interop/`, once, and kept.

A tool that is missing, and a part that cannot be reached, skip the test with their names. What is
there and does not work fails it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE: Final = Path(__file__).parent
KEPT: Final = HERE.parents[1] / ".interop"
PATIENCE_S: Final = 1200
_DEPENDENCIES: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_BUILDER: Final = "go.opentelemetry.io/collector/cmd/builder@v0.161.0"


def java_sender() -> list[str]:
    """The command that sends by OpenTelemetry's SDK for Java."""
    java, javac, maven = _tool("java"), _tool("javac"), _tool("mvn")

    def make(folder: Path) -> None:
        jars = [f"-DoutputDirectory={folder / 'lib'}", "-q", "-B", "-f", str(HERE / "java")]
        _fetch([maven, _DEPENDENCIES, *jars], "OpenTelemetry for Java (Maven Central)")
        source = str(HERE / "java" / "Send.java")
        _compile([javac, "--release", "17", "-cp", f"{folder}/lib/*", "-d", str(folder), source])

    folder = _made("java", make)
    return [java, "-cp", f"{folder}:{folder}/lib/*", "Send"]


def node_sender() -> list[str]:
    """The same for JavaScript."""
    node, npm = _tool("node"), _tool("npm")

    def make(folder: Path) -> None:
        for name in ("package.json", "package-lock.json", "send.mjs"):
            shutil.copy(HERE / "node" / name, folder)
        order = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        _fetch(order, "OpenTelemetry for JavaScript (npm registry)", folder)

    return [node, str(_made("node", make) / "send.mjs")]


def go_sender() -> list[str]:
    """The same for Go."""
    go = _tool("go")

    def make(folder: Path) -> None:
        source = HERE / "go"
        _fetch([go, "list", "-deps", "."], "OpenTelemetry for Go (Go module proxy)", source)
        _compile([go, "build", "-o", str(folder / "send"), "."], source)

    return [str(_made("go", make) / "send")]


def collector() -> str:
    """OpenTelemetry's Collector, built with little more than its OTLP receiver and exporters."""
    go = _tool("go")

    def make(folder: Path) -> None:
        shutil.copy(HERE / "collector" / "builder.yaml", folder)
        order = [go, "run", _BUILDER, "--config", "builder.yaml"]
        _fetch(order, "OpenTelemetry Collector (Go module proxy)", folder)

    return str(_made("collector", make) / "build" / "otelcol")


def _made(name: str, make: Callable[[Path], None]) -> Path:
    """The folder of a part; made where its sources have changed or it was never whole."""
    digest = hashlib.sha256()
    for path in sorted((HERE / name).iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    folder = KEPT / f"{name}-{digest.hexdigest()[:12]}"
    if not folder.exists():
        unfinished = KEPT / f"{folder.name}.{os.getpid()}"
        unfinished.mkdir(parents=True)
        try:
            make(unfinished)
            unfinished.rename(folder)  # whole: its tools have ended well
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _tool(name: str) -> str:
    path = shutil.which(name)
    return path if path is not None else _skip(f"{name} is not installed")


def _fetch(command: Sequence[str], what: str, folder: Path | None = None) -> None:
    try:
        ended = _run(command, folder)
    except subprocess.TimeoutExpired:
        _skip(f"{what}: not within {PATIENCE_S} s")
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).strip().splitlines() or ["no word of why"]
        # Tools name the error first and then where more is to be read.
        errors = [line for line in said if "error" in line.lower()] or said[-1:]
        _skip(f"{what}: {' '.join(errors[:3])}"[:300])


def _compile(command: Sequence[str], folder: Path | None = None) -> None:
    ended = _run(command, folder)
    assert ended.returncode == 0, ended.stderr


def _run(command: Sequence[str], folder: Path | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def _skip(reason: str) -> NoReturn:
    pytest.skip(reason)
