"""Where the lake is and how its tables are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidSetting
from penstock.model.fields import Count, Properties, Settings, Text, Texts, setting

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "lake"
"""Of the data directory."""
ORPHAN_GRACE_S: Final = 3600.0
"""Longer than any query, and than any compaction takes to write its files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings(Settings):
    """Which catalog, which columns, and how much history."""

    catalog: Properties = setting(
        {},
        "Properties of any catalog that pyiceberg knows, like `type: rest` and its `uri`. Empty: "
        "SQLite, `catalog.db` in the warehouse, which must then be a folder.",
    )
    catalog_name: Text = setting(
        "penstock", "The catalog's own name: SQL catalogs keep several apart by it."
    )
    namespace: Text = setting("otel", "The Iceberg namespace of the tables.")
    promoted: Texts = setting(
        (),
        "Attributes that get columns of their own, `[resource:]key[:type]` each; the type is "
        "string, int, double or bool. Tables remember them: leaving one out later does not take "
        "its column away.",
    )
    snapshots_kept: Count = setting(
        20,
        "How many snapshots of a table its metadata remember. Each costs every commit some time; "
        "beyond them there is no time travel.",
        least=2,
    )

    def check(self) -> None:
        """Iceberg takes what is behind a dot for a namespace within."""
        if not self.namespace or "." in self.namespace:
            raise InvalidSetting("{} is one word without a dot", "namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings(TableSettings):
    """The tables, and where they are."""

    warehouse: str
    """An absolute folder, or a URI that pyiceberg writes to (`s3://…`). Each table has a folder in
    it. Iceberg's metadata names every file by it, so a lake cannot be moved."""

    def check(self) -> None:
        """SQLite is a file beside the tables."""
        TableSettings.check(self)
        if not self.catalog and ("://" in self.warehouse or "?" in self.warehouse):
            raise InvalidSetting("the SQLite catalog needs a warehouse that is a folder")

    @classmethod
    def of(cls, data_dir: Path) -> LakeSettings:
        """The lake of a data directory."""
        return cls(warehouse=str((data_dir / FOLDER).absolute()))
