"""Where the lake is and how its tables are kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FOLDER: Final = "lake"
"""Of the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Which catalog, which warehouse, and how much history."""

    warehouse: str
    """An absolute folder, or a URI that pyiceberg writes to (`s3://…`). Each table has a folder in
    it. Iceberg's metadata names every file by it, so a lake cannot be moved."""

    catalog: Mapping[str, str] = field(default_factory=dict)
    """Properties of any catalog that pyiceberg knows: `{"type": "rest", "uri": …}`, `{"type":
    "sql", "uri": "postgresql+psycopg2://…"}`. Empty: SQLite, `catalog.db` in the warehouse, which
    must then be a folder."""

    catalog_name: str = "penstock"
    """The catalog's own name: SQL catalogs keep several apart by it."""

    namespace: str = "otel"
    """The Iceberg namespace of the tables."""

    promoted: tuple[str, ...] = ()
    """Attributes that get columns of their own, `[resource:]key[:type]` each (see `promoted`).
    Tables remember them: leaving one out later does not take its column away."""

    snapshots_kept: int = 20
    """How many snapshots of a table its metadata remember. Each costs every commit some time;
    beyond them there is no time travel."""

    def __post_init__(self) -> None:
        """Refuses what cannot work."""
        if not self.catalog and ("://" in self.warehouse or "?" in self.warehouse):
            raise InvalidSetting("the SQLite catalog needs a warehouse that is a folder")
        if not self.namespace or "." in self.namespace:
            raise InvalidSetting("the namespace of the lake is one word without a dot")
        if self.snapshots_kept < 2:
            raise InvalidSetting("snapshots_kept must be at least 2")

    @classmethod
    def of(cls, data_dir: Path) -> LakeSettings:
        """The lake of a data directory."""
        return cls(warehouse=str((data_dir / FOLDER).absolute()))
