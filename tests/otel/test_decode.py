"""Which requests share a bundle, and what becomes of those that cannot be decoded."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import types

from penstock.model import slots
from penstock.model.errors import InvalidArgument
from penstock.model.slots import MESSAGE_RECORDS
from penstock.otel import (
    DecodedRequests,
    Signal,
    check_request,
    decode,
    decode_requests,
    encode_bundle,
)
from penstock.otel.descriptors import flat_handler
from tests.otel.samples import (
    bundle_of,
    canonical,
    encoded,
    full_request,
    piece,
    record_piece,
    rows,
)

LOGS, TRACES, METRICS = Signal.LOGS, Signal.TRACES, Signal.METRICS
NOT_A_REQUEST = b"\xff" * 11


def logs(count: int, body: str = "") -> bytes:
    """A request with so many log records."""
    request: Any = LOGS.request_class()
    records = request.resource_logs.add().scope_logs.add().log_records
    for _ in range(count):
        records.add().body.string_value = body
    return encoded(request)


def counts(decoded: list[DecodedRequests]) -> list[tuple[int, int | None]]:
    """Messages and items of each bundle; None where there is none."""
    return [(each.count, each.bundle.items if each.bundle else None) for each in decoded]


def test_consecutive_requests_share_a_bundle() -> None:
    """Resources, scopes and records are numbered on from one to the next."""
    bundle = bundle_of(LOGS, *(full_request(LOGS, seed) for seed in range(3)))
    found = rows(bundle, slots.LOGS)
    ids = [row["id"] for row in found]
    resources = [row["resource"]["id"] for row in found]
    assert ids == list(range(len(ids)))
    assert resources == sorted(resources)
    assert resources[-1] > 2


def test_no_requests_are_no_bundles() -> None:
    """There is nothing to cover."""
    assert decode_requests(LOGS, []) == []


def test_rows_can_be_traced_to_their_request() -> None:
    """Each bundle says how many root records each of its messages has."""
    [decoded] = decode_requests(LOGS, [logs(3), b"", logs(2)])
    assert decoded.records == (3, 0, 2)
    assert decoded.bundle is not None
    assert decoded.bundle[MESSAGE_RECORDS].column("records").to_pylist() == [3, 0, 2]


def test_a_bundle_of_one_request_needs_no_table_of_messages() -> None:
    """All rows are its own."""
    [decoded] = decode_requests(LOGS, [logs(3)])
    assert decoded.records == (3,)
    assert decoded.bundle is not None
    assert MESSAGE_RECORDS not in decoded.bundle


def test_requests_are_divided_where_they_are_large() -> None:
    """A bundle is decoded at once, and takes memory for all of it."""
    messages = [logs(1, "x" * 1000)] * 5
    decoded = decode_requests(LOGS, messages, bundle_bytes=2500)
    assert counts(decoded) == [(2, 2), (2, 2), (1, 1)]


def test_requests_are_divided_where_ids_would_run_out() -> None:
    """A bundle numbers its records, scopes and resources with 16 bits each."""
    decoded = decode_requests(LOGS, [logs(10_000)] * 10)
    assert counts(decoded) == [(6, 60_000), (4, 40_000)]
    assert all(each.bundle[slots.LOGS].num_rows <= 65_535 for each in decoded if each.bundle)


@pytest.mark.parametrize("tag", [0x0A, 0x12])
def test_resources_and_scopes_are_counted_too(tag: int) -> None:
    """Even where they hold no records."""
    many = piece(tag, b"") * 40_000
    message = many if tag == 0x0A else piece(0x0A, many)
    assert [each.count for each in decode_requests(LOGS, [message] * 3)] == [1, 1, 1]


def test_as_many_records_as_there_are_ids_fit() -> None:
    """And one more does not, alone in its request."""
    assert counts(decode_requests(LOGS, [logs(65_535)])) == [(1, 65_535)]
    [refused] = decode_requests(LOGS, [logs(65_536)])
    assert refused.bundle is None
    assert "65535" in refused.problem


def test_requests_beside_one_that_is_too_large_are_decoded() -> None:
    """It alone is set aside."""
    decoded = decode_requests(LOGS, [logs(2), logs(65_536), logs(3)])
    assert counts(decoded) == [(1, 2), (1, None), (1, 3)]


@pytest.mark.parametrize("place", range(5))
def test_requests_beside_a_malformed_one_are_decoded(place: int) -> None:
    """Every message is covered, in order."""
    messages = [logs(number + 1) for number in range(5)]
    messages[place] = NOT_A_REQUEST
    decoded = decode_requests(LOGS, messages)
    assert sum(each.count for each in decoded) == 5
    assert [number for each in decoded for number in each.records or (None,)] == [
        None if number == place else number + 1 for number in range(5)
    ]
    assert [each.problem for each in decoded if each.bundle is None] == [
        "ValueError: failed to decode Protobuf message: varint too large"
    ]


def test_all_requests_may_be_malformed() -> None:
    """Each is an entry of its own."""
    decoded = decode_requests(LOGS, [NOT_A_REQUEST] * 4)
    assert counts(decoded) == [(1, None)] * 4


def test_a_panic_in_the_decoder_is_a_problem_of_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a Rust library raises is no `Exception`."""

    class PanicException(BaseException):
        """Named as they are."""

    class Handler:
        def list_to_record_batch(self, _messages: list[bytes]) -> None:
            raise PanicException("out of range")

    monkeypatch.setattr(decode, "flat_handler", lambda _signal: Handler())
    assert [each.problem for each in decode_requests(LOGS, [b"", b""])] == [
        "PanicException: out of range"
    ] * 2


