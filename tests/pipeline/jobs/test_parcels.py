"""Work is divided evenly."""

from __future__ import annotations

import pytest

from penstock.lake.files import LiveFile
from penstock.pipeline.jobs.parcels import balanced, parcels
from tests.lake.helpers import DAY

MB = 1_000_000


@pytest.mark.parametrize(
    ("sizes", "count", "loads"),
    [
        ([5, 4, 3, 2, 1], 2, [8, 7]),
        ([9, 1, 1], 2, [9, 2]),
        ([1, 1], 5, [1, 1]),
        ([1, 1], 0, [2]),
        ([], 3, []),
    ],
)
def test_groups_are_about_as_heavy(sizes: list[int], count: int, loads: list[int]) -> None:
    """None is empty, and none is missing."""
    groups = balanced(sizes, float, count)
    assert [sum(group) for group in groups] == loads
    assert sorted(size for group in groups for size in group) == sorted(sizes)


@pytest.mark.parametrize(
    ("sizes", "tasks"), [([1] * 20, 1), ([4 * MB] * 6, 3), ([100 * MB], 1), ([8 * MB] * 999, 256)]
)
def test_files_make_tasks_by_their_size(sizes: list[int], tasks: int) -> None:
    """A file is never divided, and tasks are never too many."""
    files = [LiveFile(f"{n}", 1, size, DAY, 1) for n, size in enumerate(sizes)]
    assert len(parcels(files)) == tasks
