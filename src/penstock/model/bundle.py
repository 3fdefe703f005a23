"""The unit that the store keeps and delivers: up to 64 slots, each an Arrow RecordBatch or absent.

Kept out of `penstock.model`'s own names, so that the log can be used without importing pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.model.errors import InvalidBundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MAX_SLOTS: Final = 64


class Bundle:
    """A few RecordBatches that belong together, by slot number (0 to 63). Never changes.

    What a slot means, its `SlotTable` says; an absent slot and one with zero rows are different.
    """

    __slots__ = ("_slots", "items")

    def __init__(self, slots: Mapping[int, pa.RecordBatch], *, items: int | None = None) -> None:
        """`items` counts what users count (spans, log records); None: the slot table counts."""
        for slot, batch in slots.items():
            if type(slot) is not int or not 0 <= slot < MAX_SLOTS:
                raise InvalidBundle(f"slot {slot!r} is not one of 0 to {MAX_SLOTS - 1}")
            if not isinstance(batch, pa.RecordBatch):
                kind = type(batch).__name__
                raise InvalidBundle(f"slot {slot} holds a {kind}, not a RecordBatch")
            names = batch.schema.names
            if len(set(names)) < len(names):
                raise InvalidBundle(f"slot {slot} has two columns of the same name")
        if items is not None and (type(items) is not int or not 0 <= items < 2**63):
            raise InvalidBundle(f"a bundle cannot have {items!r} items")
        self._slots: Final = dict(sorted(slots.items()))
        self.items: Final = items

    @classmethod
    def trusted(cls, slots: dict[int, pa.RecordBatch], items: int) -> Bundle:
        """A bundle that was checked before it was written; slots in order."""
        bundle = cls.__new__(cls)
        bundle._slots, bundle.items = slots, items  # type: ignore[misc]  # noqa: SLF001 - its own
        return bundle

    def __getitem__(self, slot: int) -> pa.RecordBatch:
        """The batch in the slot; KeyError where it is absent."""
        return self._slots[slot]

    def get(self, slot: int) -> pa.RecordBatch | None:
        """The batch in the slot, or None where it is absent."""
        return self._slots.get(slot)

    def __contains__(self, slot: object) -> bool:
        return slot in self._slots

    def __iter__(self) -> Iterator[int]:
        """The slots that are present, in order."""
        return iter(self._slots)

    def __len__(self) -> int:
        """How many slots are present."""
        return len(self._slots)

    @property
    def slots(self) -> Mapping[int, pa.RecordBatch]:
        """The slots that are present, in order."""
        return self._slots

    @property
    def nbytes(self) -> int:
        """The bytes of the rows, without what their buffers hold besides."""
        return sum(batch.nbytes for batch in self._slots.values())

    def __eq__(self, other: object) -> bool:
        """Whether the same slots hold equal batches; `items` is not looked at."""
        if not isinstance(other, Bundle):
            return NotImplemented
        mine, theirs = self._slots, other._slots
        return mine.keys() == theirs.keys() and all(mine[s].equals(theirs[s]) for s in mine)

    __hash__ = None  # type: ignore[assignment]  # how Python says: not hashable

    def __repr__(self) -> str:
        rows = ", ".join(f"{slot}: {batch.num_rows} rows" for slot, batch in self._slots.items())
        return f"Bundle({{{rows}}})"
