"""One URL names an object store: `s3://`, `gs://`, `az://`, `file://` or `memory://`."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from penstock.model.errors import InvalidArgument
from penstock.storage.objects.folder import FolderObjects, remove_abandoned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.storage.objects.model import ObjectStore

_CLOUDS = {"s3": "S3Store", "s3a": "S3Store", "gs": "GCSStore", "az": "AzureStore"}
_MEMORIES: dict[str, Any] = {}
_MEMORIES_LOCK = threading.Lock()
_CLIENT_OPTIONS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    }
)
_PATIENT = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {
        "init_backoff": timedelta(seconds=0.1),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    },
}
_EXACT = {"max_retries": 0}


def open_objects(url: str, options: Mapping[str, str] | None = None) -> ObjectStore:
    """The store at `url`; keys are relative to the path in it. Does not look whether it answers.

    Credentials and endpoint come from the usual environment (`AWS_ENDPOINT_URL`, `AWS_ALLOW_HTTP`,
    `AWS_ACCESS_KEY_ID`, …) or from `options` of the same names. `memory://name` is one store for
    all of a process, `memory://` one for the caller alone. InvalidArgument: a URL or an option that
    nothing can be made of, or the package `obstore` is missing.
    """
    parts = urlsplit(url)
    if parts.query or parts.fragment:
        raise InvalidArgument(f"{url}: give options apart from the URL")
    if parts.scheme == "file":
        return _open_folder(url, options)
    if parts.scheme == "memory":
        return _open_memory(parts.netloc, unquote(parts.path), options)
    if parts.scheme in _CLOUDS and parts.netloc:
        return _open_cloud(url, parts.scheme, options or {})
    known = "s3://bucket/prefix, gs://…, az://…, file:///folder or memory://name"
    raise InvalidArgument(f"{url!r} names no object store; use {known}")


def _open_folder(url: str, options: Mapping[str, str] | None) -> ObjectStore:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or options:
        raise InvalidArgument(f"{url}: a folder is file:///absolute/path, without options")
    root = Path(unquote(parts.path))
    remove_abandoned(root)
    return FolderObjects(root)


def _open_memory(name: str, path: str, options: Mapping[str, str] | None) -> ObjectStore:
    if options:
        raise InvalidArgument(f"memory://{name} takes no options")
    cloud, stores = _obstore()
    with _MEMORIES_LOCK:
        memory = _MEMORIES.setdefault(name, stores.MemoryStore()) if name else stores.MemoryStore()
    prefix = path.strip("/")
    opened: ObjectStore = cloud.CloudObjects(memory, memory, f"{prefix}/" if prefix else "")
    return opened


def _open_cloud(url: str, scheme: str, options: Mapping[str, str]) -> ObjectStore:
    cloud, stores = _obstore()
    config, client = _sorted_options(options)
    kind = getattr(stores, _CLOUDS[scheme])
    try:
        patient, exact = (
            kind.from_url(url, config=config, client_options=client or None, retry_config=retries)
            for retries in (_PATIENT, _EXACT)
        )
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InvalidArgument(f"{url}: {reason}") from error
    opened: ObjectStore = cloud.CloudObjects(patient, exact)
    return opened


def _sorted_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Those of the store, and those of its HTTP client, which the environment mixes."""
    config, client = {}, {}
    for name, value in options.items():
        plain = name.lower()
        bare = plain.removeprefix("aws_").removeprefix("google_").removeprefix("azure_")
        if bare in _CLIENT_OPTIONS:
            client[bare] = value
        else:
            config[plain] = value
    return config, client


def _obstore() -> tuple[Any, Any]:
    """Imported when asked for: a local folder needs no `obstore`."""
    try:
        from obstore import store as stores

        from penstock.storage.objects import cloud
    except ImportError:
        text = "object storage needs the package obstore: pip install 'penstock[objects]'"
        raise InvalidArgument(text) from None
    return cloud, stores
