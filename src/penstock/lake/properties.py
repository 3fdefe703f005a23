"""The table properties of a new table. An operator may change them later.

| property | value | why |
|---|---|---|
| `format-version` | 2 | what every engine reads and pyiceberg writes |
| `write.metadata.delete-after-commit.enabled` | true | each commit writes a new metadata file |
| `write.metadata.previous-versions-max` | 20 | how many of them stay |
| `commit.manifest-merge.enabled` | true | each commit writes a manifest; they are merged |
| `commit.manifest.min-count-to-merge` | 2 | all of them, once it is time |
| `commit.manifest.target-size-bytes` | 524288 | about 1700 files; merging them takes 0.3 s |
| `write.metadata.metrics.default` | none | bounds of all columns: manifests 2.5 times as large |
| `write.metadata.metrics.column.<name>` | truncate(16) | of the columns that queries prune by |
| `write.parquet.compression-codec` | zstd | for writers other than Penstock |
| `schema.name-mapping.default` | names to numbers | for files without column numbers |
| `penstock.manifests-merged-at` | 50 | it is time when there are so many small ones |
| `penstock.snapshots-kept` | 20 | each snapshot costs every commit 0.1 ms |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyiceberg.table import TableProperties

from penstock.lake.schemas import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SNAPSHOTS_KEPT: Final = "penstock.snapshots-kept"
MANIFESTS_MERGED_AT: Final = "penstock.manifests-merged-at"
_MANIFESTS_MERGED_AT: Final = 50
_MANIFEST_BYTES: Final = 512 * 1024
_SNAPSHOTS_KEPT: Final = 20
_BOUNDS: Final = TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX
_BOUNDED: Final = "truncate(16)"
_PRUNED_BY: Final = frozenset(
    {
        *("time", "date", "namespace", "service_name", "trace_id", "name", "duration_ns", "type"),
        *("start_time_unix_nano", "time_unix_nano", "severity_number"),
        *ORIGIN,
    }
)
WRITTEN_FORMAT: Final = 2
"""The newest format of tables that is written here; newer ones are read."""
_FIXED: Final = {
    TableProperties.FORMAT_VERSION: str(WRITTEN_FORMAT),
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "20",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
    TableProperties.MANIFEST_MIN_MERGE_COUNT: "2",
    TableProperties.MANIFEST_TARGET_SIZE_BYTES: str(_MANIFEST_BYTES),
    MANIFESTS_MERGED_AT: str(_MANIFESTS_MERGED_AT),
    TableProperties.DEFAULT_WRITE_METRICS_MODE: "none",
    TableProperties.PARQUET_COMPRESSION: "zstd",
}


def snapshots_kept(properties: Mapping[str, str]) -> int:
    """How many snapshots the metadata of a table remember."""
    return int(properties.get(SNAPSHOTS_KEPT, _SNAPSHOTS_KEPT))


def is_crowded(properties: Mapping[str, str], manifest_bytes: Iterable[int]) -> bool:
    """Whether it is time to merge manifests of these sizes.

    pyiceberg, left to itself, merges whenever two of them fit beside each other, and near the
    target size rewrites the largest one in every commit.
    """
    target = int(properties.get(TableProperties.MANIFEST_TARGET_SIZE_BYTES, _MANIFEST_BYTES))
    small = sum(size < target / 2 for size in manifest_bytes)
    return small >= int(properties.get(MANIFESTS_MERGED_AT, _MANIFESTS_MERGED_AT))


def new_table_properties(
    columns: Iterable[str], pruned_by: Iterable[str], kept: int
) -> dict[str, str]:
    """Those of a table with these columns, but the name mapping.

    Bounds are kept of the columns `pruned_by` beside the usual ones.
    """
    bounded = (_PRUNED_BY | set(pruned_by)) & set(columns)
    bounds = {f"{_BOUNDS}.{name}": _BOUNDED for name in sorted(bounded)}
    return {**_FIXED, SNAPSHOTS_KEPT: str(kept), **bounds}


def outdated(
    properties: Mapping[str, str], columns: Iterable[str]
) -> tuple[dict[str, str], list[str]]:
    """What a table of an earlier version has to get, and what it has to lose.

    Without retries as a property every other engine's commit would fail at the first collision;
    our own commits are without them by themselves (see `transaction`). `date` had no bounds.
    """
    name = f"{_BOUNDS}.date"
    is_ours = SNAPSHOTS_KEPT in properties and "date" in columns
    new = {name: _BOUNDED} if is_ours and name not in properties else {}
    retries = TableProperties.COMMIT_NUM_RETRIES
    return new, [retries] if properties.get(retries) == "0" else []
