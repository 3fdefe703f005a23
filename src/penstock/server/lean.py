"""What a process of the server leaves out of its memory."""

from __future__ import annotations

import sys
from typing import Any


class _NoPandas:
    """Asked before all others for a module that nobody has imported yet."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the server does without pandas", name=name)


def leave_out_pandas() -> None:
    """Arrow and DuckDB import pandas at the first Python list that they see, if it is installed.

    No process of the server has use for it; it would take each 0.2 s and 40 MB. From now on it is
    as if it were not installed.
    """
    sys.meta_path.insert(0, _NoPandas())
