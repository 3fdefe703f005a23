"""What a server is told, in one typed tree: its sections are the settings of its parts.

Nothing here reads anything: `loading` makes a `Config` of a file, the environment and flags, and a
child process is handed the one of its parent (`handed`, `taken`).
"""

from __future__ import annotations

import base64
import pickle
from dataclasses import dataclass, fields
from typing import Annotated, Literal, TypeAlias

from penstock.archive.settings import DEFAULT_ROOT, ArchiveSettings
from penstock.lake.settings import FOLDER, LakeSettings, TableSettings
from penstock.model.errors import InvalidSetting
from penstock.model.fields import (
    Count,
    Duration,
    FilePath,
    Flag,
    OrNone,
    Port,
    Properties,
    Settings,
    Size,
    Text,
    Texts,
    key_of,
    setting,
    setting_of,
    several,
    values,
)
from penstock.model.settings import (
    GIB,
    MIB,
    LogSettings,
    RetentionSettings,
    SegmentSettings,
    StoreSettings,
    WalSettings,
)
from penstock.pipeline.flush.settings import FlushSettings
from penstock.queue.settings import ProducerSettings
from penstock.storage import DEFAULT_DATA_DIR

Signals: TypeAlias = Annotated[
    tuple[str, ...], several(traces="traces", logs="logs", metrics="metrics")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen(Settings):
    """Where clients come in."""

    host: Text = setting("127.0.0.1", "The address to listen on.")
    grpc_port: Port = setting(4317, "OTLP/gRPC; 0 picks a free one.")
    http_port: Port = setting(4318, "OTLP/HTTP; 0 picks a free one.")
    flight_port: Port = setting(4319, "Arrow Flight; 0 picks a free one.")
    web_port: Port = setting(4320, "Health, metrics and API; 0 picks a free one.")
    hosts: Texts = setting(
        (), "Names that a server without tokens answers to, beside loopback's; * is any."
    )
    unprotected: Flag = setting(
        False, "Listens beyond loopback though neither tokens nor client certificates guard."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls(Settings):
    """Encryption, on every port."""

    certificate: OrNone[FilePath] = setting(None, "The server's certificate chain, PEM.")
    key: OrNone[FilePath] = setting(None, "Its private key, PEM.")
    client_ca: OrNone[FilePath] = setting(None, "Clients must show a certificate signed by these.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth(Settings):
    """Who may come in."""

    tokens_file: OrNone[FilePath] = setting(
        None, "One bearer token a line, its roles and their namespaces; read again on change."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Settings):
    """What one request, and all of them together, may take."""

    request: Size = setting(16 * MIB, "Bytes of a request as sent.")
    decompressed: Size = setting(
        64 * MIB, "Bytes of a request after decompression.", over=0, most=2 * GIB - 1
    )
    ratio: Count = setting(
        500, "Bytes that each byte of a compressed request may become, beyond 8MiB in all."
    )
    records: Count = setting(200_000, "Spans, log records or data points in a request.")
    parts: Count = setting(1_000_000, "Records, attributes and items of arrays in a request.")
    in_flight: Size = setting(256 * MIB, "Bytes of all requests being answered, for each worker.")
    memory: OrNone[Size] = setting(
        2 * GIB, "Memory of a worker, or of the Flight port, over which requests are put off."
    )
    disk_free: Size = setting(256 * MIB, "Free disk space under which requests are put off.")
    timeout: Duration = setting(30.0, "The longest that a request may take to arrive.")
    idle: Duration = setting(75.0, "How long a connection stays open without a request.")
    connections: Count = setting(
        4096, "Open connections, for each worker and port; fewer with few descriptors."
    )
    flight_calls: Count = setting(
        128, "Calls of the Flight port at once; one token may have half of them."
    )
    flight_write: Duration = setting(
        300.0, "The longest that a client of the Flight port may take nothing of an answer."
    )
    topics: Count = setting(10_000, "Topics of a worker; requests for more are put off.")
    subscribers: Count = setting(
        256, "Subscribers that one token may register, each partition counted."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe(Settings):
    """Retried requests are acknowledged without a second copy."""

    window: Duration = setting(600.0, "How long a request is remembered; 0: not at all.")
    signals: Signals = setting(("traces",), "Of which signals: traces, logs, metrics.")
    entries: Count = setting(16_000_000, "The most requests remembered for that, 32 bytes each.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wal(WalSettings):
    """The log that every request is in before it is answered."""

    max_log_bytes: OrNone[Size] = setting_of(StoreSettings, "max_log_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention(RetentionSettings):
    """What stays on disk."""

    size_cap: OrNone[Size] = setting(
        None, "Most bytes on disk, of all namespaces, topics and workers together."
    )
    size_cap_sharing: Literal["even", "fair"] = setting(
        "even", "fair: a busy topic may use what idle ones leave."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive(ArchiveSettings):
    """The log's continuation in object storage."""

    url: OrNone[Text] = setting(None, "s3://bucket/prefix; without it there is no archive.")
    objects: Properties = setting(
        {}, "Keys of the object store, beside those of its usual environment."
    )
    metadata: OrNone[Text] = setting(
        None, "etcd://host:2379/prefix; without it a file in the data directory."
    )
    root: Text = setting(DEFAULT_ROOT, "What all keys begin with.")
    lease: Duration = setting(15.0, "An owner that is silent so long may be succeeded.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer(ProducerSettings):
    """Receiving without a disk: into a queue on object storage."""

    url: OrNone[Text] = setting(None, "s3://bucket/prefix; with it nothing is kept on this disk.")
    objects: Properties = setting(
        {}, "Keys of the object store, beside those of its usual environment."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake(TableSettings):
    """The tables that the pipeline writes."""

    enabled: Flag = setting(
        True, "false: nothing is kept for a pipeline, and none may run on this configuration."
    )
    warehouse: OrNone[Text] = setting(
        None, "A folder, or an address like s3://…; without one DATA/lake. A lake cannot be moved."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Settings):
    """What a question to the API may take."""

    timeout: Duration = setting(30.0, "A query is stopped after this time.", over=0)
    rows: Count = setting(100_000, "The most rows of an answer.")
    bytes: Size = setting(64 * MIB, "The most bytes of an answer.")
    memory: Size = setting(GIB, "The most memory of a process that answers.", least=256 * MIB)
    processes: Count = setting(
        2, "Queries that run at once, each in a process of its own.", least=1
    )
    waiting: Count = setting(16, "Queries that wait for their turn; more are put off.")
    token_processes: Count = setting(
        1, "Queries of one token that run at once; others wait.", least=1
    )
    temporary: Size = setting(GIB, "Bytes that a query may put aside on disk.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging(Settings):
    """What the server says of itself, on stderr."""

    format: Literal["auto", "json", "pretty"] = setting(
        "auto", "How lines look; auto: pretty on a terminal."
    )
    level: Literal["debug", "info", "warning", "error"] = setting(
        "info", "The least important that is said."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(Settings):
    """Everything that a server is told."""

    data_dir: FilePath = setting(DEFAULT_DATA_DIR, "The data.")
    file_access: Literal["owner", "group", "all"] = setting(
        "owner", "Who may read what is written there."
    )
    workers: Count = setting(
        1, "Receiving processes; each has its partition of every topic.", least=1
    )
    stop_deadline: Duration = setting(30.0, "The longest that stopping may take.")
    answer_deadline: Duration = setting(
        30.0, "A process of the server that does not answer for so long is replaced."
    )
    listen: Listen = Listen()
    tls: Tls = Tls()
    auth: Auth = Auth()
    limits: Limits = Limits()
    dedupe: Dedupe = Dedupe()
    segment: SegmentSettings = SegmentSettings()
    wal: Wal = Wal()
    retention: Retention = Retention()
    archive: Archive = Archive()
    buffer: Buffer = Buffer()
    lake: Lake = Lake()
    pipeline: FlushSettings = FlushSettings()
    query: Query = Query()
    logging: Logging = Logging()

    def check(self) -> None:
        """What the store refuses is told in the names of the file."""
        try:
            self.store_settings()
        except InvalidSetting as error:
            text, *names = error.args
            raise InvalidSetting(text, *map(self._store_key, names)) from None

    def store_settings(self) -> StoreSettings:
        """Of each store; a request at its bound fits into the log, and into its queue."""
        return StoreSettings(
            log=LogSettings(
                **values(self.wal, WalSettings),
                max_message_bytes=self.limits.decompressed,
                queue_bytes=2 * self.limits.decompressed,
                retention_bytes=0,
            ),
            segment=self.segment,
            max_log_bytes=self.wal.max_log_bytes,
            **values(self.retention, RetentionSettings),
        )

    def lake_settings(self) -> LakeSettings:
        """Without a warehouse of its own the lake is in the data directory."""
        warehouse = self.lake.warehouse or str((self.data_dir / FOLDER).absolute())
        return LakeSettings(warehouse=warehouse, **values(self.lake, TableSettings))

    def _store_key(self, name: str) -> str:
        for section in ("segment", "wal", "retention"):
            for each in fields(getattr(self, section)):
                if each.name == name:
                    return f"{section}.{key_of(each)}"
        return name


def handed(config: Config) -> dict[str, str]:
    """For a child process, as JSON: made without looking at every setting again."""
    return {"config": base64.b64encode(pickle.dumps(config)).decode("ascii")}


def taken(document: dict[str, str]) -> Config:
    """What the parent handed; nobody else may write to a child's stdin."""
    config: Config = pickle.loads(base64.b64decode(document["config"]))  # noqa: S301 - the parent's
    return config
