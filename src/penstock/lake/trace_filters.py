"""Which files of the lake may have a trace, without opening them with DuckDB.

Files are sorted by service and time, so that every one of them may have any trace. But they carry
bloom filters of their trace ids; where these are is remembered of each file, and one look at a file
then is some bytes of each row group.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.lake.bloom import BLOCK_BYTES, bitset_bytes, block_of, may_have, xxh64

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from penstock.lake.glance import ColdFile

TRACE_ID: Final = "trace_id"
KEPT_FILES: Final = 100_000
_HEADER_BYTES: Final = 32

Filters = tuple[tuple[int, int], ...]
"""Where the bits of each row group begin, and how many bytes they are."""


class TraceFilters:
    """What is known of the files' filters. Safe for threads; files never change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, int, int, int], Filters | None] = OrderedDict()

    def chosen(self, files: Sequence[ColdFile], trace_ids: Collection[str]) -> list[ColdFile]:
        """Those that may have one of the traces; also those that cannot be read."""
        hashes = [xxh64(each.encode()) for each in trace_ids]
        return [file for file in files if self._may_have(file.path, hashes)]

    def _may_have(self, path: str, hashes: Sequence[int]) -> bool:
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError:
            return True  # whoever reads it will say what is wrong
        try:
            filters = self._filters(path, handle)
            return filters is None or any(_is_in(handle, filters, each) for each in hashes)
        except (OSError, pa.ArrowException):
            return True
        finally:
            os.close(handle)

    def _filters(self, path: str, handle: int) -> Filters | None:
        state = os.fstat(handle)
        # A lake that is made anew may have files of the same names.
        name = (path, state.st_ino, state.st_size, state.st_mtime_ns)
        with self._lock:
            if name in self._known:
                self._known.move_to_end(name)
                return self._known[name]
        found = _read(path, handle)
        with self._lock:
            self._known[name] = found
            while len(self._known) > KEPT_FILES:
                self._known.popitem(last=False)
        return found


TRACE_FILTERS: Final = TraceFilters()
"""Of this process."""


def _is_in(handle: int, filters: Filters, hash_: int) -> bool:
    return any(
        may_have(hash_, os.pread(handle, BLOCK_BYTES, begin + block_of(hash_, size)))
        for begin, size in filters
    )


def _read(path: str, handle: int) -> Filters | None:
    """From the footer; None where a row group has no filter."""
    footer = pq.read_metadata(path)
    names = [footer.schema.column(number).path for number in range(footer.num_columns)]
    if TRACE_ID not in names:
        return None
    number, found = names.index(TRACE_ID), []
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(number)
        offset, length = column.bloom_filter_offset, column.bloom_filter_length
        if not offset or not length:
            return None
        size = bitset_bytes(os.pread(handle, _HEADER_BYTES, offset))
        if size is None or size > length:
            return None
        found.append((offset + length - size, size))
    return tuple(found)
