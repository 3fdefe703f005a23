"""Where the prelude of an IPC file ends."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.segment.sink import prelude_length

INNER = pa.dictionary(pa.int8(), pa.string())


def ipc_file(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    """The batch as an IPC file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def expected_length(data: bytes) -> int:
    """Arrow's own answer."""
    source = pa.BufferReader(data)
    source.seek(8)
    while True:
        position = source.tell()
        if pa.ipc.read_message(source).type == "record batch":
            return int(position)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": pa.array([1, 2, 3])}),
        pa.record_batch({"a": pa.array([], pa.int64())}),
        pa.record_batch([], schema=pa.schema([])),
        pa.record_batch(
            {"d": pa.array(["a", "b" * 3000], INNER), "e": pa.array(["c", None], INNER)}
        ),
        pa.record_batch({"d": pa.array([], INNER)}),
        pa.record_batch({"d": pa.array([[{"x": "a"}]], pa.list_(pa.struct([("x", INNER)])))}),
    ],
)
def test_the_prelude_ends_where_the_first_batch_begins(
    batch: pa.RecordBatch, compression: str | None
) -> None:
    """Behind schema and dictionaries, however the bytes are cut into pieces."""
    data = ipc_file(batch, compression)
    for piece in (len(data), 100, 7):
        pieces = [data[start : start + piece] for start in range(0, len(data), piece)]
        assert prelude_length(pieces) == expected_length(data)
