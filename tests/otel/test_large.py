"""Requests that are small to send and large to parse."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.model.errors import InvalidArgument
from penstock.otel import Signal, check_request
from penstock.otel.shape import measure
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
    shape = measure(signal, encoded(request), 10**6)
    assert shape.parts == count_parts(request)


def count_parts(message: object) -> int:
    """Every message that is one of a list, however deep."""
    total = 0
    for field, value in message.ListFields():  # type: ignore[attr-defined]
        if field.message_type is None:
            continue
        for part in value if field.is_repeated else [value]:
            total += field.is_repeated + count_parts(part)
    return total


def test_counting_stops_when_there_are_enough() -> None:
    """What lies deeper is not looked at."""
    inner = piece(0x0A, piece(0x2A, piece(0x0A, b"") * 50))
    request = record_piece(piece(0x32, piece(0x12, piece(0x2A, inner * 20))))
    assert measure(Signal.LOGS, request, 10).parts == 24
    assert measure(Signal.LOGS, request, 100).parts == 1024
