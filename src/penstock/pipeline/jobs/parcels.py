"""Divides work among tasks."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.lake.files import LiveFile

PARCEL_BYTES: Final = 8 * 1000 * 1000
"""Files of so many bytes are worth a task."""
MOST_PARCELS: Final = 256

Item = TypeVar("Item")


def parcels(files: Sequence[LiveFile]) -> list[list[LiveFile]]:
    """The files in as many groups as there shall be tasks, of about the same size."""
    count = min(-(-sum(file.bytes for file in files) // PARCEL_BYTES), MOST_PARCELS)
    return balanced(files, lambda file: file.bytes, count)


def balanced(
    items: Sequence[Item], weight: Callable[[Item], float], count: int
) -> list[list[Item]]:
    """At most `count` groups, at least one if there are items, none empty; heavy items first."""
    groups: list[list[Item]] = [[] for _ in range(min(max(count, 1), len(items)))]
    loads = [(0.0, number) for number in range(len(groups))]
    for item in sorted(items, key=weight, reverse=True):
        load, number = heapq.heappop(loads)
        groups[number].append(item)
        heapq.heappush(loads, (load + weight(item), number))
    return groups
