"""Raw requests as the bundles of a segment: object storage has them as clients sent them."""

from __future__ import annotations

from itertools import count, groupby
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.bundle import Bundle
from penstock.model.errors import Damaged, PenstockError
from penstock.otel.decode import decode_requests
from penstock.segment import StoredBundle
from penstock.segment.tables import ManifestEntry
from penstock.store.messages import decode_bundle, decode_raw

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from penstock.otel.signals import Signal


class _Piece(NamedTuple):
    first_offset: int
    messages: int
    bundle: Bundle | None
    problem: str


class RequestBundles:
    """Requests of one signal, decoded together where their offsets follow each other."""

    def __init__(self, name: str, pieces: Iterable[_Piece]) -> None:
        """Use `of_requests` or `of_messages`."""
        self.name = name
        self._pieces = list(pieces)
        held = (piece.bundle for piece in self._pieces if piece.bundle is not None)
        self.slots: tuple[int, ...] = tuple(sorted(set().union(*held)))

    @classmethod
    def of_requests(
        cls, name: str, signal: Signal, requests: Iterable[tuple[int, bytes]]
    ) -> RequestBundles:
        """Each with its offset, in their order."""
        runs = _runs(requests)
        return cls(name, (piece for run in runs for piece in _decoded(signal, *run)))

    @classmethod
    def of_messages(
        cls,
        name: str,
        signal: Signal,
        messages: Iterable[tuple[int, bytes]],
        lost: Iterable[tuple[int, int]] = (),
    ) -> RequestBundles:
        """Messages of a log: requests or bundles. Of the `lost` offsets there are none."""
        requests: list[tuple[int, bytes]] = []
        pieces = [_Piece(first, end - first, None, "lost before") for first, end in lost]
        for offset, message in messages:
            raw = decode_raw(message)
            if raw is None:
                pieces.append(_bundle(offset, message))
            else:
                requests.append((offset, raw))
        pieces += (piece for run in _runs(requests) for piece in _decoded(signal, *run))
        return cls(name, sorted(pieces, key=lambda piece: piece.first_offset))

    def __len__(self) -> int:
        """How many bundles they make."""
        return len(self._pieces)

    def manifest(self, index: int) -> ManifestEntry:
        """What the bundle is."""
        piece = self._pieces[index]
        items = 0 if piece.bundle is None else piece.bundle.items or 0
        return ManifestEntry(piece.first_offset, piece.messages, items, 0, ())

    def bundle(self, index: int, slots: Collection[int] | None = None) -> StoredBundle:
        """The bundle; Damaged where the request in its place cannot be decoded."""
        piece = self._pieces[index]
        if piece.bundle is None:
            reason = f"message {piece.first_offset} cannot be decoded: {piece.problem}"
            raise Damaged(f"{self.name}: {reason}")
        held = piece.bundle
        if slots is not None:
            kept = {slot: table for slot, table in held.slots.items() if slot in slots}
            held = Bundle.trusted(kept, held.items or 0)
        return StoredBundle(held, piece.first_offset, piece.messages, 0, index)


def _runs(requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
    """Those together whose offsets follow each other, with the first one's."""
    numbers = count()
    for _, run in groupby(requests, key=lambda each: each[0] - next(numbers)):
        offsets, messages = zip(*run, strict=True)
        yield offsets[0], list(messages)


def _bundle(offset: int, message: bytes) -> _Piece:
    try:
        return _Piece(offset, 1, decode_bundle(message), "")
    except PenstockError as error:
        return _Piece(offset, 1, None, str(error))


def _decoded(signal: Signal, offset: int, messages: list[bytes]) -> Iterator[_Piece]:
    for part in decode_requests(signal, messages):
        yield _Piece(offset, part.count, part.bundle, part.problem)
        offset += part.count
