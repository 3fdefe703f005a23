"""Looks through a whole segment for damage and says which bundles it costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from penstock.model.errors import Damaged
from penstock.segment.format import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penstock.segment.format import Trailer
    from penstock.segment.stream_reader import StreamReader
    from penstock.segment.tables import Footer, Ref


_Check: TypeAlias = "tuple[int, Callable[[], object], tuple[int, ...]]"
"""Which part is checked, how, and the bundles that it costs when that fails."""


@dataclass(frozen=True, slots=True)
class BadPart:
    """Bytes of a segment that are not what they were, and what can no longer be read."""

    position: int
    length: int
    bundles: tuple[int, ...]
    """Indexes of the bundles that cannot be read as a whole."""
    reason: str


def find_damage(
    segment: memoryview, trailer: Trailer, footer: Footer, readers: Sequence[StreamReader]
) -> list[BadPart]:
    """Everything that is wrong, in the order of the file."""
    users: dict[tuple[int, int], list[int]] = {}
    found = list(_in_manifest(trailer, footer, readers, users))
    for reader in readers:
        found += _in_stream(reader, users)
    found += _in_padding(segment, trailer, readers)
    return sorted(found, key=lambda damage: damage.position)


def _in_manifest(
    trailer: Trailer,
    footer: Footer,
    readers: Sequence[StreamReader],
    users: dict[tuple[int, int], list[int]],
) -> Iterator[BadPart]:
    """Bundles whose slots are nowhere; for the others, notes in `users` who uses which chunk."""
    place = trailer.footer_position, trailer.footer_length
    for index in range(trailer.info.bundles):
        try:
            refs = footer.manifest(index).refs
        except Damaged as error:
            yield BadPart(*place, (index,), str(error))
            continue
        if all(_leads_to_a_chunk(ref, readers) for ref in refs):
            for ref in refs:
                users.setdefault((ref.stream, ref.chunk), []).append(index)
        else:
            yield BadPart(*place, (index,), f"bundle {index} refers to a chunk that is not there")


def _leads_to_a_chunk(ref: Ref, readers: Sequence[StreamReader]) -> bool:
    if ref.stream >= len(readers):
        return False
    stream = readers[ref.stream].entry
    return ref.slot == stream.slot and ref.chunk < stream.chunks


def _in_stream(
    reader: StreamReader, users: Mapping[tuple[int, int], Sequence[int]]
) -> list[BadPart]:
    """Parts with a wrong CRC, and chunks that cannot be decoded though every CRC is right."""
    stream = reader.entry
    costs = [tuple(users.get((stream.id, chunk), ())) for chunk in range(stream.chunks)]
    all_costs = tuple(sorted({index for bundles in costs for index in bundles}))
    parts = [
        (part, partial(reader.verify_part, part), bundles)
        for part, bundles in enumerate([all_costs, *costs, all_costs])
    ]
    chunks = [
        (chunk + 1, partial(reader.batch, chunk), bundles) for chunk, bundles in enumerate(costs)
    ]
    whole: list[_Check] = [(0, reader.verify_whole, ())]
    return _failed(reader, parts) or _failed(reader, chunks) or _failed(reader, whole)


def _failed(reader: StreamReader, checks: Sequence[_Check]) -> list[BadPart]:
    found = []
    for part, check, bundles in checks:
        try:
            check()
        except Damaged as error:
            found.append(BadPart(*reader.place(part), bundles, str(error)))
    return found


def _in_padding(
    segment: memoryview, trailer: Trailer, readers: Sequence[StreamReader]
) -> Iterator[BadPart]:
    """Bytes between streams that are not zero; they cost nothing."""
    ends = [HEADER_BYTES, *(reader.entry.position + reader.entry.length for reader in readers)]
    starts = [*(reader.entry.position for reader in readers), trailer.footer_position]
    for end, start in zip(ends, starts, strict=True):
        if any(segment[end:start]):
            yield BadPart(end, start - end, (), "padding that is not zero")
