"""One URL names a metadata store: `file:///path/metadata.db` or `etcd://host:2379/prefix`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.model.errors import InvalidArgument
from penstock.storage.metadata.embedded import EmbeddedMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.storage.metadata.model import Metadata

_OPTIONS = frozenset({"ca", "cert", "key", "user", "password", "timeout_s"})


def open_metadata(
    url: str, options: Mapping[str, str] | None = None, *, create: bool = True
) -> Metadata:
    """The store at `url`. Does not look whether it answers.

    For who only reads: without `create` no file is made where there is none.

    `file:///path` is a local file, for one machine. `etcd://host:port/prefix` is a cluster, by any
    of its members or a name that resolves to all; `etcd+tls://` the same with TLS. Options of etcd:
    `ca`, `cert`, `key` (files), `user`, `password`, `timeout_s`. InvalidArgument: a URL or an
    option that nothing can be made of, or the package `aetcd` is missing.
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and not options:
        return EmbeddedMetadata(Path(unquote(parts.path)), create=create)
    if parts.scheme in ("etcd", "etcd+tls") and parts.hostname:
        return _open_etcd(url, dict(options or {}))
    text = "use file:///path/metadata.db, without options, or etcd://host:2379/prefix"
    raise InvalidArgument(f"{url!r} names no metadata store; {text}")


def _open_etcd(url: str, options: dict[str, str]) -> Metadata:
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise InvalidArgument(f"{url}: unknown options {', '.join(unknown)}")
    try:
        from penstock.storage.metadata.etcd import EtcdMetadata
    except ImportError:
        text = "etcd needs the package aetcd: pip install 'penstock[etcd]'"
        raise InvalidArgument(text) from None
    parts = urlsplit(url)
    prefix = unquote(parts.path).strip("/")
    return EtcdMetadata(
        f"{parts.hostname}:{parts.port or 2379}",
        prefix=f"/{prefix}/" if prefix else "",
        credentials=_credentials(options) if parts.scheme == "etcd+tls" else None,
        user=options.get("user"),
        password=options.get("password"),
        timeout_s=float(options.get("timeout_s", 5.0)),
    )


def _credentials(options: dict[str, str]) -> Any:
    import grpc

    ca, key, cert = (_read(options.get(name)) for name in ("ca", "key", "cert"))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _read(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path is not None else None
