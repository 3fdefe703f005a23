"""Code that runs in the processes of a command beside its own: faults, and another time."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_AFTER_IMPORT = """
import importlib.abc, importlib.util, sys

class After(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        inner = spec.loader.exec_module

        def exec_module(module):
            inner(module)
            exec(CODE, {"module": module})

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, After())
"""


def hooked(folder: Path, module: str, code: str) -> dict[str, str]:
    """Variables with which every Python of a command runs `code` when it has imported `module`.

    Python itself looks for `sitecustomize`, and Spark's workers inherit the path. Nothing is
    imported by it: a worker that starts slowly is given up by Spark.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = f"MODULE = {module!r}\nCODE = {code!r}\n{_AFTER_IMPORT}"
    (folder / "sitecustomize.py").write_text(text)
    others = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), others]))}
