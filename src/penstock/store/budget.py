"""How much disk one store may use, when several processes share a limit.

`EvenShare` splits it for good: nothing to coordinate, but a hot core waits while idle ones leave
theirs unused. `FairShare` lets a store borrow what others leave, through a small shared file. A
server has a `SizeCap` (see `size_cap`), which shares the file among as many stores as there are.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from isal.isal_zlib import crc32

from penstock.model.clock import Clock, SystemClock
from penstock.model.errors import Damaged, InvalidSetting, LogLocked
from penstock.storage.files import OUT_OF_SPACE, LocalFiles, read_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.storage.files import Files, Lock


class Budget(Protocol):
    """Asked off the hot path: now and then, and whenever a store would go over its limit."""

    whole_folder: bool
    """Whether it covers all that the store's folder takes on disk, and will take once sealed; else
    log and segments alone."""

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:
        """What the store may use now. `wanted_bytes` says how much it would like, to go on."""
        ...

    @property
    def most_bytes(self) -> int:
        """What the store can ever get."""
        ...

    def close(self) -> None:
        """The store is closed. What it uses still counts."""
        ...


class EvenShare:
    """An equal part for each of `stores` stores.

    Together they may be over the total by one segment for each store that is sealing.
    """

    def __init__(self, total_bytes: int, stores: int = 1) -> None:
        if stores < 1 or total_bytes < stores:
            raise InvalidSetting("a budget needs at least one store and one byte for each")
        self.whole_folder = False
        self._share = total_bytes // stores

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:  # noqa: ARG002 - never changes
        """Its part."""
        return self._share

    @property
    def most_bytes(self) -> int:
        """Its part."""
        return self._share

    def close(self) -> None:
        """Nothing to give back."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One store's line in the shared file."""

    key: bytes
    used_bytes: int
    granted_bytes: int
    asks_bytes: int
    """What it lacks of its equal share and could not get; others give way."""
    asked_at_ns: int

    @property
    def held_bytes(self) -> int:
        """What nobody else may have."""
        return max(self.granted_bytes, self.used_bytes)