def test_an_interrupt_is_no_problem_of_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must end the program."""

    def interrupted(_signal: Signal) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(decode, "flat_handler", interrupted)
    with pytest.raises(KeyboardInterrupt):
        decode_requests(LOGS, [b""])


MALFORMED_VALUE = record_piece(piece(0x32, piece(0x12, piece(0x2A, b"\xff"))))
"""An attribute of a log record whose array is no array."""


def test_a_value_that_only_the_official_parser_refuses_is_a_problem() -> None:
    """What is in nested values is looked at late; it is refused before, or set aside."""
    with pytest.raises(InvalidArgument, match=r"attributes\[0\]\.value\.array_value"):
        check_request(LOGS, MALFORMED_VALUE)
    decoded = decode_requests(LOGS, [logs(1), MALFORMED_VALUE])
    assert counts(decoded) == [(1, 1), (1, None)]
    assert decoded[1].problem.startswith("DecodeError")


INT, TEXT, ARRAY = b"\x18\5", piece(0x0A, b"s"), piece(0x2A, b"")
AS_INT, AS_DOUBLE = b"\x31" + bytes(8), b"\x21" + bytes(8)
GAUGE, SUM = piece(0x2A, b""), piece(0x3A, piece(0x0A, b""))


def several_values(first: bytes, last: bytes, *tags: int) -> bytes:
    """A record with both within the fields of the given tags."""
    contents = first + last
    for tag in tags:
        contents = piece(tag, contents)
    return record_piece(contents)


SEVERAL_VALUES = {
    "text, number": (LOGS, several_values(TEXT, INT, 0x12, 0x32)),
    "number, text": (LOGS, several_values(INT, TEXT, 0x12, 0x32)),
    "array, text": (LOGS, several_values(ARRAY, TEXT, 0x2A)),
    "text, array": (LOGS, several_values(TEXT, ARRAY, 0x2A)),
    "int, double": (METRICS, several_values(AS_INT, AS_DOUBLE, 0x0A, 0x2A)),
    "double, int": (METRICS, several_values(AS_DOUBLE, AS_INT, 0x0A, 0x2A)),
    "gauge, sum": (METRICS, several_values(GAUGE, SUM)),
    "sum, gauge": (METRICS, several_values(SUM, GAUGE)),
}


@pytest.mark.parametrize(("signal", "message"), SEVERAL_VALUES.values(), ids=SEVERAL_VALUES)
def test_the_last_of_several_values_counts(signal: Signal, message: bytes) -> None:
    """Protobuf says so; no client sends such a thing."""
    [decoded] = decode_requests(signal, [message, b""])
    assert decoded.bundle is not None
    assert canonical(signal, encode_bundle(signal, decoded.bundle)) == canonical(signal, message)


SPLIT_FIELDS = {
    "resource": piece(0x0A, piece(0x0A, piece(0x0A, b"")) * 2 + piece(0x12, piece(0x12, b""))),
    "status": record_piece(piece(0x7A, piece(0x12, b"why")) + piece(0x7A, b"\x18\2")),
    "value": record_piece(piece(0x4A, piece(0x12, piece(0x0A, b"s")) + piece(0x12, b""))),
    "array": record_piece(piece(0x4A, piece(0x12, piece(0x2A, piece(0x0A, b"\x18\1")) * 2))),
    "name": record_piece(piece(0x2A, b"first") + piece(0x2A, b"last")),
}


@pytest.mark.parametrize("message", SPLIT_FIELDS.values(), ids=SPLIT_FIELDS)
def test_fields_that_appear_twice_are_merged(message: bytes) -> None:
    """As the official parser does."""
    bundle = bundle_of(TRACES, TRACES.request_class.FromString(message))
    [decoded] = decode_requests(TRACES, [message])
    assert decoded.bundle == bundle
    assert canonical(TRACES, encode_bundle(TRACES, bundle)) == canonical(TRACES, message)


def test_fields_that_are_not_known_are_ignored() -> None:
    """A newer client may send them; the log keeps the request as it came."""
    extended = record_piece(piece(0x2A, b"name") + piece(0xFA, b"")[:1] + b"\x3e\2hi")
    [decoded] = decode_requests(TRACES, [extended])
    assert decoded.bundle is not None
    assert rows(decoded.bundle, slots.SPANS)[0]["name"] == "name"


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_decoding_depends_on_nothing_but_the_messages(signal: Signal) -> None:
    """A restart replays them, and must get the same bundles."""
    messages = [encoded(full_request(signal, seed)) for seed in range(5)]
    first, second = (describe(decode_requests(signal, messages)) for _ in range(2))
    assert first == second


def describe(decoded: list[DecodedRequests]) -> list[object]:
    """Everything in the bundles, in a form in which NaNs can be compared."""
    return [
        (slot, each.bundle[slot].schema, repr(rows(each.bundle, slot)))
        for each in decoded
        if each.bundle is not None
        for slot in each.bundle
    ]


@pytest.mark.parametrize("signal", Signal, ids=lambda signal: signal.value)
def test_a_bundle_keeps_nothing_of_the_decoder_s_memory(
    signal: Signal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One column of it would keep all of what was decoded, four times the bundle."""
    handler, kept = flat_handler(signal), []

    class Handler:
        def list_to_record_batch(self, messages: list[bytes]) -> pa.RecordBatch:
            kept.append(handler.list_to_record_batch(messages))
            return kept[-1]

    monkeypatch.setattr(decode, "flat_handler", lambda _signal: Handler())
    bundle = bundle_of(signal, *(full_request(signal, seed) for seed in range(20)))
    theirs = {at for column in kept[0].columns for at in addresses(column)}
    ours = {at for batch in bundle.slots.values() for c in batch.columns for at in addresses(c)}
    assert ours
    assert not ours & theirs


