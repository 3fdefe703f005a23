"""Decoding in a process of its own."""

from __future__ import annotations

import os
import signal as signals
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Environment
from penstock.metrics import Metrics
from penstock.otel import Signal, encode_bundle
from penstock.segment import SegmentReader
from penstock.server.keeping import decoder
from penstock.server.keeping.decoding import DecoderProcess, RemoteDecoder
from penstock.storage import LocalFiles
from penstock.store import Store
from penstock.store.decoding import Decoded
from penstock.store.messages import encode_bundle as as_message
from penstock.store.messages import encode_raw
from tests.leftovers import SHARED
from tests.otel.samples import bundle_of, canonical, full_request
from tests.patience import PATIENCE_S
from tests.server import dying
from tests.server.running import ROOT, is_alive, until
from tests.server.samples import logs, traces

T = Signal.TRACES


@pytest.fixture(scope="module")
def process() -> Iterator[DecoderProcess]:
    """One decoder for all tests: it takes a second to start."""
    made = DecoderProcess()
    yield made
    made.close()


@pytest.fixture(scope="module")
def deadly() -> Iterator[DecoderProcess]:
    """One that dies of some messages."""
    made = DecoderProcess("tests.server.dying")
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _kept(process: DecoderProcess, deadly: DecoderProcess) -> Iterator[None]:
    """Whoever has one of them replaced leaves the next to the other tests."""
    yield
    SHARED.update({process.pid, deadly.pid})


def decode(process: DecoderProcess, *messages: bytes, sent: Signal = T) -> list[Decoded]:
    """What becomes of the messages, the first at offset 100."""
    return list(RemoteDecoder(process, sent).decode(100, messages))


def names(found: list[Decoded]) -> list[str]:
    """Of the spans, in order."""
    requests = [T.request_class.FromString(encode_bundle(T, d.bundle)) for d in found if d.bundle]
    return [
        span.name
        for request in requests
        for resource in request.resource_spans  # type: ignore[attr-defined]
        for scope in resource.scope_spans
        for span in scope.spans
    ]


@pytest.mark.parametrize("sent", Signal)
def test_requests_come_back_as_bundles(process: DecoderProcess, sent: Signal) -> None:
    """Going over to another process and back changes nothing."""
    data = full_request(sent, 1).SerializeToString()
    [found] = decode(process, data, data, sent=sent)
    assert (found.first_offset, found.messages) == (100, 2)
    assert canonical(sent, encode_bundle(sent, found.bundle)) == canonical(sent, data, data)


def test_message_that_cannot_be_decoded_is_set_aside(process: DecoderProcess) -> None:
    """With its offset and the problem; those around it are decoded."""
    found = decode(process, traces("a"), b"\xff\xff\xff", traces("b"))
    assert [(d.first_offset, d.messages, d.bundle is None) for d in found] == [
        (100, 1, False),
        (101, 1, True),
        (102, 1, False),
    ]
    assert found[1].problem
    assert names(found) == ["a", "b"]


def test_message_that_begins_with_a_zero_is_what_was_sent(process: DecoderProcess) -> None:
    """The log marks it; the mark is no part of it."""
    [found] = decode(process, encode_raw(b"\0not a request"))
    assert found.bundle is None


def test_bundle_in_the_log_stays_as_it_is(process: DecoderProcess) -> None:
    """Another program may have appended it; it is not lost among requests."""
    bundle = bundle_of(T, full_request(T, 2))
    found = decode(process, traces("a"), as_message(bundle), traces("b"))
    assert [d.first_offset for d in found] == [100, 101, 102]
    assert found[1].bundle == bundle


def test_damaged_bundle_is_set_aside(process: DecoderProcess) -> None:
    """It raises nothing, which would stop the store."""
    found = decode(process, as_message(bundle_of(T, full_request(T, 2)))[:50], traces("a"))
    assert [d.bundle is None for d in found] == [True, False]


def test_decoder_that_was_killed_is_replaced(process: DecoderProcess) -> None:
    """Between two messages nobody notices."""
    decode(process, traces("a"))
    os.kill(process.pid, signals.SIGKILL)
    assert names(decode(process, traces("a"), traces("b"))) == ["a", "b"]
    assert names(decode(process, traces("c"))) == ["c"]


