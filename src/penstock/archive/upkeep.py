"""What the archive may forget, and what an interrupted upload left in it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from penstock.archive.format import parse_object_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.archive.catalog import Catalog
    from penstock.archive.format import Descriptor
    from penstock.archive.identity import Mark
    from penstock.archive.settings import ArchiveSettings
    from penstock.model.clock import Clock
    from penstock.storage.metadata import Lease

_TOGETHER = 100
"""Objects removed in one request, and descriptors in one commit."""


class Upkeep:
    """Retention and cleaning of one archive, by the owner of its lease."""

    def __init__(
        self, catalog: Catalog, lease: Lease, settings: ArchiveSettings, clock: Clock
    ) -> None:
        self._catalog = catalog
        self._lease = lease
        self._settings = settings
        self._clock = clock
        self.mark: Mark | None = None
        """The archive's; nothing is cleaned before it is known."""

    async def retain(self) -> int:
        """Removes what retention allows, oldest first; returns how many objects.

        Descriptors go before objects: what is interrupted leaves objects for `clean`, never a
        descriptor of nothing.
        """
        if self._settings.retention_s is None and self._settings.retention_bytes is None:
            return 0
        descriptors = await self._catalog.all()
        gone = removable(descriptors, self._clock.wall_ns(), self._settings)
        for start in range(0, len(gone), _TOGETHER):
            some = gone[start : start + _TOGETHER]
            keys = [self._catalog.descriptor_key(one.start_offset) for one in some]
            await self._lease.commit({}, deletes=keys)
            objects = [self._catalog.object_key(one.object_id) for one in some]
            await self._catalog.objects.delete(*objects)
        return len(gone)

    async def clean(self) -> int:
        """Removes objects that no descriptor names, nor ever will; returns how many.

        Not those from before the present id: their owner may live, with metadata of its own.

        An object that a list does not show yet is found by the next cleaning.
        """
        prefix = self._catalog.objects_prefix
        names = [info.key async for info in self._catalog.objects.list(prefix)]
        # In this order: a descriptor that is made between the two keeps its object.
        descriptors = await self._catalog.all()
        known = {self._catalog.object_key(one.object_id) for one in descriptors}
        end = descriptors[-1].end_offset if descriptors else 0
        orphans = [key for key in names if key not in known and self._is_forlorn(key, end)]
        self._lease.check()
        for start in range(0, len(orphans), _TOGETHER):
            await self._catalog.objects.delete(*orphans[start : start + _TOGETHER])
        return len(orphans)

    def _is_forlorn(self, key: str, end: int) -> bool:
        """Whether a descriptor of it would be refused, also one that is still on its way.

        It is of an earlier epoch, or begins where another object stands or stood. Objects of a
        later epoch are left to their owner.
        """
        parsed = parse_object_id(key.removeprefix(self._catalog.objects_prefix))
        if parsed is None:
            return False
        epoch, start, _ = parsed
        if self.mark is None or epoch < self.mark.epoch:
            return False
        return epoch < self._lease.epoch or (epoch == self._lease.epoch and start < end)


def removable(
    descriptors: Sequence[Descriptor], now_ns: int, settings: ArchiveSettings
) -> list[Descriptor]:
    """The oldest objects that go: too old, or too much with those behind them.

    Never past one that stays, and never the newest: it says where the archive ends. A clock that
    went back only keeps objects longer.
    """
    total = sum(descriptor.size for descriptor in descriptors)
    gone = []
    for descriptor in descriptors[:-1]:
        created_ns = datetime.fromisoformat(descriptor.created_at).timestamp() * 1e9
        too_old = (
            settings.retention_s is not None and now_ns - created_ns > settings.retention_s * 1e9
        )
        too_much = settings.retention_bytes is not None and total > settings.retention_bytes
        if not (too_old or too_much):
            break
        gone.append(descriptor)
        total -= descriptor.size
    return gone
