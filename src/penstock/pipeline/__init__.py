"""What was stored becomes tables, by Spark. No other package of Penstock imports pyspark.

    spark_session     a session with the settings that the pipeline relies on
    stop_session      and its end
    PenstockSource    the format `penstock`: sealed segments, for Spark to read

Each name brings what it needs with its first use: Spark's workers import little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.session import spark_session as spark_session
    from penstock.pipeline.session import stop_session as stop_session
    from penstock.pipeline.source import PenstockSource as PenstockSource

_HOMES = {
    "PenstockSource": "source",
    "spark_session": "session",
    "stop_session": "session",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    """Imports a name with its first use."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"penstock.pipeline.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.pipeline' has no attribute {name!r}")
