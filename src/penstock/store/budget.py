"""How much disk one store may use, when several processes share a limit.

`EvenShare` splits it for good: nothing to coordinate, but a hot core waits while idle ones leave
theirs unused. The others share a ledger, a small file in which each store has a line: `FairShare`
among a known number of stores, `SizeCap`, a server's, among as many as there are.

Invariant of a ledger: what all stores hold together never exceeds the total. A store uses what it
holds, but for the segment that it is sealing; those that have no room for theirs seal one after the
other in each process, so that the disk is over the total by no more than one segment a process.
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
from penstock.model.settings import KIB
from penstock.storage.files import OUT_OF_SPACE, LocalFiles, read_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
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
    """A part of what is there for each of `stores` stores, by need.

    Each store can get its equal share: whoever holds more stops growing, and shrinks, as soon as
    another one asks. A claim is one short hold of the file. A dead store's use still counts, since
    its files are still there; it finds its line again by `key`.
    """

    whole_folder: bool = False

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
        self._ledger = Ledger(path, files, clock)
        self._total = total_bytes
        self._stores = stores
        self._unit = unit_bytes
        self._key = line_key(key)

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:
        """Brings its line up to date, claiming or giving back; returns what it may use."""

        def decide(others: list[Claim], now_ns: int) -> Claim:
            absent = max(0, self._stores - 1 - len(others))
            held = sum(max(each.held_bytes, self._unit) for each in others) + absent * self._unit
            need = _rounded(max(used_bytes, wanted_bytes), self._unit)
            share, free = self._total // self._stores, self._total - held
            granted = _granted(need, share, free, asked_of(others, now_ns))
            return Claim(self._key, used_bytes, granted, _lacks(need, share, granted), now_ns)

        return self._ledger.update(self._key, decide)

    @property
    def most_bytes(self) -> int:
        """All but what is always left for the others."""
        return self._total - (self._stores - 1) * self._unit

    def close(self) -> None:
        """Keeps only what it uses, and asks for nothing more."""
        with self._ledger.held():
            claims = self._ledger.claims()
            kept = [_at_rest(claim) if claim.key == self._key else claim for claim in claims]
            self._ledger.write(kept)


LEAST_STORE_BYTES: Final = 960 * KIB
"""A store that may have less cannot work: its logs are begun with zeros, and segments have a least
size."""
_UNITS: Final = 256
"""A cap is handed out in so many parts."""


class SizeCap:
    """One store's view of the limit over all that a server keeps: every topic and every worker.

    Equal parts for the stores that there are, however many: a new one makes the parts smaller. With
    `borrows` a store may use what others leave, and has to give it back when one asks for its part.
    What is used beyond a part that has become smaller is not taken away; until it is freed, others
    wait.
    """

    whole_folder: bool = True

    def __init__(self, path: Path, total_bytes: int, *, key: str, borrows: bool) -> None:
        self._ledger = Ledger(path)
        self._total = total_bytes
        self._borrows = borrows
        self._unit = max(4 * KIB, total_bytes // _UNITS)
        self._key = line_key(key)

    @property
    def most_bytes(self) -> int:
        """Everything, where no other store has anything."""
        return self._total

    def limit(self, used_bytes: int, wanted_bytes: int) -> int:
        """Brings its line up to date, claiming or giving back; returns what it may use."""

        def decide(others: list[Claim], now_ns: int) -> Claim:
            return self._decide(others, now_ns, used_bytes, wanted_bytes)

        return self._ledger.update(self._key, decide)

    def enter(self) -> bool:
        """Makes room for a store that is not there yet; False where there is none at present.

        Never for more stores than could each have what one needs at least: they would all starve.
        Where others have borrowed its part, the file says so, and they give it back.
        """
        with self._ledger.held():
            now_ns = self._ledger.now_ns()
            claims = [claim for claim in self._ledger.claims() if claim.key != self._key]
            # Whoever holds nothing and asks for nothing gave up.
            others = [each for each in claims if each.held_bytes or asked_of([each], now_ns)]
            if (len(others) + 1) * LEAST_STORE_BYTES > self._total:
                return False
            mine = self._decide(others, now_ns, 0, LEAST_STORE_BYTES)
            self._ledger.write([*others, mine])
        return mine.granted_bytes >= LEAST_STORE_BYTES

    def close(self) -> None:
        """Its last line stands: what it uses still counts."""

    def _decide(self, others: list[Claim], now_ns: int, used: int, wanted: int) -> Claim:
        share = self._total // (len(others) + 1)
        free = self._total - sum(claim.held_bytes for claim in others)
        need = _rounded(max(used, wanted), self._unit)
        asked = asked_of(others, now_ns) if self._borrows else free
        granted = _granted(need, share, free, asked)
        return Claim(self._key, used, granted, _lacks(need, share, granted), now_ns)


def begin_ledger(path: Path, used: Mapping[str, int]) -> None:
    """Writes the file anew, from what the stores take on disk. Nobody may have a store open.

    So stores that are gone count no longer, and those that cannot be opened do.
    """
    ledger = Ledger(path)
    with ledger.held():
        ledger.write([Claim(line_key(key), size, size, 0, 0) for key, size in used.items()])


def line_key(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def asked_of(others: list[Claim], now_ns: int) -> int:
    """What others lack of their shares. A wish that is not said again is forgotten."""
    return sum(c.asks_bytes for c in others if now_ns - c.asked_at_ns < _ASKING_NS)


def _granted(need: int, share: int, free: int, asked: int) -> int:
    """Its share, as far as that is free; beyond it only what is free and nobody else asks for."""
    most = max(share, free - asked) if free > share else free
    return max(0, min(need, most))


def _lacks(need: int, share: int, granted: int) -> int:
    return max(0, min(need, share) - granted)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _at_rest(claim: Claim) -> Claim:
    return replace(claim, granted_bytes=claim.used_bytes, asks_bytes=0)


class Ledger:
    """The file: lines of 64 bytes, each with its CRC.

    Not synced: after a power loss every store writes its line anew, and a damaged line is as good
    as none.
    """

    def __init__(self, path: Path, files: Files | None = None, clock: Clock | None = None) -> None:
        self._path = path
        self._files = files or LocalFiles()
        self.now_ns = (clock or SystemClock()).wall_ns

    def update(self, key: bytes, decide: Callable[[list[Claim], int], Claim]) -> int:
        """Decides a line by those of the others, with nobody in between; what it is granted."""
        with self.held():
            others = [claim for claim in self.claims() if claim.key != key]
            mine = decide(others, self.now_ns())
            # What all hold together is within the total: the line is decided by what stands here.
            self.write([*others, mine])
        return mine.granted_bytes

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
