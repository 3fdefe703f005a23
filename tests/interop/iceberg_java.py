"""Starts Iceberg's Java library: an environment with Spark 4.1, and jars, made once and kept.

Both are in `.interop/` of the checkout. What cannot be reached is said by name: then the tests
are skipped, with that as the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = ROOT / ".interop"
PYSPARK: Final = "pyspark==4.1.*"
JARS: Final = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
_PATIENCE_S: Final = 900


class Unreachable(Exception):
    """A part that others wrote is not to be had here; its name is the message."""


class EngineError(Exception):
    """What Iceberg's library says it could not do."""


def environment() -> Path:
    """The Python with Spark 4.1."""
    python = KEPT / "iceberg" / "bin" / "python"
    done = KEPT / "iceberg" / ".installed"
    if not done.exists():
        shutil.rmtree(python.parents[1], ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(python.parents[1])], "a virtual environment")
        _run([str(python), "-m", "pip", "install", "-q", PYSPARK], f"{PYSPARK} from PyPI")
        done.touch()
    return python


def jars() -> list[Path]:
    """Those of `JARS`, from Maven's own repository of this machine, or fetched by Maven."""
    found = [_jar(name) for name in JARS]
    if all(path.exists() for path in found):
        return found
    if shutil.which("mvn") is None:
        raise Unreachable("Maven (mvn), which brings Iceberg's Java library")
    for name, path in zip(JARS, found, strict=True):
        if not path.exists():
            order = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={name}"]
            _run([*order, "-Dtransitive=false"], f"{name} from Maven Central")
    return found


def _jar(name: str) -> Path:
    group, artifact, version = name.split(":")
    folder = Path.home() / ".m2" / "repository" / Path(*group.split(".")) / artifact / version
    return folder / f"{artifact}-{version}.jar"


def _run(command: Sequence[str], what: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or getattr(error, "stdout", None) or b""
        last = said.decode(errors="replace").strip().splitlines()[-1:]
        raise Unreachable(f"{what}: {' '.join(last) or type(error).__name__}") from None


class JavaEngine:
    """A process of `iceberg_engine.py` on one warehouse."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def sql(self, text: str) -> list[list[Any]]:
        """The rows of a statement."""
        rows: list[list[Any]] = self.order("sql", text=text)
        return rows

    def order(self, do: str, **arguments: Any) -> Any:
        """What it answers; EngineError where it could not."""
        assert self._process.stdin is not None
        print(json.dumps({"do": do, **arguments}), file=self._process.stdin, flush=True)
        answer = self.answer()
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["answer"]

    def answer(self) -> dict[str, Any]:
        """The next one."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"it ended with {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


@contextlib.contextmanager
def java_engine(warehouse: Path) -> Iterator[JavaEngine]:
    """Iceberg's library on the tables of a warehouse; Unreachable where it is not to be had."""
    found = jars()
    command = [str(environment()), str(Path(__file__).with_name("iceberg_engine.py"))]
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    with (KEPT / "iceberg-engine.log").open("w") as log:
        process = subprocess.Popen(
            [*command, str(warehouse), *map(str, found)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**variables, "SPARK_LOCAL_IP": "127.0.0.1"},
        )
        try:
            engine = JavaEngine(process)
            engine.answer()
            yield engine
        finally:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            process.stdout.close()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
