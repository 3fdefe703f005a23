"""Properties of tables, and what commits read from them."""

from __future__ import annotations

import pytest

from penstock.lake.properties import is_crowded, new_table_properties, snapshots_kept

SMALL, LARGE = 9_000, 500_000


@pytest.mark.parametrize(
    ("sizes", "crowded"),
    [
        ([], False),
        ([SMALL] * 49, False),
        ([SMALL] * 50, True),
        ([SMALL] * 49 + [LARGE] * 200, False),
        ([LARGE] * 50, False),
    ],
)
def test_manifests_are_merged_when_there_are_many_small_ones(
    sizes: list[int], crowded: bool
) -> None:
    """Those near the target size are left as they are, and do not count."""
    assert is_crowded(new_table_properties([], [], 20), sizes) is crowded
    assert is_crowded({}, sizes) is crowded


def test_an_operator_may_change_when_and_how_much() -> None:
    """The properties of the table decide."""
    properties = {"penstock.manifests-merged-at": "3", "commit.manifest.target-size-bytes": "100"}
    assert is_crowded(properties, [49] * 3)
    assert not is_crowded(properties, [50] * 3)
    assert snapshots_kept({"penstock.snapshots-kept": "7"}) == 7
    assert snapshots_kept({}) == 20


def test_bounds_are_kept_of_columns_that_exist() -> None:
    """And of those that the table is parted and sorted by."""
    properties = new_table_properties(["minute", "p99", "service_name"], ["minute"], 20)
    prefix = "write.metadata.metrics.column."
    assert [name.removeprefix(prefix) for name in properties if name.startswith(prefix)] == [
        "minute",
        "service_name",
    ]
