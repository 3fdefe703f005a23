"""The Iceberg catalog: SQLite beside the tables, or whichever pyiceberg knows."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from sqlalchemy.exc import DBAPIError

from penstock.lake.durable import FILE_IO
from penstock.lake.metadata import CATALOG
from penstock.model.backoff import Backoff
from penstock.storage.files import LocalFiles

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from penstock.lake.settings import LakeSettings

_LOCK_WAIT_S: Final = 30
"""How long SQLite waits for another process's transaction."""
_ATTEMPTS: Final = 8
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 0.8


def open_catalog(settings: LakeSettings) -> Catalog:
    """The catalog with the lake's namespace in it, both made where they are missing.

    Any number of processes may do so at once: one makes them, the others find them.
    """
    properties = {"py-io-impl": FILE_IO, "warehouse": settings.warehouse, **settings.catalog}
    if not settings.catalog:
        LocalFiles().make_folder(Path(settings.warehouse))
        properties |= {"type": "sql", "uri": _sqlite(Path(settings.warehouse))}
    backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(DBAPIError):  # another made the tables since our look
            return _open(settings, properties)
        time.sleep(backoff.next_s())
    return _open(settings, properties)


def _open(settings: LakeSettings, properties: dict[str, str]) -> Catalog:
    catalog = load_catalog(settings.catalog_name, **properties)
    try:
        if not catalog.namespace_exists(settings.namespace):
            catalog.create_namespace(settings.namespace)
    except NamespaceAlreadyExistsError:
        pass
    except BaseException:
        catalog.close()
        raise
    return catalog


def _sqlite(folder: Path) -> str:
    return f"sqlite:///{folder / CATALOG}?timeout={_LOCK_WAIT_S}"