class FairShare:
    """A part of what is there, by need.

    Invariant: what the stores hold never exceeds the total together, and no store uses more than
    it holds, but for the one segment that it may be sealing. Each store can get its equal share:
    whoever holds more stops growing, and shrinks, as soon as another one asks.
    A claim is one short hold of the file. A dead store's use still counts, since its files are
    still there; it finds its line again by `key`.
    """

    def __init__(
        self,
        path: Path,
        total_bytes: int,
        stores: int,
        *,
        key: str,
        unit_bytes: int,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`unit_bytes`: what is claimed at a time, and always left for a store that is idle."""
        if stores < 1 or total_bytes < 2 * stores * unit_bytes:
            raise InvalidSetting("a fair budget needs room for two units of every store")
        self.whole_folder = False
        self._file = SharedFile(files or LocalFiles(), path)
        self._clock = clock or SystemClock()
        self._total = total_bytes
        self._stores = stores
        self._unit = unit_bytes
        self._key = line_key(key)

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:
        """Brings its line up to date, claiming or giving back; returns what it may use."""
        with self._file.held():
            others = [claim for claim in self._file.claims() if claim.key != self._key]
            mine = self._decide(others, used_bytes, wanted_bytes)
            self._file.write([*others, mine])
        return mine.granted_bytes

    @property
    def most_bytes(self) -> int:
        """All but what is always left for the others."""
        return self._total - (self._stores - 1) * self._unit

    def close(self) -> None:
        """Keeps only what it uses, and asks for nothing more."""
        with self._file.held():
            claims = self._file.claims()
            kept = [_at_rest(claim) if claim.key == self._key else claim for claim in claims]
            self._file.write(kept)

    def _decide(self, others: list[Claim], used: int, wanted: int) -> Claim:
        share, unit = self._total // self._stores, self._unit
        now = self._clock.wall_ns()
        absent = max(0, self._stores - 1 - len(others))
        held = sum(max(claim.held_bytes, unit) for claim in others) + absent * unit
        free = self._total - held
        asked = asked_of(others, now)
        # Beyond its share a store may have only what nobody else asks for.
        most = max(share, free - asked) if free > share else free
        need = -(-max(used, wanted) // unit) * unit
        granted = max(0, min(need, most))
        return Claim(self._key, used, granted, max(0, min(need, share) - granted), now)


def line_key(key: str) -> bytes:
    """What stands in a store's line."""
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def asked_of(others: list[Claim], now_ns: int) -> int:
    """What others lack of their shares. A wish that is not said again is forgotten."""
    return sum(c.asks_bytes for c in others if now_ns - c.asked_at_ns < _ASKING_NS)


def _at_rest(claim: Claim) -> Claim:
    return replace(claim, granted_bytes=claim.used_bytes, asks_bytes=0)


class SharedFile:
    """Lines of 64 bytes, each with its CRC.

    Not synced: after a power loss every store writes its line anew, and a damaged line is as good
    as none.
    """

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        lock = self._lock()
        try:
            yield
        finally:
            lock.release()

    def claims(self) -> list[Claim]:
        try:
            data = read_whole(self._files, self._path)
        except FileNotFoundError:
            return []
        return [claim for claim in _decode_lines(data) if claim is not None]

    def write(self, claims: list[Claim]) -> None:
        head = _seal_line(_HEAD.pack(_MAGIC, _VERSION))
        parts = [head, *map(_encode_line, claims)]
        scratch = self._path.with_name(self._path.name + ".tmp")
        try:
            self._write(scratch, parts)
        except OSError as error:
            if error.errno not in OUT_OF_SPACE:
                raise
            self._files.remove(scratch)
            self._write(self._path, parts)  # in the room of what it replaces
        else:
            self._files.rename(scratch, self._path)

    def _write(self, path: Path, parts: list[bytes]) -> None:
        file = self._files.create(path)
        try:
            file.pwrite(parts, 0)
        finally:
            file.close()

    def _lock(self) -> Lock:
        path = self._path.with_name(self._path.name + ".lock")
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._files.lock(path)
            except LogLocked:
                if time.monotonic() > until:
                    raise
                time.sleep(0.0005)


def read_claims(files: Files, path: Path) -> list[Claim] | None:
    """What stands in a shared file; None where it is something else, Damaged where not all does."""
    file = files.open(path)
    try:
        is_budget = file.pread(len(_MAGIC), 0) == _MAGIC
        data = file.pread(file.size(), 0) if is_budget else b""
    finally:
        file.close()
    if not is_budget:
        return None
    claims = [claim for claim in _decode_lines(data) if claim is not None]
    if _decode_line(data[:LINE_BYTES]) is None or len(claims) < len(_decode_lines(data)):
        raise Damaged("the checksum of a line of the budget does not match")
    return claims


LINE_BYTES: Final = 64
_HEAD = struct.Struct("<8sH")
_LINE = struct.Struct("<16sQQQQ")
_CRC = struct.Struct("<I")
_MAGIC: Final = b"PNSTKBGT"
_VERSION: Final = 1
_ASKING_NS: Final = 30 * 10**9
_PATIENCE_S: Final = 10.0


def _encode_line(claim: Claim) -> bytes:
    numbers = (claim.used_bytes, claim.granted_bytes, claim.asks_bytes, claim.asked_at_ns)
    return _seal_line(_LINE.pack(claim.key, *numbers))


def _seal_line(fields: bytes) -> bytes:
    body = fields.ljust(LINE_BYTES - _CRC.size, b"\0")
    return body + _CRC.pack(crc32(body))


def _decode_lines(data: bytes) -> list[Claim | None]:
    """Behind the head; None for each that is damaged."""
    starts = range(LINE_BYTES, len(data), LINE_BYTES)
    return [_decode_line(data[at : at + LINE_BYTES]) for at in starts]


def _decode_line(line: bytes) -> Claim | None:
    whole = len(line) == LINE_BYTES and _CRC.unpack(line[-4:])[0] == crc32(line[:-4])
    return Claim(*_LINE.unpack_from(line)) if whole else None
