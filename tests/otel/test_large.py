"""Requests that are small to send and large to parse."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest
from google.protobuf.message import DecodeError

from penstock.model.errors import InvalidArgument
from penstock.otel import Signal, check_request
from penstock.otel.parts import FIELDS_OF_A_PART, count_parts
from tests.otel.samples import encoded, full_request, piece, record_piece

MILLIONS = 2_000_000
MOST_MEGABYTES = 160
"""Parsing them takes 100 to 500; what is left of this is for what the allocator keeps."""

BOMBS = {
    "records": "piece(10, piece(18, b'\\x12\\0' * 2_000_000))",
    "small records": "piece(10, piece(18, b'\\x12\\3\\x1a\\1x' * 800_000))",
    "resources": "b'\\x0a\\0' * 2_000_000",
    "scopes": "piece(10, b'\\x12\\0' * 2_000_000)",
    "attributes": "record_piece(b'\\x32\\0' * 2_000_000)",
    "attributes of a resource": "piece(10, piece(10, b'\\x0a\\0' * 2_000_000))",
    "items of an array": ("record_piece(piece(50, piece(18, piece(42, b'\\x0a\\0' * 2_000_000))))"),
    "arrays in arrays": (
        "record_piece(piece(50, piece(18, piece(42, b'\\x0a\\2\\x2a\\0' * 1_000_000))))"
    ),
}
CODE = """
import resource
from penstock.model.errors import InvalidArgument
from penstock.otel import Signal, check_request
from tests.otel.samples import piece, record_piece
data = {bomb}
check_request(Signal.LOGS, b"")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    check_request(Signal.LOGS, data)
except InvalidArgument as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in KiB as Linux does")
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_millions_of_parts_are_refused_in_bounded_memory(bomb: str) -> None:
    """4 MB of a request must not take the memory of a worker."""
    answer = subprocess.run(
        [sys.executable, "-c", CODE.format(bomb=bomb)],
        capture_output=True,
        check=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    refusal, megabytes = answer.stdout.splitlines()
    assert "too many" in refusal
    assert int(megabytes) < MOST_MEGABYTES


def test_deep_groups_do_not_overflow_the_stack() -> None:
    """Counting would follow them until it crashes: the parser must see them first."""
    groups = b"\xa3\x01" * 1_000_000 + b"\xa4\x01" * 1_000_000
    with pytest.raises(InvalidArgument, match="group"):
        check_request(Signal.LOGS, record_piece(groups + piece(0x32, b"") * 300_000))


def test_large_records_with_many_zeros_are_no_bombs() -> None:
    """A long text of control characters is odd, and one part."""
    request = record_piece(piece(0x2A, piece(0x0A, b"\0" * 3_000_000)))
    assert check_request(Signal.LOGS, request).records == 1


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_every_part_is_counted_once(signal: Signal) -> None:
    """Those within nested values too."""
    request = full_request(signal, 8)
    assert count_parts(signal, encoded(request), 10**6) == parts_of(request)


def parts_of(message: object) -> int:
    """Every message that is one of a list, however deep."""
    total = 0
    for field, value in message.ListFields():  # type: ignore[attr-defined]
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else [value]:
            total += field.is_repeated + parts_of(part)
    return total


def test_counting_stops_at_the_first_part_that_is_too_many() -> None:
    """However deep it lies; as many as may be are taken."""
    inner = piece(0x0A, piece(0x2A, piece(0x0A, b"") * 50))
    request = record_piece(piece(0x32, piece(0x12, piece(0x2A, inner * 20))))
    assert count_parts(Signal.LOGS, request, 1024) == 1024
    with pytest.raises(InvalidArgument, match="too many records"):
        count_parts(Signal.LOGS, request, 1023)


def test_fields_that_are_no_parts_are_bounded_too() -> None:
    """A number takes no memory, but the time to skip it."""
    with pytest.raises(InvalidArgument, match="too many fields"):
        count_parts(Signal.LOGS, record_piece(b"\x10\x01" * (10 * FIELDS_OF_A_PART + 1)), 10)


@pytest.mark.parametrize("hidden", [b"\xa3\x01\xa4\x01", b"\x80\x80\x04\x00", b"\xa2\x06\x01x"])
def test_parts_behind_what_nobody_knows_are_counted(hidden: bytes) -> None:
    """Groups, large field numbers and unknown fields end where the parser thinks they do."""
    request = record_piece(hidden + piece(0x32, b"") * 50)
    assert count_parts(Signal.LOGS, request, 100) == 53


def test_random_requests_never_have_more_parts_than_were_counted() -> None:
    """What was damaged on its way is refused, or was counted as it is parsed."""
    random, whole = Random(5), encoded(full_request(Signal.TRACES, 3))
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        try:
            request = Signal.TRACES.request_class.FromString(bytes(data))
        except DecodeError:
            continue
        assert parts_of(request) <= count_parts(Signal.TRACES, bytes(data), 10**6)
