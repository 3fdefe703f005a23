"""Messages as the bundles of a segment: object storage has them as clients sent them."""

from __future__ import annotations

from itertools import count, groupby
from typing import TYPE_CHECKING

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged
from penstock.segment import StoredBundle
from penstock.segment.tables import ManifestEntry
from penstock.store.decoding import Decoded, RequestDecoder

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.otel.signals import Signal


class RequestBundles:
    """Messages of one signal, decoded together where their offsets follow each other."""

    def __init__(
        self,
        name: str,
        signal: Signal,
        messages: Iterable[tuple[int, bytes]],
        lost: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Each with its offset, in their order. Of the `lost` offsets there are none."""
        self.name = name
        numbers, decoder = count(), RequestDecoder(signal)
        parts = [Decoded(first, end - first, None, "lost before") for first, end in lost]
        for _, run in groupby(messages, key=lambda each: each[0] - next(numbers)):
            offsets, held = zip(*run, strict=True)
            parts += decoder.decode(offsets[0], held)
        self._parts = sorted(parts, key=lambda part: part.first_offset)
        bundles = (part.bundle for part in self._parts if part.bundle is not None)
        self.slots: tuple[int, ...] = tuple(sorted(set().union(*bundles)))

    def __len__(self) -> int:
        """How many bundles they make."""
        return len(self._parts)

    def manifest(self, index: int) -> ManifestEntry:
        """What the bundle is."""
        part = self._parts[index]
        items = 0 if part.bundle is None else part.bundle.items or 0
        return ManifestEntry(part.first_offset, part.messages, items, 0, ())

    def bundle(self, index: int, slots: Collection[int] | None = None) -> StoredBundle:
        """The bundle; Damaged where the request in its place cannot be decoded."""
        part = self._parts[index]
        if part.bundle is None:
            reason = f"message {part.first_offset} cannot be decoded: {part.problem}"
            raise Damaged(f"{self.name}: {reason}")
        held = part.bundle
        if slots is not None:
            kept = {slot: table for slot, table in held.slots.items() if slot in slots}
            held = Bundle.trusted(kept, held.items or 0)
        return StoredBundle(held, part.first_offset, part.messages, 0, index)
