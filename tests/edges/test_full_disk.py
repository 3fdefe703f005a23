"""A disk that is full, and not only a cap that is reached."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Bundle, Store
from penstock.log.environment import Environment, MemoryBound
from penstock.metrics import Metrics
from penstock.model.errors import DiskFull
from penstock.model.settings import KIB, SegmentSettings, SizePolicy, StoreSettings
from penstock.model.slots import LOGS
from penstock.otel import Signal
from penstock.storage.files import LocalFiles
from tests.cli.running import finish, run, start
from tests.edges.hooks import hooked
from tests.patience import PATIENCE_S, until
from tests.server.running import Server, serving
from tests.server.samples import traces
from tests.simulation.faults import FaultyFiles

DISK_BYTES = 24 * 1024 * 1024
REQUEST_BYTES = 200_000
NO_ROOM_TO_REMEMBER = """
import errno, os

def add(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

module.Table.add = add
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data directory with a file system of its own."""
    folder = tmp_path / "data"
    folder.mkdir()
    mount = ["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    allowed = sys.platform == "linux" and os.geteuid() == 0
    if not allowed or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", str(folder)], check=True)


def config(policy: str, disk_free: str, window: str = "0s") -> dict[str, Any]:
    """Without a cap: only the disk is a limit."""
    return {
        "retention": {"size_cap_policy": policy},
        "segment": {"max_open_duration": "200ms", "target_size": "1MiB"},
        "wal": {"rotate_size": "1MiB"},
        "limits": {"disk_free": disk_free},
        "dedupe": {"window": window},
    }


def send(server: Server) -> Any:
    """A request that no dictionary makes small."""
    return server.post(Signal.TRACES, traces(os.urandom(REQUEST_BYTES // 2).hex()))


def get_in(server: Server, data: Path) -> None:
    """A request that is taken at last; where it never is, the failure says what stood there."""
    end = time.monotonic() + PATIENCE_S
    while (answer := send(server)).status != 200:
        if time.monotonic() > end:
            sizes = {str(path.relative_to(data)): path.stat().st_size for path in data.rglob("*")}
            raise AssertionError(f"{answer}\n{sizes}\n{server.errors[-4000:]}")
        time.sleep(0.02)


def stock(server: Server, data: Path, ballast: Path) -> None:
    """There is something to let go."""
    while len([*data.glob("topics/*/*/*/segments/*.seg")]) < 30:
        ballast.unlink(missing_ok=True)
        assert send(server).status == 200
        assert server.ask("POST", "/api/v1/flush", port="web").status == 200


def fill(ballast: Path) -> None:
    """To the last byte."""
    for size in (4096, 1):
        with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(size))


@pytest.mark.parametrize("disk_free", ["0", "8MiB"])
@pytest.mark.parametrize("segment", ["1MiB", "64MiB"])
def test_oldest_go_when_the_disk_is_full(small_disk: Path, segment: str, disk_free: str) -> None:
    """Three times the disk is taken; what went is counted for whoever lacked it, and named.

    So too where the disk could not even hold the log and the one segment that it is to become.
    """
    data, settings = small_disk, config("drop_oldest", disk_free)
    if segment != "1MiB":
        settings["segment"] = {"max_open_duration": "1h", "target_size": segment}
        settings["wal"] = {"rotate_size": segment}
    with serving(data, config=settings) as server:
        for _ in range(3 * DISK_BYTES // REQUEST_BYTES):
            get_in(server, data)
        dropped = server.metric("penstock_store_dropped_segments_total")
        assert dropped > 0
        assert "for want of room it drops segment 0" in server.errors
        by_size = {"reason": "size"}  # more go while it is asked
        until(
            lambda: (
                server.metric("penstock_store_evictions_total", **by_size)
                == server.metric("penstock_store_dropped_segments_total")
            )
        )
        until(lambda: server.get("/healthz").status == 200)
        assert server.stop() == 0
    [lake] = run("subscribers", "list", "--data-dir", data, "--json").json
    assert (lake["subscriber"], lake["acked"]) == ("lake", 0)
    assert lake["dropped"] >= dropped
    assert run("fsck", data).code == 0


@pytest.mark.parametrize("disk_free", ["0", "8MiB"])
def test_with_back_pressure_a_full_disk_is_retryable(small_disk: Path, disk_free: str) -> None:
    """Nothing goes; clients are told to come again, and get in when there is room."""
    data, ballast = small_disk, small_disk / "ballast"
    ballast.write_bytes(bytes(12 * 1024 * 1024))  # more than `disk_free`, however far it is passed
    with serving(data, config=config("backpressure", disk_free)) as server:
        answers = [send(server)]
        while answers[-1].status == 200:
            assert len(answers) < DISK_BYTES // REQUEST_BYTES
            answers.append(send(server))
        assert answers[-1].status in (429, 503)
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert server.metric("penstock_store_dropped_segments_total") == 0
        ballast.unlink()
        until(lambda: send(server).status == 200)
        assert server.stop() == 0
    assert run("fsck", data).code == 0
    [topic] = run("topics", "--data-dir", data, "--json").json
    assert topic["end"] == len(answers)  # of which one was refused, and one came after


@pytest.mark.parametrize("cap", [None, "16MiB"])
def test_server_starts_on_a_full_disk(small_disk: Path, cap: str | None) -> None:
    """The oldest go before the first request: a server that cannot open lets nothing go."""
    data, ballast = small_disk, small_disk / "ballast"
    waiting, dropping = config("backpressure", "0"), config("drop_oldest", "0")
    for settings in (waiting, dropping):
        settings["retention"] |= {} if cap is None else {"size_cap": cap}
    with serving(data, config=waiting) as server:
        stock(server, data, ballast)
        server.kill()
    fill(ballast)
    with serving(data, config=dropping) as server:
        get_in(server, data)
        assert server.stop() == 0
    assert run("fsck", data).code == 0


def test_worker_survives_a_disk_that_is_full_at_its_table_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests go on; which of them it could not remember is counted, and named."""
    # Injected: on a disk that is full by chance somebody may have made room a moment before.
    hooks = hooked(tmp_path / "hooks", "penstock.server.receiving.repeats", NO_ROOM_TO_REMEMBER)
    monkeypatch.setenv("PYTHONPATH", hooks["PYTHONPATH"])
    data = tmp_path / "data"
    with serving(data, config=config("drop_oldest", "0", window="10m")) as server:
        [pid] = server.workers()
        body = traces("twice")
        assert [server.post(Signal.TRACES, body).status for _ in range(2)] == [200, 200]
        [worker] = server.get("/api/v1/status").json["workers"]
        assert worker["unremembered"] == 2
        assert worker["pid"] == pid
        assert "requests are not remembered, and stored again" in server.errors
        assert server.stop() == 0
    assert run("fsck", data).code == 0
    [topic] = run("topics", "--data-dir", data, "--json").json
    assert topic["end"] == 2


def test_new_topic_gets_in_on_a_full_disk(small_disk: Path) -> None:
    """It has nothing to let go: the oldest of the others go, though those have nothing to do."""
    data = small_disk
    with serving(data, config=config("drop_oldest", "0")) as server:
        stock(server, data, data / "ballast")
        fill(data / "ballast")
        body, sent = traces("new"), {"x_penstock_namespace": "new"}
        until(lambda: server.post(Signal.TRACES, body, **sent).status == 200)
        assert server.stop() == 0


def test_server_is_ready_on_a_full_disk_and_says_where_it_is_when_there_is_room(
    small_disk: Path,
) -> None:
    """The line comes, the failure is named, and server.json is written as soon as it can be."""
    data, ballast = small_disk, small_disk / "ballast"
    with serving(data, config=config("backpressure", "0")) as server:
        assert server.stop() == 0
    fill(ballast)
    with serving(data, config=config("backpressure", "0")) as server:
        assert "server.json could not be written, and is tried again" in server.errors
        assert not (data / "server.json").exists()
        ballast.unlink()
        until((data / "server.json").exists)
        assert send(server).status == 200
        assert server.stop() == 0


@pytest.mark.away
def test_pipeline_makes_room_on_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Not a byte is left, and what it takes to the lake goes from here; what comes then gets in."""
    data, ballast = small_disk, small_disk / "ballast"
    settings = config("backpressure", "0") | {"lake": {"warehouse": str(tmp_path / "lake")}}
    with serving(data, config=settings) as server:
        sent = 0
        while send(server).status == 200:
            sent += 1
        fill(ballast)
        command = ["run", "--once", f"--data-dir={data}", f"--config={data}.yaml"]
        answer = finish(start("pipeline", *command, "--master=local[1]"))
        assert answer.code == 0, answer.err
        assert "No space left" not in answer.err
        assert not [*data.glob("pipeline/**/*.tmp")]
        until(lambda: send(server).status == 200)
        counted = "SELECT count(*) AS spans FROM spans"
        command = ["query", f"--data-dir={data}", f"--config={data}.yaml", "--json", counted]
        assert run(*command).json == [{"spans": sent + 1}]
        assert server.stop() == 0


# --- injected, where nothing can be mounted ----------------------------------------------------


def bundle(number: int) -> Bundle:
    """Of 64 KiB."""
    text = f"{number:08d}" * (8 * KIB)
    return Bundle({LOGS: pa.record_batch({"number": [number], "text": [text]})})


def opened(folder: Path, files: FaultyFiles, policy: SizePolicy) -> Store:
    """A store with a segment for each bundle."""
    settings = StoreSettings(
        segment=SegmentSettings(target_bytes=64 * KIB, max_open_s=0.05), size_policy=policy
    )
    env = Environment(metrics=Metrics(), memory=MemoryBound(), files=files)
    return Store.open(folder, settings, registered=["reader"], env=env)


@pytest.mark.parametrize("name", ["*.wal", "*.seg.tmp"])
@pytest.mark.parametrize("policy", list(SizePolicy))
def test_write_without_space_lets_the_oldest_go_by_policy(
    tmp_path: Path, name: str, policy: SizePolicy
) -> None:
    """In the log and in a segment; with back-pressure everything stays."""
    files = FaultyFiles(LocalFiles())
    with opened(tmp_path / "store", files, policy) as store:
        for number in range(4):
            store.append_durable(bundle(number))
            store.flush(PATIENCE_S)
        assert len(store.segments) == 4
        files.fail("pwrite", errno.ENOSPC, name=name)
        if name == "*.wal":
            with pytest.raises(DiskFull):  # which is Retryable
                store.append_durable(bundle(4))
        store.append_durable(bundle(4))
        store.flush(PATIENCE_S)
        if policy is SizePolicy.DROP_OLDEST:
            until(lambda: store.subscribers()[0].dropped > 0)
            assert all(info.segment_seq >= 1 for info in store.segments)
        else:
            assert store.subscribers()[0].dropped == 0
            assert [info.segment_seq for info in store.segments][:4] == [0, 1, 2, 3]
