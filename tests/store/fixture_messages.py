"""The messages in tests/fixtures/message-v1, as 0.1 wrote them: every later version must read them.

`python -m tests.store.fixture_messages FOLDER`, with the code of 0.1 (commit 0c0dc7d), wrote them.
They are not written again: a new version gets a folder of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.slots import LOG_ATTRS, LOGS
from penstock.store.messages import encode_bundle, encode_raw

_WORDS = pa.dictionary(pa.uint8(), pa.string())


def write(folder: Path) -> None:
    """A bundle of two slots, and what a client sent that begins with 0."""
    ids, texts = pa.array([7, 8], pa.uint16()), pa.array(["INFO", None], _WORDS)
    logs = pa.record_batch({"id": ids, "severity_text": texts})
    key = {"parent_id": pa.array([7], pa.uint16()), "key": pa.array(["host"], _WORDS)}
    bundle = Bundle({LOGS: logs, LOG_ATTRS: pa.record_batch(key)}, items=2)
    (folder / f"{7:020d}.msg").write_bytes(encode_bundle(bundle))
    (folder / f"{8:020d}.msg").write_bytes(encode_raw(b"\0 is no protobuf"))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