def addresses(array: pa.Array) -> set[int]:
    """Where the buffers of an array are."""
    found = {buffer.address for buffer in array.buffers() if buffer is not None and buffer.size}
    return found | (addresses(array.dictionary) if types.is_dictionary(array.type) else set())


def test_random_bytes_never_raise() -> None:
    """They become problems, or nothing much."""
    source = Random(4)
    sample = encoded(full_request(TRACES, 1))
    for _ in range(150):
        data = bytearray(sample[: source.randrange(len(sample))])
        for _ in range(source.randrange(4)):
            data[source.randrange(len(data) + 1) - 1 :] = source.randbytes(source.randrange(9))
        [decoded] = decode_requests(TRACES, [bytes(data)])
        assert decoded.count == 1
        assert (decoded.bundle is None) == bool(decoded.problem)


@pytest.mark.parametrize("sent", Signal)
def test_text_that_records_share_is_there_once(sent: Signal) -> None:
    """A long schema URL and many records in a small request do not become a large bundle."""
    request: Any = sent.request_class()
    outer, inner, records = sent.field_names
    resource = getattr(request, outer).add(schema_url="r" * 50_000)
    scope = getattr(resource, inner).add(schema_url="s" * 50_000)
    scope.scope.name = "n" * 50_000
    for number in range(500):
        record = getattr(scope, records).add()
        if sent is Signal.METRICS:
            record.gauge.data_points.add(as_int=number)
        if sent is Signal.TRACES:
            record.trace_id, record.span_id = b"t" * 16, b"s" * 8
    [decoded] = decode_requests(sent, [request.SerializeToString()])
    assert decoded.bundle is not None
    assert decoded.bundle.nbytes < 2_000_000
