"""Importing Penstock costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import penstock

HEAVY = {
    "click",
    "duckdb",
    "grpc",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "pyspark",
    "rich",
}


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has after the code."""
    code += "\nimport json, sys; print(json.dumps(list(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return {name.partition(".")[0] for name in json.loads(answer.stdout)}


@pytest.mark.parametrize("code", ["import penstock", "import penstock\nfrom penstock import Log"])
def test_import_leaves_heavy_modules_alone(code: str) -> None:
    """A program that only appends pays for neither Spark nor the command line."""
    assert not modules_after(code) & HEAVY


@pytest.mark.parametrize("name", ["Store", "Bundle"])
def test_store_brings_arrow_and_nothing_else_that_is_heavy(name: str) -> None:
    """No command line, no Prometheus, no Spark; pyarrow takes numpy along where there is one."""
    loaded = modules_after(f"from penstock import {name}") & HEAVY
    assert loaded - {"numpy"} == {"pyarrow"}


@pytest.mark.parametrize(
    "command", [["--help"], ["topics", "--help"], ["tail", "--help"], ["subscribers", "--help"]]
)
def test_command_that_looks_into_no_store_leaves_arrow_alone(command: list[str]) -> None:
    """Help comes at once."""
    code = f"import sys\nsys.argv = {['penstock', *command]}\nfrom penstock.cli import main\n"
    code += "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n"
    code += "    with contextlib.suppress(SystemExit):\n        main()"
    assert "pyarrow" not in modules_after(code)


def test_worker_is_handed_its_settings_and_does_not_read_them() -> None:
    """The supervisor has checked them; reading them again costs more than the rest of a start."""
    assert "pydantic" not in modules_after("import penstock.server.worker")


def test_package_alone_imports_none_of_its_parts() -> None:
    """Each public class is imported with its first use."""
    code = "import penstock, sys; assert not [m for m in sys.modules if m.startswith('penstock.')]"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", penstock.__all__)
def test_every_public_name_is_there(name: str) -> None:
    """What `__all__` promises can be had."""
    assert getattr(penstock, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    """A typing mistake is told apart from a missing extra."""
    with pytest.raises(AttributeError, match="Logg"):
        _ = penstock.Logg
