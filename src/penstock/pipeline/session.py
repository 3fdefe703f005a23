"""Gives out Spark sessions with the settings that Penstock relies on.

A process has one session at a time, which all its threads share, and one Java behind it.
"""

from __future__ import annotations

import socket
import threading
import warnings
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.model.errors import InvalidArgument, PenstockError
from penstock.pipeline import launch
from pyspark_penstock import DefaultSource

if TYPE_CHECKING:
    from collections.abc import Mapping

SQL_SETTINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
)
"""What results depend on; set in sessions of every kind."""

CONNECT_PORT: Final = 15002
_PATIENCE_S: Final = 10.0
_lock = threading.Lock()


def spark_session(
    master: str = "local[*]",
    *,
    remote: str | None = None,
    app: str = "penstock",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process on that master, or by Spark Connect on `remote` (`sc://…`).

    One that runs on the same master is given again, whoever started it, with `settings` as far as
    a running session takes them. InvalidArgument: one runs on another master; stop it first.
    PenstockError: there is no Java, or Spark does not start.
    """
    chosen = {**SQL_SETTINGS, **(settings or {})}
    with _lock:
        spark = _connected(remote, app, chosen) if remote else _local(master, app, chosen)
    spark.dataSource.register(DefaultSource)
    return spark


def stop_session(spark: SparkSession) -> None:
    """Ends the session, its Java and its files. Idempotent; streams that still run are cut off."""
    with _lock:
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            spark.stop()
        else:
            launch.stop(spark)


def _connected(remote: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    _check_reachable(remote)
    builder = SparkSession.builder.remote(remote).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        return _less_patient(builder.getOrCreate())
    except (ImportError, PySparkException) as error:
        raise PenstockError(f"{remote} cannot be used: {launch.sentence(error)}") from error


def _less_patient(spark: SparkSession) -> SparkSession:
    """A server that has ended is not looked for longer than about 12 s, instead of ten minutes."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]", UserWarning)  # it is raised as well
    spark.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=4_000)])
    return spark


def _check_reachable(remote: str) -> None:
    """Spark itself would go on trying for ten minutes, in silence."""
    address = urlsplit(remote)
    if address.scheme != "sc" or not address.hostname:
        raise InvalidArgument(f"{remote!r} is not an address of Spark Connect: sc://HOST:PORT")
    try:
        place = (address.hostname, address.port or CONNECT_PORT)
        socket.create_connection(place, _PATIENCE_S).close()
    except (OSError, ValueError) as error:
        raise PenstockError(f"{remote} cannot be used: {error}") from None


def _local(master: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    running = launch.running()
    if running is None:
        return launch.start(master, app, settings)
    other = running.sparkContext.master
    if other != master:
        raise InvalidArgument(f"a Spark session runs on {other}; stop it to start one on {master}")
    for key, value in settings.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
    return running
