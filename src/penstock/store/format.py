"""The events in `ack.log`, byte by byte. See docs/formats/ack-log.md.

The file is a log file (docs/formats/log.md); each message in it is one event:

    snapshot     := 1:u8 JSON, the whole state
    sealed       := 2:u8 segment
    removed      := 3:u8 reason:u8 segment_seq:u64 end_offset:u64
    registered   := 4:u8 subscriber:u32 start_seq:u64 name (UTF-8)
    unregistered := 5:u8 subscriber:u32
    activated    := 6:u8 subscriber:u32 active:u8
    outcome      := 7:u8 outcome:u8 subscriber:u32 segment_seq:u64 first_bundle:u32 bundles:u32
                    time_ns:i64
    segment      := segment_seq:u64 first_offset:u64 end_offset:u64 bundles:u64 items:u64 size:u64
                    first_ingested_at_ns:i64 last_ingested_at_ns:i64 sealed_at_ns:i64

All integers are little-endian. Events can be applied more than once, and out of order each proves
what it says: a lost event never makes a later one wrong.
"""

from __future__ import annotations

import enum
import json
import struct
from dataclasses import astuple, dataclass
from typing import Any, Final, TypeAlias

from penstock.model.errors import Damaged
from penstock.segment.format import SegmentInfo

SNAPSHOT: Final = 1
_SEALED, _REMOVED, _REGISTERED, _UNREGISTERED, _ACTIVATED, _OUTCOME = range(2, 8)

_SEGMENT = struct.Struct("<BQQQQQQqqq")
_REMOVAL = struct.Struct("<BBQQ")
_REGISTRATION = struct.Struct("<BIQ")
_SUBSCRIBER = struct.Struct("<BI")
_ACTIVATION = struct.Struct("<BI?")
_ANSWER = struct.Struct("<BBIQIIq")


class Outcome(enum.IntEnum):
    """What became of a bundle that a subscriber was to get."""

    ACKED = 1
    NACKED = 2
    """To be delivered again; the only one that settles nothing."""
    REJECTED = 3
    """The subscriber will never take it."""
    DROPPED = 4
    """Deleted before the subscriber had it: by age, or to make room."""
    LOST = 5
    """Unreadable."""


class Reason(enum.IntEnum):
    """Why a segment was removed."""

    ACKED = 1
    """Every subscriber has all of it."""
    AGE = 2
    """Older than `max_age_s`."""
    SIZE = 3
    """To make room within the disk budget."""
    LOST = 4
    """The file was not there any more."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state; what came before it does not matter."""

    state: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A segment is durable."""

    info: SegmentInfo


@dataclass(frozen=True, slots=True)
class Removed:
    """A segment is being removed; its file may still be there."""

    reason: Reason
    segment_seq: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A subscriber is to get every bundle from segment `start_seq` on."""

    subscriber: int
    start_seq: int
    name: str


@dataclass(frozen=True, slots=True)
class Unregistered:
    """A subscriber is gone for good."""

    subscriber: int


@dataclass(frozen=True, slots=True)
class Activated:
    """A subscriber receives, or pauses."""

    subscriber: int
    active: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """What became of `bundles` bundles of a segment, from `first_bundle` on."""

    outcome: Outcome
    subscriber: int
    segment_seq: int
    first_bundle: int
    bundles: int
    time_ns: int


Event: TypeAlias = Snapshot | Sealed | Removed | Registered | Unregistered | Activated | Answered


def encode_event(event: Event) -> bytes:
    """The message of one event."""
    match event:
        case Answered(outcome, subscriber, seq, first, count, time_ns):
            return _ANSWER.pack(_OUTCOME, outcome, subscriber, seq, first, count, time_ns)
        case Sealed(info):
            return _SEGMENT.pack(_SEALED, *astuple(info))
        case Removed(reason, seq, end_offset):
            return _REMOVAL.pack(_REMOVED, reason, seq, end_offset)
        case Registered(subscriber, start_seq, name):
            return _REGISTRATION.pack(_REGISTERED, subscriber, start_seq) + name.encode()
        case Unregistered(subscriber):
            return _SUBSCRIBER.pack(_UNREGISTERED, subscriber)
        case Activated(subscriber, active):
            return _ACTIVATION.pack(_ACTIVATED, subscriber, active)
        case Snapshot(state):
            return bytes([SNAPSHOT]) + json.dumps(state, separators=(",", ":")).encode()


def decode_event(message: bytes) -> Event:
    """The event in a message whose CRC was verified; Damaged for anything else."""
    try:
        return _decode(message)
    except (struct.error, ValueError, IndexError, TypeError, RecursionError):
        raise Damaged("not an event of an acknowledgement log") from None


def _decode(message: bytes) -> Event:
    match message[0]:
        case 7:
            _, outcome, subscriber, seq, first, count, time_ns = _ANSWER.unpack(message)
            return Answered(Outcome(outcome), subscriber, seq, first, count, time_ns)
        case 2:
            return Sealed(SegmentInfo(*_SEGMENT.unpack(message)[1:]))
        case 3:
            _, reason, seq, end_offset = _REMOVAL.unpack(message)
            return Removed(Reason(reason), seq, end_offset)
        case 4:
            _, subscriber, start_seq = _REGISTRATION.unpack_from(message)
            return Registered(subscriber, start_seq, message[_REGISTRATION.size :].decode())
        case 5:
            return Unregistered(_SUBSCRIBER.unpack(message)[1])
        case 6:
            _, subscriber, active = _ACTIVATION.unpack(message)
            return Activated(subscriber, active)
        case 1:
            return Snapshot(json.loads(message[1:]))
        case unknown:
            raise ValueError(unknown)
