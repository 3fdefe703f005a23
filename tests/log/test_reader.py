"""Readers: files, cache and live tail as one stream."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.log import Environment, Log
from penstock.log import format as fmt
from penstock.model import LogSettings
from penstock.model.errors import LogPoisoned, OffsetUnavailable
from tests.log.helpers import SMALL, contents_of, messages, write_log
from tests.patience import PATIENCE_S
from tests.simulation.manual_pool import ManualClock, ManualPool

WAIT_S = PATIENCE_S
COUNT = 4000


def payload(number: int) -> bytes:
    """A message that says its number, 8 to 307 bytes long."""
    return f"{number:08d}".encode() + b"." * (number % 300)


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 10**7])
def test_readers_see_every_message_once_and_in_order_while_files_rotate(
    tmp_path: Path, cache_bytes: int
) -> None:
    """Four readers, started at different times, at different paces."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=cache_bytes)
    seen: list[list[int]] = [[] for _ in range(4)]
    with Log.open(tmp_path, settings) as log:

        def follow(number: int) -> None:
            reader = log.read(0, follow=True)
            for message in reader:
                assert message.data == payload(message.offset)
                seen[number].append(message.offset)
                if len(seen[number]) == COUNT:
                    return

        threads = [threading.Thread(target=follow, args=(number,)) for number in range(4)]
        for number in range(COUNT):
            if number % 1000 == 0:
                threads[number // 1000].start()
            log.append(payload(number))
            if number % 50 == 0:
                log.flush()
        for thread in threads:
            thread.join(WAIT_S)
    assert seen == [list(range(COUNT))] * 4


def test_async_readers_follow_the_live_tail(tmp_path: Path) -> None:
    """Tasks that wait at the end get what comes."""

    async def main() -> list[list[int]]:
        log = Log.open(tmp_path, SMALL)

        async def follow() -> list[int]:
            offsets = []
            async for message in log.read("latest", follow=True):
                offsets.append(message.offset)
                if len(offsets) == 300:
                    break
            return offsets

        readers = [asyncio.create_task(follow()) for _ in range(5)]
        await asyncio.sleep(0)
        for number in range(300):
            await log.append(payload(number)).durable
        found = await asyncio.wait_for(asyncio.gather(*readers), WAIT_S)
        await log.close_async()
        return found

    assert asyncio.run(main()) == [list(range(300))] * 5


@pytest.mark.parametrize("cache_bytes", [0, 10**7])
def test_every_offset_is_a_place_to_start(tmp_path: Path, cache_bytes: int) -> None:
    """In old files through their index, in the file being written, and in the cache."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=cache_bytes)
    with Log.open(tmp_path, settings) as log:
        for number in range(1500):
            log.append(payload(number))
            if number % 40 == 0:
                log.flush()
        log.flush()
        for start in [*range(0, 1500, 37), 1499]:
            batch = log.read(start).read_batch()
            assert batch is not None
            assert batch.first_offset == start
            assert batch.messages[0] == payload(start)
        assert log.read(1500).read_batch() is None


def test_seeking_reads_little_of_a_large_file(tmp_path: Path) -> None:
    """The sparse index makes opening at an offset a seek."""
    with Log.open(tmp_path, LogSettings(cache_bytes=0)) as log:
        for _ in range(40):
            log.append_many([b"x" * 1000] * 200).durable.wait()
        from penstock.storage import LocalFiles

        read = 0

        class Counting(LocalFiles):
            def open(self, path: Path) -> object:
                file = super().open(path)
                real = file.pread

                class Counted:
                    def __getattr__(self, name: str) -> object:
                        return getattr(file, name)

                    def pread(self, length: int, position: int) -> bytes:
                        nonlocal read
                        data = real(length, position)
                        read += len(data)
                        return data

                return Counted()

        log._fileset.files = Counting()
        assert log.read(7900).read_batch() is not None
        assert read < 2 * 1024 * 1024 < log.size


def test_following_ends_when_the_log_closes_and_everything_was_read(tmp_path: Path) -> None:
    """A reader at the end is let go, with all messages."""
    log = Log.open(tmp_path)
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(m.offset for m in log.read(0, follow=True)))
    thread.start()
    for _ in range(20):
        log.append_durable(b"m")
    log.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert got == list(range(20))


def test_waiting_for_a_batch_gives_up_after_its_timeout(tmp_path: Path) -> None:
    """None says that nothing came."""
    with Log.open(tmp_path) as log:
        assert log.read().next_batch(timeout=0.01) is None


def test_a_slow_reader_goes_on_from_files_that_were_cached_before(tmp_path: Path) -> None:
    """Falling behind the cache costs speed, not messages."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=5_000)
    with Log.open(tmp_path, settings) as log:
        reader = log.read(0, follow=True)
        log.append_durable(payload(0))
        assert next(iter(reader)).offset == 0
        for number in range(1, 1000):
            log.append_durable(payload(number)) if number % 20 == 0 else log.append(payload(number))
        log.flush()
        rest = []
        while (batch := reader.read_batch()) is not None:
            rest += [batch.first_offset + at for at in range(len(batch.messages))]
        assert rest == list(range(1, 1000))


def test_a_reader_keeps_the_file_it_has_open_when_retention_removes_it(tmp_path: Path) -> None:
    """It reads that file to its end, and then says by name that the next one is gone."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=0, retention_bytes=0)
    with Log.open(tmp_path, settings) as log:
        for number in range(3000):
            log.append(payload(number))
            if number % 100 == 99:
                log.flush()
        first = log.sealed_files[0]
        reader = log.read(0)
        batch = reader.read_batch()
        assert batch is not None
        log.set_floor(log.sealed_files[-1].end_offset)
        log.enforce_retention()
        assert log.start_offset > first.end_offset
        seen = len(batch.messages)
        with pytest.raises(OffsetUnavailable) as gone:  # noqa: PT012 - one of several reads
            while (batch := reader.read_batch()) is not None:
                seen += len(batch.messages)
        assert seen == first.end_offset
        assert gone.value.earliest == log.start_offset


def test_damage_found_while_reading_is_passed_over_and_named(tmp_path: Path) -> None:
    """Sealed files are verified when they are read."""
    contents = messages(200, 90)
    write_log(tmp_path, contents)
    path = tmp_path / f"{0:020d}.wal"
    data = bytearray(path.read_bytes())
    data[fmt.HEADER_BYTES + 16 + len(contents[0]) + 20] ^= 4
    path.write_bytes(data)
    with Log.open(tmp_path, SMALL) as log:
        reader = log.read()
        found = {message.offset: message.data for message in reader}
        assert found == {n: m for n, m in enumerate(contents) if n != 1}
        assert [(lost.first_offset, lost.end_offset) for lost in reader.lost] == [(1, 2)]


def test_readers_of_a_poisoned_log_get_what_was_shown_and_then_the_reason(tmp_path: Path) -> None:
    """They do not wait for messages that will never come."""
    pool = ManualPool(ManualClock())
    log = Log.open(tmp_path, env=Environment(pool=pool))
    log.append_durable(b"shown")
    reader = log.read(0, follow=True)

    def failing() -> None:
        raise OSError(5, "injected")

    log._fileset.sync = failing
    with pytest.raises(LogPoisoned):
        log.append_durable(b"never shown")
    found = []
    with pytest.raises(LogPoisoned):
        found.extend(message.data for message in reader)
    assert contents_of(log) == {0: b"shown"}
    log.close()


def test_restart_continues_for_readers_at_their_offset(tmp_path: Path) -> None:
    """A reader that remembers its position resumes there."""
    with Log.open(tmp_path, SMALL) as log:
        for number in range(100):
            log.append(payload(number))
    with Log.open(tmp_path, SMALL) as log:
        log.append_durable(payload(100))
        assert [message.offset for message in log.read(60)] == list(range(60, 101))


def test_a_file_that_somebody_deletes_under_a_living_log_is_passed_over(tmp_path: Path) -> None:
    """What was in it is lost and named; the reader goes on behind it."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=0)
    with Log.open(tmp_path, settings) as log:
        for number in range(200):
            log.append_durable(payload(number) * 10)
        victim = log.sealed_files[1]
        victim.path.unlink()
        reader = log.read()
        offsets = [message.offset for message in reader]
        assert offsets == [*range(victim.first_offset), *range(victim.end_offset, 200)]
        (lost,) = reader.lost
        assert (lost.first_offset, lost.end_offset) == (victim.first_offset, victim.end_offset)


def test_what_retention_removes_during_the_look_is_gone_and_not_lost(tmp_path: Path) -> None:
    """The reader is told where the log begins now, and reports no damage."""
    settings = LogSettings(rotate_bytes=64 * 1024, cache_bytes=0, retention_bytes=0)
    with Log.open(tmp_path, settings) as log:
        for number in range(200):
            log.append_durable(payload(number) * 10)
        reader, locate = log.read(0), log.locate

        def removed_meanwhile(offset: int) -> object:
            log.set_floor(200)
            log.enforce_retention()
            return locate(offset)

        log.locate = removed_meanwhile
        with pytest.raises(OffsetUnavailable):
            reader.read_batch()
        assert reader.lost == []
