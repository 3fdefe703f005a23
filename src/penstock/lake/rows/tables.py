"""What rows are made of: the tables of a bundle, and where its records came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.lake.rows.origin import offsets
from penstock.model.slots import REMAINDER
from penstock.otel.remainder import Kept

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.model.bundle import Bundle
    from penstock.model.positions import Position


@dataclass(frozen=True, slots=True)
class Tables:
    """A bundle, or several that were joined."""

    bundle: Bundle
    origin: Position
    offsets: pa.Array
    """The offset of each root record's message."""
    kept: Kept | None
    """What OTAP has no columns for; mostly there is none."""

    @classmethod
    def of(cls, bundle: Bundle, origin: Position, root_slot: int) -> Tables:
        """Those of one bundle."""
        remainder = bundle.get(REMAINDER)
        kept = None if remainder is None else Kept(remainder)
        return cls(bundle, origin, offsets(origin, bundle, bundle[root_slot].num_rows), kept)

    def get(self, slot: int) -> pa.RecordBatch | None:
        """The table in a slot of the bundle."""
        return self.bundle.get(slot)
