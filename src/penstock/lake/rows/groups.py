"""Which bundles are turned into rows together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.lake.rows.join import can_join, join
from penstock.lake.rows.origin import offsets
from penstock.lake.rows.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position

GROUP_RECORDS: Final = 16_384
GROUP_BYTES: Final = 64 * 1024 * 1024
"""Bundles are joined up to so much, dictionaries counted in each that has them."""
GROUP_BUNDLES: Final = 4096

Group = list[tuple["Bundle", "Position"]]


def groups(bundles: Iterable[tuple[Bundle, Position]], root_slot: int) -> Iterator[Group]:
    """All bundles in order, those together that may be joined."""
    group: Group = []
    records = size = 0
    for bundle, origin in bundles:
        new_records, new_size = _records(bundle, root_slot), _size(bundle)
        fits = (
            records + new_records <= GROUP_RECORDS
            and size + new_size <= GROUP_BYTES
            and len(group) < GROUP_BUNDLES
        )
        if group and not (fits and _belong_together(group[-1], (bundle, origin))):
            yield group
            group, records, size = [], 0, 0
        group.append((bundle, origin))
        records, size = records + new_records, size + new_size
    if group:
        yield group


def joined_tables(group: Group, root_slot: int) -> Tables | None:
    """The tables of all the bundles together; None where they cannot be joined."""
    present = [(bundle, origin) for bundle, origin in group if root_slot in bundle]
    joined = join([bundle for bundle, _ in present]) if present else None
    if joined is None:
        return None
    found = [offsets(origin, bundle, bundle[root_slot].num_rows) for bundle, origin in present]
    return Tables(joined, present[0][1], pa.concat_arrays(found), None)


def _records(bundle: Bundle, root_slot: int) -> int:
    table = bundle.get(root_slot)
    return 0 if table is None else table.num_rows


def _size(bundle: Bundle) -> int:
    return sum(table.get_total_buffer_size() for table in bundle.slots.values())


def _belong_together(last: tuple[Bundle, Position], new: tuple[Bundle, Position]) -> bool:
    return last[1].place == new[1].place and can_join(last[0]) and can_join(new[0])
