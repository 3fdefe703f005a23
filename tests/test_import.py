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
