"""A metadata store that goes wrong as a plan says; the same plan may drive the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.model.errors import MetadataUnavailable
from penstock.storage.metadata import Entry, Metadata
from tests.simulation.objects import Fault

if TYPE_CHECKING:
    from tests.simulation.objects import Plan


class FaultyMetadata(Metadata):
    """Knows FAIL_BEFORE and FAIL_AFTER."""

    def __init__(self, inner: Metadata, plan: Plan) -> None:
        self._inner = inner
        self._plan = plan

    async def get(self, key: str) -> Entry | None:
        """Reads, or fails."""
        fault = self._before("metadata get", key)
        found = await self._inner.get(key)
        self._after(fault)
        return found

    async def range(
        self,
        prefix: str,
        *,
        start: str | None = None,
        end: str | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Entry]:
        """Reads, or fails."""
        fault = self._before("metadata range", prefix)
        found = await self._inner.range(
            prefix, start=start, end=end, limit=limit, newest_first=newest_first
        )
        self._after(fault)
        return found

    async def commit(
        self,
        puts: Mapping[str, bytes],
        *,
        deletes: Sequence[str] = (),
        conditions: Mapping[str, int | None] | None = None,
    ) -> int:
        """Writes, or seems not to."""
        fault = self._before("metadata commit", ",".join([*puts, *deletes]))
        revision = await self._inner.commit(puts, deletes=deletes, conditions=conditions)
        self._after(fault)
        return revision

    async def close(self) -> None:
        """Closes the store inside."""
        await self._inner.close()

    def _before(self, operation: str, key: str) -> Fault | None:
        fault = self._plan(operation, key)
        if fault is Fault.FAIL_BEFORE:
            raise MetadataUnavailable(f"{operation} {key}: {fault.value}")
        return fault

    def _after(self, fault: Fault | None) -> None:
        if fault is Fault.FAIL_AFTER:
            raise MetadataUnavailable(fault.value)
