"""The local file system behaves as the `Files` seam promises."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from penstock.model.errors import LogLocked
from penstock.storage import LocalFiles
from penstock.storage.files import (
    _MAX_PIECES,
    _PosixFile,
    _SeekingFile,
    read_whole,
    write_atomically,
)
from tests.storage.recording import RecordingFiles, process_holding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.storage import File

FILES = LocalFiles()


@pytest.fixture(params=[_PosixFile, _SeekingFile])
def file(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[File]:
    """An empty file, opened as Linux and as Windows would."""
    opened = request.param(os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT))
    yield opened
    opened.close()


# --- one file ----------------------------------------------------------------------------------


def test_pread_is_short_only_at_the_end(file: File) -> None:
    """A reader sees fewer bytes than it asked for at the end of the file, and none behind it."""
    file.pwrite([b"0123456789"], 0)
    assert file.pread(4, 3) == b"3456"
    assert file.pread(100, 6) == b"6789"
    assert file.pread(1, 10) == b""
    assert file.pread(5, 1000) == b""
    assert file.pread(0, 0) == b""


def test_pwrite_writes_the_pieces_one_behind_the_other(file: File) -> None:
    """Whatever their kind and size, from the position on and nowhere else."""
    file.pwrite([b"..........."], 0)
    file.pwrite([b"ab", memoryview(b"xcdx")[1:3], b"", b"e"], 3)
    assert file.pread(100, 0) == b"...abcde..."


@pytest.mark.parametrize(
    "count", [0, 1, _MAX_PIECES - 1, _MAX_PIECES, _MAX_PIECES + 1, 3 * _MAX_PIECES]
)
def test_pwrite_takes_any_number_of_pieces(file: File, count: int) -> None:
    """More than the system takes in one call, too."""
    pieces = [b"%06d" % number for number in range(count)]
    file.pwrite(pieces, 5)
    assert file.pread(10**6, 5) == b"".join(pieces)


def test_writing_behind_the_end_leaves_zeros_between(file: File) -> None:
    """A hole reads as zeros."""
    file.pwrite([b"end"], 4)
    assert file.pread(100, 0) == b"\0\0\0\0end"


def test_truncate_cuts_and_extends_with_zeros(file: File) -> None:
    """What was cut off does not come back."""
    file.pwrite([b"0123456789"], 0)
    file.truncate(4)
    file.truncate(6)
    file.sync()
    assert (file.size(), file.pread(100, 0)) == (6, b"0123\0\0")


def test_reads_and_writes_at_once_do_not_move_each_other(file: File) -> None:
    """Any number of readers use one handle beside its writer."""
    block = b"x" * 64
    file.pwrite([block * 8], 0)
    seen: set[bytes] = set()

    def read() -> None:
        seen.update(file.pread(64, 64 * (turn % 8)) for turn in range(200))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(200):
        file.pwrite([b"y" * 64], 64 * (8 + turn))
    for reader in readers:
        reader.join()
    assert seen == {block}


# --- short reads and writes --------------------------------------------------------------------


def test_short_reads_are_read_on(file: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that gives less than asked for is asked again."""
    file.pwrite([b"0123456789"], 0)
    pread, read = os.pread, os.read
    monkeypatch.setattr(os, "pread", lambda handle, n, at: pread(handle, min(n, 3), at))
    monkeypatch.setattr(os, "read", lambda handle, n: read(handle, min(n, 3)))
    assert file.pread(8, 1) == b"12345678"
    assert file.pread(100, 1) == b"123456789"


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_short_writes_are_written_on(
    file: File, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A system that takes less than given is given the rest, in the right place."""
    pieces = [b"%05d" % number for number in range(_MAX_PIECES + 100)]
    pwrite, write = os.pwrite, os.write
    monkeypatch.setattr(os, "pwritev", lambda h, some, at: pwrite(h, b"".join(some)[:step], at))
    monkeypatch.setattr(os, "pwrite", lambda h, data, at: pwrite(h, data[:step], at))
    monkeypatch.setattr(os, "write", lambda h, data: write(h, data[:step]))
    file.pwrite(pieces, 3)
    assert file.pread(10**5, 3) == b"".join(pieces)


def test_write_that_takes_nothing_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends in an error that a log knows how to wait out, never in an endless loop."""
    file = FILES.create(tmp_path / "file")
    monkeypatch.setattr(os, "pwritev", lambda *_: 0)
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="no more bytes") as caught:
        file.pwrite([b"data"], 0)
    assert caught.value.errno == errno.ENOSPC
    file.close()


# --- the file system ---------------------------------------------------------------------------


def test_create_empties_what_stood_there(tmp_path: Path) -> None:
    """A new file holds nothing of an old one."""
    (tmp_path / "file").write_bytes(b"old")
    FILES.create(tmp_path / "file").close()
    assert read_whole(FILES, tmp_path / "file") == b""


def test_open_finds_no_missing_file(tmp_path: Path) -> None:
    """Reading creates nothing."""
    with pytest.raises(FileNotFoundError):
        FILES.open(tmp_path / "file")
    assert FILES.names(tmp_path) == []


def test_names_are_sorted_and_empty_without_a_folder(tmp_path: Path) -> None:
    """A folder that is not there, or is a file, holds nothing."""
    for name in ("b", "a", "10", "9"):
        (tmp_path / name).touch()
    assert FILES.names(tmp_path) == ["10", "9", "a", "b"]
    assert FILES.names(tmp_path / "missing") == []
    assert FILES.names(tmp_path / "a") == []


