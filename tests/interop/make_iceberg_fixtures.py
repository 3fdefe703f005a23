# ruff: noqa: S608 - statements of our own
"""Makes `tests/fixtures/iceberg-java/*.tar.xz`: small lakes that Iceberg's Java library changed.

    .venv/bin/python -m tests.interop.make_iceberg_fixtures FOLDER [NAME …]

Each lake begins as 28 spans in four files, three of one day and one of the next, written by
Penstock; what the library then did to it stands below. FOLDER is where they are made, and stands
in their metadata: `tests.lake.java_tables` gives a copy another place.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from tests.interop.iceberg_java import ROOT, JavaEngine, java_engine
from tests.lake.helpers import NEXT_DAY, Flush, spans

FIXTURES = ROOT / "tests" / "fixtures" / "iceberg-java"
SPANS = "penstock.otel.spans"


def position_deletes(java: JavaEngine) -> None:
    """Offsets 1, 3, 9 and 25 are deleted, by two delete files for all files and one for each."""
    _merge_on_read(java)
    java.sql(f"ALTER TABLE {SPANS} SET TBLPROPERTIES ('write.delete.granularity'='partition')")
    java.sql(f"DELETE FROM {SPANS} WHERE _offset IN (1, 9, 25)")
    java.sql(f"ALTER TABLE {SPANS} SET TBLPROPERTIES ('write.delete.granularity'='file')")
    java.sql(f"DELETE FROM {SPANS} WHERE _offset = 3")


def equality_deletes(java: JavaEngine) -> None:
    """Service 1 of the first day is deleted, the trace with offsets 24 to 27, and a null."""
    day = "time_day=2025-11-15"
    java.order(
        "equality_delete",
        table="otel.spans",
        columns=["service_name"],
        rows=[["service-1"]],
        partition=day,
    )
    java.sql(f"UPDATE {SPANS} SET status_message = 'late' WHERE _offset = 0")  # a newer data file
    java.order(
        "equality_delete",
        table="otel.spans",
        columns=["trace_id", "status_message"],
        rows=[[f"{6:032x}", None], [f"{0:032x}", None]],
        partition="time_day=2025-11-16",
    )


def deletion_vectors(java: JavaEngine) -> None:
    """Format 3; offsets 1, 3, 9 and 25 are deleted by vectors."""
    _merge_on_read(java)
    java.sql(f"ALTER TABLE {SPANS} SET TBLPROPERTIES ('format-version'='3')")
    java.sql(f"DELETE FROM {SPANS} WHERE _offset IN (1, 9, 25)")
    java.sql(f"DELETE FROM {SPANS} WHERE _offset = 3")


def renamed_columns(java: JavaEngine) -> None:
    """A column is added, filled, renamed, filled again; others renamed, dropped, widened."""
    java.sql(f"ALTER TABLE {SPANS} ADD COLUMN team string")
    java.sql(f"UPDATE {SPANS} SET team = 'red' WHERE _offset < 8")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN team TO squad")
    java.sql(f"UPDATE {SPANS} SET squad = 'blue' WHERE _offset BETWEEN 8 AND 11")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN status_message TO status_text")
    java.sql(f"UPDATE {SPANS} SET status_text = 'told' WHERE _offset = 24")
    java.sql(f"ALTER TABLE {SPANS} DROP COLUMN trace_state")
    java.sql(f"ALTER TABLE {SPANS} ALTER COLUMN _topic_partition TYPE bigint")


def reused_names(java: JavaEngine) -> None:
    """A name goes from one column to another, in the table and inside of a struct."""
    java.sql(f"ALTER TABLE {SPANS} ADD COLUMN team string")
    java.sql(f"UPDATE {SPANS} SET team = 'red' WHERE _offset < 8")
    java.sql(f"ALTER TABLE {SPANS} DROP COLUMN team")
    java.sql(f"ALTER TABLE {SPANS} ADD COLUMN team string")
    java.sql(f"UPDATE {SPANS} SET team = 'blue' WHERE _offset BETWEEN 8 AND 11")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN status_message TO swapped")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN team TO status_message")
    java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN swapped TO team")
    java.sql(f"ALTER TABLE {SPANS} ADD COLUMN resource.region string")
    java.sql(f"ALTER TABLE {SPANS} DROP COLUMN resource.dropped_attributes_count")


def rewritten_files(java: JavaEngine) -> None:
    """Offset 1 is deleted and tagged before; files, manifests and snapshots were tidied up."""
    _merge_on_read(java)
    java.sql(f"DELETE FROM {SPANS} WHERE _offset = 1")
    java.sql(f"ALTER TABLE {SPANS} CREATE TAG before_tidying")
    java.sql(f"ALTER TABLE {SPANS} CREATE BRANCH audit")
    java.sql(
        "CALL penstock.system.rewrite_data_files(table => 'otel.spans', "
        "options => map('rewrite-all', 'true'))"
    )
    java.sql("CALL penstock.system.rewrite_manifests(table => 'otel.spans')")
    java.sql(
        "CALL penstock.system.expire_snapshots(table => 'otel.spans', "
        "older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1)"
    )


def other_partitions(java: JavaEngine) -> None:
    """The partition spec is another, and a row was written with it."""
    java.sql(f"ALTER TABLE {SPANS} REPLACE PARTITION FIELD time_day WITH bucket(2, trace_id)")
    java.sql(f"UPDATE {SPANS} SET status_message = 'moved' WHERE _offset = 1")


MADE: dict[str, Callable[[JavaEngine], None]] = {
    each.__name__: each
    for each in (
        position_deletes,
        equality_deletes,
        deletion_vectors,
        renamed_columns,
        reused_names,
        rewritten_files,
        other_partitions,
    )
}


def make_base(data: Path) -> Path:
    """The lake that Penstock wrote."""
    with Lake.open(LakeSettings.of(data)) as lake:
        flush = Flush(lake.table("spans"))
        for first in (0, 8, 16):
            flush.flush(spans(range(first, first + 8)))
        flush.flush(spans(range(24, 28), NEXT_DAY))
    return data / "lake"


def _merge_on_read(java: JavaEngine) -> None:
    modes = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("delete", "update"))
    java.sql(f"ALTER TABLE {SPANS} SET TBLPROPERTIES ({modes})")


def main() -> None:
    """Those that are named, or all."""
    folder = Path(sys.argv[1]).absolute()
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or MADE:
        warehouse = make_base(folder / name)
        with java_engine(warehouse) as java:
            if ["_partition"] in [row[:1] for row in java.sql(f"DESCRIBE {SPANS}")]:
                java.sql(f"ALTER TABLE {SPANS} RENAME COLUMN _partition TO _topic_partition")
            MADE[name](java)
            count = java.sql(f"SELECT count(*) FROM {SPANS}")
        for leftover in warehouse.rglob(".*.crc"):
            leftover.unlink()
        with tarfile.open(FIXTURES / f"{name}.tar.xz", "w:xz") as archive:
            archive.add(warehouse, "lake")
        print(name, count)  # noqa: T201 - a script


if __name__ == "__main__":
    main()
