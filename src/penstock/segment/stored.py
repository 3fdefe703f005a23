"""A bundle as a segment holds it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle


class StoredBundle(NamedTuple):
    """A bundle with its place: in the log by offsets, in its segment by index."""

    bundle: Bundle
    """With `items` set."""
    first_offset: int
    messages: int
    ingested_at_ns: int
    bundle_index: int

    @property
    def end_offset(self) -> int:
        """One past the bundle's last message."""
        return self.first_offset + self.messages
