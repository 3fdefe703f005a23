"""What a server is told: by file, environment and flags, in one typed tree.

Precedence: flags over environment over file over defaults. `PENSTOCK_LISTEN_GRPC_PORT` is
`listen.grpc_port`. An unknown key is an error that names the nearest one.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from penstock.model.errors import InvalidSetting
from penstock.model.settings import (
    GIB,
    MIB,
    Compression,
    Durability,
    LogSettings,
    SegmentSettings,
    SizePolicy,
    StoreSettings,
)
from penstock.server.configuration.kinds import (
    DURATION,
    FILE,
    FOLDER,
    HOURS,
    INTEGER,
    MEGABYTES,
    PORT,
    PROPERTIES,
    SECONDS,
    SIGNALS,
    SIZE,
    TEXT,
    TEXTS,
    TRUTH,
    Kind,
    one_of,
    optional,
)

ENVIRONMENT: Final = "PENSTOCK_"


def _key(default: Any, kind: Kind, text: str) -> Any:
    return field(default=default, metadata={"kind": kind, "text": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Where clients come in."""

    host: str = _key("127.0.0.1", TEXT, "the address to listen on")
    grpc_port: int = _key(4317, PORT, "OTLP/gRPC; 0 picks a free one")
    http_port: int = _key(4318, PORT, "OTLP/HTTP; 0 picks a free one")
    flight_port: int = _key(4319, PORT, "Arrow Flight; 0 picks a free one")
    web_port: int = _key(4320, PORT, "health, metrics and API; 0 picks a free one")
    hosts: tuple[str, ...] = _key(
        (), TEXTS, "names that a server without tokens answers to, beside loopback's; * is any"
    )
    unprotected: bool = _key(
        False, TRUTH, "listens beyond loopback though neither tokens nor client certificates guard"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Encryption, on every port."""

    certificate: Path | None = _key(None, FILE, "the server's certificate chain, PEM")
    key: Path | None = _key(None, FILE, "its private key, PEM")
    client_ca: Path | None = _key(None, FILE, "clients must show a certificate signed by these")


@dataclass(frozen=True, slots=True, kw_only=True)
class Auth:
    """Who may come in."""

    tokens_file: Path | None = _key(
        None, FILE, "one bearer token a line, its roles and their namespaces; read again on change"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one request, and all of them together, may take."""

    request: int = _key(16 * MIB, SIZE, "bytes of a request as sent")
    decompressed: int = _key(64 * MIB, SIZE, "bytes of a request after decompression")
    ratio: int = _key(
        500, INTEGER, "bytes that each byte of a compressed request may become, beyond 8MiB in all"
    )
    records: int = _key(200_000, INTEGER, "spans, log records or data points in a request")
    parts: int = _key(1_000_000, INTEGER, "records, attributes and items of arrays in a request")
    in_flight: int = _key(256 * MIB, SIZE, "bytes of all requests being answered, for each worker")
    memory: int | None = _key(
        2 * GIB,
        optional(SIZE),
        "memory of a worker, or of the Flight port, over which requests are put off",
    )
    disk_free: int = _key(256 * MIB, SIZE, "free disk space under which requests are put off")
    timeout: float = _key(30.0, DURATION, "the longest that a request may take to arrive")
    idle: float = _key(75.0, DURATION, "how long a connection stays open without a request")
    connections: int = _key(
        4096, INTEGER, "open connections, for each worker and port; fewer with few descriptors"
    )
    flight_calls: int = _key(
        128, INTEGER, "calls of the Flight port at once; one token may have half of them"
    )
    flight_write: float = _key(
        300.0,
        DURATION,
        "the longest that a client of the Flight port may take nothing of an answer",
    )
    topics: int = _key(10_000, INTEGER, "topics of a worker; requests for more are put off")
    subscribers: int = _key(
        256, INTEGER, "subscribers that one token may register, each partition counted"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dedupe:
    """Retried requests are acknowledged without a second copy."""

    window: float = _key(600.0, DURATION, "how long a request is remembered; 0: not at all")
    signals: tuple[str, ...] = _key(("traces",), SIGNALS, "traces, logs, metrics")
    entries: int = _key(16_000_000, INTEGER, "the most requests remembered for that, 32 bytes each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The columnar files."""

    target_size: int = _key(32 * MIB, SIZE, "a segment is sealed at this size")
    max_open_duration: float = _key(5.0, DURATION, "a segment is sealed at this age")
    compression: str = _key("none", one_of("none", "lz4", "zstd"), "of column buffers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wal:
    """The log that every request is in before it is answered."""

    durability: str = _key("sync", one_of("sync", "interval", "buffer"), "what an answer means")
    flush_interval: float = _key(0.025, DURATION, "with interval: the time between syncs")
    rotate_size: int = _key(64 * MIB, SIZE, "a log file is finished at this size")
    max_size: int = _key(
        4 * GIB, SIZE, "most bytes of one log that wait to be sealed; requests are put off beyond"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What stays on disk."""

    max_retain_after_ingestion_hours: float | None = _key(
        None,
        optional(HOURS),
        "segments older than this go, delivered or not",
    )
    size_cap: int | None = _key(
        None, optional(SIZE), "most bytes on disk, of all namespaces, topics and workers together"
    )
    size_cap_policy: str = _key(
        "backpressure",
        one_of("backpressure", "drop_oldest"),
        "what happens at the cap, and when the disk is full",
    )
    size_cap_sharing: str = _key(
        "even", one_of("even", "fair"), "fair: a busy topic may use what idle ones leave"
    )
    steady_state_headroom: int = _key(0, SIZE, "bytes of acknowledged segments kept all the same")


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """Receiving without a disk: into a queue on object storage."""

    url: str | None = _key(
        None, optional(TEXT), "s3://bucket/prefix; with it nothing is kept on this disk"
    )
    objects: tuple[tuple[str, str], ...] = _key(
        (), PROPERTIES, "keys of the object store, beside those of its usual environment"
    )
    data_path_prefix: str = _key("ingest", TEXT, "what the keys of batches begin with")
    manifest_path: str = _key("ingest/manifest", TEXT, "the key of the manifest")
    flush_interval: float = _key(0.1, DURATION, "a batch is stored so long after its first request")
    flush_size_bytes: int = _key(64 * MIB, SIZE, "or when it has so many bytes")
    max_buffered_inputs: int = _key(1000, INTEGER, "groups of requests on their way; more wait")
    max_buffered_bytes: int = _key(256 * MIB, SIZE, "bytes on their way; more are put off")
    batch_compression: str = _key("none", one_of("none", "zstd"), "how batches are packed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The log's continuation in object storage."""

    url: str | None = _key(
        None, optional(TEXT), "s3://bucket/prefix; without it there is no archive"
    )
    objects: tuple[tuple[str, str], ...] = _key(
        (), PROPERTIES, "keys of the object store, beside those of its usual environment"
    )
    metadata: str | None = _key(
        None, optional(TEXT), "etcd://host:2379/prefix; without it a file in the data directory"
    )
    root: str = _key("penstock", TEXT, "what all keys begin with")
    upload_size: int = _key(64 * MIB, SIZE, "an object is uploaded when so much waits")
    upload_interval: float = _key(60.0, DURATION, "or when a message has waited so long")
    compression: str = _key("none", one_of("none", "zstd"), "how objects are packed")
    retention: float | None = _key(None, optional(DURATION), "objects older than this go")
    retention_size: int | None = _key(None, optional(SIZE), "the oldest go beyond so many bytes")
    lease: float = _key(15.0, DURATION, "an owner that is silent so long may be succeeded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The tables that the pipeline writes."""

    enabled: bool = _key(
        True, TRUTH, "false: nothing is kept for a pipeline, and none may run on this configuration"
    )
    warehouse: str | None = _key(
        None, optional(TEXT), "a folder, or an address like s3://…; without one DATA/lake"
    )
    catalog: tuple[tuple[str, str], ...] = _key(
        (), PROPERTIES, "properties of an Iceberg catalog; without any SQLite in the warehouse"
    )
    namespace: str = _key("otel", TEXT, "the Iceberg namespace of the tables")
    promoted: tuple[str, ...] = _key(
        (),
        TEXTS,
        "attributes with columns of their own: [resource:]key[:string], or int, double, bool",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """When the pipeline takes sealed segments to the lake."""

    flush_max_mb: int = _key(25_000_000, MEGABYTES, "a batch begins when so much waits")
    flush_max_age_secs: float = _key(
        3600.0, SECONDS, "or when the oldest of it was sealed so long ago"
    )
    batch_size: int = _key(256 * MIB, SIZE, "the most that one batch takes")
    flush_interval: float = _key(1.0, DURATION, "how often it is looked whether a batch is due")
    repeat_window: float = _key(
        600.0, DURATION, "what is sent again within this time is not written again"
    )
    repeat_rows: int = _key(
        80_000_000, INTEGER, "the most rows of a table remembered for that, 18 bytes of disk each"
    )
    day_window: float = _key(
        1826 * 86400.0,
        DURATION,
        "rows whose time is further than this from their arrival share a file",
    )
    days_per_batch: int = _key(
        32, INTEGER, "the most other days that get files for rows of a namespace written together"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a question to the API may take."""

    timeout: float = _key(30.0, DURATION, "a query is stopped after this time")
    rows: int = _key(100_000, INTEGER, "the most rows of an answer")
    bytes: int = _key(64 * MIB, SIZE, "the most bytes of an answer")
    memory: int = _key(GIB, SIZE, "the most memory of a process that answers")
    processes: int = _key(2, INTEGER, "queries that run at once, each in a process of its own")
    waiting: int = _key(16, INTEGER, "queries that wait for their turn; more are put off")
    token_processes: int = _key(1, INTEGER, "queries of one token that run at once; others wait")
    temporary: int = _key(GIB, SIZE, "bytes that a query may put aside on disk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What the server says of itself, on stderr."""

    format: str = _key("auto", one_of("auto", "json", "pretty"), "auto: pretty on a terminal")
    level: str = _key("info", one_of("debug", "info", "warning", "error"), "the least important")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that a server is told."""

    data_dir: Path = _key(Path("data"), FOLDER, "the data")
    file_access: str = _key(
        "owner", one_of("owner", "group", "all"), "who may read what is written there"
    )
    workers: int = _key(1, INTEGER, "receiving processes; each has its partition of every topic")
    stop_deadline: float = _key(30.0, DURATION, "the longest that stopping may take")
    answer_deadline: float = _key(
        30.0, DURATION, "a process of the server that does not answer for so long is replaced"
    )
    listen: Listen = Listen()
    tls: Tls = Tls()
    auth: Auth = Auth()
    limits: Limits = Limits()
    dedupe: Dedupe = Dedupe()
    segment: Segment = Segment()
    wal: Wal = Wal()
    retention: Retention = Retention()
    archive: Archive = Archive()
    buffer: Buffer = Buffer()
    lake: Lake = Lake()
    pipeline: Pipeline = Pipeline()
    query: Query = Query()
    logging: Logging = Logging()

    def store_settings(self) -> StoreSettings:
        """The same for one store."""
        hours = self.retention.max_retain_after_ingestion_hours
        return StoreSettings(
            log=LogSettings(
                durability=Durability(self.wal.durability),
                sync_interval_s=self.wal.flush_interval,
                rotate_bytes=self.wal.rotate_size,
                max_message_bytes=self.limits.decompressed,
                queue_bytes=2 * self.limits.decompressed,
                retention_bytes=0,
            ),
            segment=SegmentSettings(
                target_bytes=self.segment.target_size,
                max_open_s=self.segment.max_open_duration,
                compression=Compression(self.segment.compression),
            ),
            max_log_bytes=self.wal.max_size,
            size_policy=SizePolicy(self.retention.size_cap_policy),
            max_age_s=None if hours is None else hours * 3600,
            headroom_bytes=self.retention.steady_state_headroom,
        )


_STORE_NAMES: Final = {
    "sync_interval_s": "wal.flush_interval",
    "rotate_bytes": "wal.rotate_size",
    "max_log_bytes": "wal.max_size",
    "max_message_bytes": "limits.decompressed",
    "target_bytes": "segment.target_size",
    "max_open_s": "segment.max_open_duration",
    "max_age_s": "retention.max_retain_after_ingestion_hours",
    "headroom_bytes": "retention.steady_state_headroom",
}
"""What the store's own bounds are called here."""
_STORE_NAME: Final = re.compile("|".join(rf"\b{name}\b" for name in _STORE_NAMES))

Tree: TypeAlias = "Mapping[str, object]"


def load(file: object, environment: Mapping[str, str], flags: Tree) -> Config:
    """The configuration; InvalidSetting names the key that is wrong."""
    tree: dict[str, Any] = {}
    _merge(tree, _mapping(file, "the configuration"))
    _merge(tree, _from_environment(environment))
    _merge(tree, flags)
    config: Config = _build(Config, tree, "")
    try:
        config.store_settings()
    except InvalidSetting as error:
        raise InvalidSetting(
            _STORE_NAME.sub(lambda name: _STORE_NAMES[name[0]], str(error))
        ) from None
    return config


def document(config: Config) -> dict[str, Any]:
    """The configuration as a file would say it."""
    return _document(config)


def _document(part: Any) -> dict[str, Any]:
    found = {}
    for each in dataclasses.fields(part):
        value = getattr(part, each.name)
        kind = each.metadata.get("kind")
        found[each.name] = _document(value) if kind is None else kind.show(value)
    return found


def _build(cls: Any, tree: Mapping[str, object], path: str) -> Any:
    known = {each.name: each for each in dataclasses.fields(cls)}
    for name in tree:
        if name not in known:
            raise InvalidSetting(_unknown(f"{path}{name}", str(name), known))
    values = {}
    for name, value in tree.items():
        kind = known[name].metadata.get("kind")
        if kind is None:
            section = _mapping(value, f"{path}{name}")
            values[name] = _build(type(known[name].default), section, f"{path}{name}.")
            continue
        try:
            values[name] = kind.read(value)
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}{name}: {error}") from None
    return cls(**values)


def _unknown(path: str, name: str, known: Mapping[str, object]) -> str:
    near = difflib.get_close_matches(name, known, 1, 0.5)
    hint = f"; did you mean {path.removesuffix(name)}{near[0]}?" if near else ""
    return f"unknown setting {path}{hint}"


def _mapping(value: object, what: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidSetting(f"{what} is no mapping of names to values")
    return value


def _merge(tree: dict[str, Any], over: Tree) -> None:
    for name, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), dict):
            _merge(tree[name], value)
        else:
            tree[name] = dict(value) if isinstance(value, Mapping) else value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    names = {name: path for path in _paths(Config) for name in [_variable(path)]}
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT):
            continue
        if name not in names:
            near = difflib.get_close_matches(name, names, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidSetting(f"unknown environment variable {name}{hint}")
        *sections, last = names[name]
        part = tree
        for section in sections:
            part = part.setdefault(section, {})
        part[last] = value
    return tree


def _variable(path: Sequence[str]) -> str:
    return ENVIRONMENT + "_".join(path).upper()


def _paths(cls: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for each in dataclasses.fields(cls):
        if "kind" in each.metadata:
            yield (*before, each.name)
        else:
            yield from _paths(type(each.default), (*before, each.name))