def test_make_folder_makes_and_syncs_each_parent(tmp_path: Path) -> None:
    """A power loss never takes a folder from under what was synced in it."""
    files = RecordingFiles()
    files.make_folder(tmp_path / "one" / "two" / "three")
    assert (tmp_path / "one/two/three").is_dir()
    assert files.calls == [f"sync_folder {tmp_path.name}", "sync_folder one", "sync_folder two"]
    files.make_folder(tmp_path / "one" / "two")
    assert len(files.calls) == 3


def test_link_never_replaces(tmp_path: Path) -> None:
    """What was set aside once stays."""
    (tmp_path / "source").write_bytes(b"new")
    (tmp_path / "taken").write_bytes(b"old")
    FILES.link(tmp_path / "source", tmp_path / "free")
    with pytest.raises(FileExistsError):
        FILES.link(tmp_path / "source", tmp_path / "taken")
    assert (tmp_path / "free").read_bytes() == b"new"
    assert (tmp_path / "taken").read_bytes() == b"old"


def test_removed_file_is_read_on_by_who_has_it_open(tmp_path: Path) -> None:
    """Retention takes nothing from under a reader."""
    (tmp_path / "file").write_bytes(b"data")
    file = FILES.open(tmp_path / "file")
    FILES.remove(tmp_path / "file")
    assert file.pread(4, 0) == b"data"
    assert FILES.names(tmp_path) == []
    file.close()


def test_write_atomically_replaces_the_whole_file(tmp_path: Path) -> None:
    """Nothing of a longer old text remains, nor the scratch file."""
    path = tmp_path / "state.json"
    write_atomically(FILES, path, b"a long old text")
    write_atomically(FILES, path, b"new")
    assert path.read_bytes() == b"new"
    assert FILES.names(tmp_path) == ["state.json"]


def test_write_atomically_syncs_data_then_renames_then_syncs_the_folder(tmp_path: Path) -> None:
    """In any other order a power loss leaves an empty file under the name, or none."""
    files = RecordingFiles()
    write_atomically(files, tmp_path / "state", b"data")
    assert files.calls == [
        "create state.tmp",
        "pwrite",
        "sync",
        "close",
        "rename state.tmp state",
        f"sync_folder {tmp_path.name}",
    ]


def test_failed_atomic_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk costs the new text, never the old one."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "state"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(FILES, path, b"new")
    assert path.read_bytes() == b"old"


# --- locks -------------------------------------------------------------------------------------


def test_lock_of_another_process_is_refused_with_its_pid(tmp_path: Path) -> None:
    """Whoever is refused knows whom to stop; after the release it is let in."""
    path = tmp_path / ".lock"
    with process_holding(path) as holder:
        with pytest.raises(LogLocked, match=f"process {holder.pid}") as caught:
            FILES.lock(path)
        assert caught.value.pid == holder.pid
        print("release", file=holder.stdin, flush=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "released\n"
        FILES.lock(path).release()


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    """A lock ends with its process, however that ends; its file holds the next one's pid."""
    path = tmp_path / ".lock"
    with process_holding(path) as holder:
        holder.kill()
        holder.wait()
        lock = FILES.lock(path)
        assert path.read_text() == f"{os.getpid()}\n"
        lock.release()


def test_lock_within_one_process_is_refused_too(tmp_path: Path) -> None:
    """Two objects of one process are two owners."""
    lock = FILES.lock(tmp_path / ".lock")
    with pytest.raises(LogLocked) as caught:
        FILES.lock(tmp_path / ".lock")
    assert caught.value.pid == os.getpid()
    lock.release()
    FILES.lock(tmp_path / ".lock").release()


@pytest.mark.parametrize("text", ["", "no pid\n"])
def test_lock_without_a_readable_pid_is_refused_all_the_same(tmp_path: Path, text: str) -> None:
    """The holder may not have written its pid yet."""
    lock = FILES.lock(tmp_path / ".lock")
    (tmp_path / ".lock").write_text(text)
    with pytest.raises(LogLocked, match="another process") as caught:
        FILES.lock(tmp_path / ".lock")
    assert caught.value.pid is None
    lock.release()


def test_released_lock_is_free_while_a_forked_child_lives(tmp_path: Path) -> None:
    """A fork shares the lock's handle, and closing one of two handles alone frees nothing."""
    lock = FILES.lock(tmp_path / ".lock")
    inherited = os.dup(lock._handle)  # what a fork leaves in its child
    lock.release()
    try:
        FILES.lock(tmp_path / ".lock").release()
    finally:
        os.close(inherited)


def test_lock_handle_is_not_inherited_by_started_programs(tmp_path: Path) -> None:
    """A program started by the server does not keep the log locked."""
    lock = FILES.lock(tmp_path / ".lock")
    assert not os.get_inheritable(lock._handle)
    lock.release()


@pytest.mark.parametrize("opening", [FILES.open, FILES.create])
def test_file_handles_are_not_inherited(tmp_path: Path, opening: Callable[[Path], File]) -> None:
    """Nor do they keep the space of a removed file."""
    (tmp_path / "file").touch()
    file = opening(tmp_path / "file")
    assert not os.get_inheritable(file._handle)
    file.close()
