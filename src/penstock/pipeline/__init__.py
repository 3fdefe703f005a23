"""What was stored becomes tables, by Spark. No other package of Penstock imports pyspark.

    spark_session     a session with the settings that the pipeline relies on
    stop_session      and its end
    PenstockSource    the format `penstock`: sealed segments, for Spark to read

Each name brings what it needs with its first use: Spark's workers import little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.pipeline.session import spark_session, stop_session
    from penstock.pipeline.source import PenstockSource
else:
    __getattr__ = lazily(
        __name__, {"session": "spark_session stop_session", "source": "PenstockSource"}
    )

__all__ = ["PenstockSource", "spark_session", "stop_session"]