def test_decoder_killed_in_the_middle_loses_nothing(deadly: DecoderProcess, tmp_path: Path) -> None:
    """What it was at is decoded by the next one."""
    marker = tmp_path / "decoding"
    slow = traces(f"{dying.SLOW.decode()}{marker}|")
    with ThreadPoolExecutor(1) as thread:
        answer = thread.submit(decode, deadly, traces("a"), slow, traces("b"))
        until(lambda: marker.exists() and marker.read_text())
        os.kill(int(marker.read_text()), signals.SIGKILL)
        found = answer.result()
    assert [len(names([d])) for d in found if d.bundle] == [1, 1, 1]
    assert [d.first_offset for d in found] == [100, 101, 102]


def test_message_that_kills_the_decoder_is_set_aside(deadly: DecoderProcess) -> None:
    """It alone; the decoder goes on."""
    poison = traces(dying.POISON.decode())
    found = decode(deadly, traces("a"), poison, traces("b"))
    assert [(d.first_offset, d.messages) for d in found] == [(100, 1), (101, 1), (102, 1)]
    assert [d.bundle is None for d in found] == [False, True, False]
    assert "did not survive" in found[1].problem
    assert names(decode(deadly, traces("c"))) == ["c"]


def test_others_do_not_suffer_from_a_message_that_kills(deadly: DecoderProcess) -> None:
    """A decoder that dies takes the work of all stores with it, and none of it is set aside."""
    start = threading.Barrier(4)

    def innocent(number: int) -> list[list[Decoded]]:
        start.wait()
        return [decode(deadly, traces(f"{number}-{turn}")) for turn in range(20)]

    def guilty() -> list[Decoded]:
        start.wait()
        return decode(deadly, traces("a"), traces(dying.POISON.decode()))

    with ThreadPoolExecutor(4) as threads:
        bad = threads.submit(guilty)
        good = [threads.submit(innocent, number) for number in range(3)]
        found = [decoded for each in good for turn in each.result() for decoded in turn]
        assert [d.bundle is None for d in bad.result()] == [False, True]
    assert all(decoded.bundle is not None for decoded in found)


def test_store_goes_on_after_a_message_that_kills(deadly: DecoderProcess, tmp_path: Path) -> None:
    """It is kept in a file named by its offset and counted; the rest is in the segment."""
    metrics, poison = Metrics(), traces(dying.POISON.decode())
    with Store.open(
        tmp_path, decoder=RemoteDecoder(deadly, T), env=Environment(metrics=metrics)
    ) as store:
        for message in (traces("a"), poison, traces("b")):
            store.append_durable(message)
        store.flush(timeout=PATIENCE_S)
        assert store.failure is None
        page = metrics.exposition().decode()
    [segment] = (tmp_path / "segments").glob("*.seg")
    reader = SegmentReader.open(LocalFiles(), segment)
    bundles = [Decoded(0, 1, reader.bundle(number).bundle) for number in range(len(reader))]
    assert names(bundles) == ["a", "b"]
    assert (tmp_path / "aside" / f"{1:020d}.msg").read_bytes() == poison
    [line] = [e for e in page.splitlines() if "aside" in e and not e.startswith("#")]
    assert float(line.rpartition(" ")[2]) == 1


def test_invalid_bundle_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder whose tables are not what they should be stops nothing."""

    def refuse(_: Any) -> Any:
        raise decoder.PenstockError("not valid Arrow")

    monkeypatch.setattr(decoder, "encode_bundle", refuse)
    answers = decoder.decode(Signal.LOGS, [logs("a")])
    assert answers == [(1, None, "not valid Arrow")]


_PARENT = """
import time
from penstock.otel import Signal
from penstock.server.keeping.decoding import DecoderProcess
if __name__ == "__main__":
    process = DecoderProcess()
    process.run(Signal.TRACES, [b""])
    print(process.pid, flush=True)
    time.sleep(60)
"""


def test_decoder_ends_with_its_worker(tmp_path: Path) -> None:
    """Even if that was killed: nobody else would end it."""
    script = tmp_path / "parent.py"
    script.write_text(_PARENT)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], cwd=ROOT, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        decoder = int(parent.stdout.readline())
        assert is_alive(decoder)
        parent.kill()
    until(lambda: not is_alive(decoder))
