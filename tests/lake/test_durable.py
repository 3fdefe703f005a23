"""Local files of the lake: whole, synced and never changed once they have their name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyiceberg.io import load_file_io

from penstock.lake import durable
from penstock.lake.durable import FILE_IO, DurableFile
from penstock.storage.files import File, LocalFiles

from .helpers import Flush, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table


class RecordingFiles(LocalFiles):
    """Says what was done, in order."""

    def __init__(self) -> None:
        self.done: list[tuple[str, str]] = []

    def create(self, path: Path) -> File:
        """Remembers the syncs of the file, too."""
        return _RecordingFile(super().create(path), self.done)

    def rename(self, source: Path, target: Path) -> None:
        """Notes the target."""
        super().rename(source, target)
        self.done.append(("name", target.name))

    def link(self, source: Path, target: Path) -> None:
        """Notes the target."""
        super().link(source, target)
        self.done.append(("name", target.name))

    def sync_folder(self, folder: Path) -> None:
        """Notes the folder."""
        super().sync_folder(folder)
        self.done.append(("sync folder", folder.name))


class _RecordingFile:
    def __init__(self, inner: File, done: list[tuple[str, str]]) -> None:
        self._inner = inner
        self._done = done
        self.pread, self.pwrite, self.size = inner.pread, inner.pwrite, inner.size
        self.truncate, self.close = inner.truncate, inner.close

    def sync(self) -> None:
        self._inner.sync()
        self._done.append(("sync", "file"))


def names(folder: Path) -> list[str]:
    """What is in the folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_synced_before_it_has_its_name(tmp_path: Path) -> None:
    """And its folder afterwards, so that the name survives too."""
    files = RecordingFiles()
    with DurableFile(tmp_path / "a", replace=True, files=files) as file:
        file.write(b"contents")
    assert files.done == [("sync", "file"), ("name", "a"), ("sync folder", tmp_path.name)]
    assert (tmp_path / "a").read_bytes() == b"contents"


def test_a_file_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    """Half a file is never seen under its name."""
    with contextlib.suppress(RuntimeError), DurableFile(tmp_path / "a", replace=True) as file:
        file.write(b"con")
        raise RuntimeError("half way")
    assert names(tmp_path) == []


def test_a_name_that_is_taken_is_kept(tmp_path: Path) -> None:
    """The first one wins; the second one is told so."""
    (tmp_path / "a").write_bytes(b"first")
    with pytest.raises(FileExistsError), DurableFile(tmp_path / "a", replace=False) as file:
        file.write(b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["a"]


def test_large_and_small_pieces_are_written_in_order(tmp_path: Path) -> None:
    """Whatever part of them is still waiting."""
    pieces = [bytes([number]) * (number * 7000) for number in range(200)]
    with DurableFile(tmp_path / "a", replace=True) as file:
        for piece in pieces:
            assert file.write(piece) == len(piece)
        assert file.tell() == sum(map(len, pieces))
    assert (tmp_path / "a").read_bytes() == b"".join(pieces)


def test_a_closed_file_takes_nothing(tmp_path: Path) -> None:
    """Its handle may be another file's by then."""
    file = DurableFile(tmp_path / "a", replace=True)
    file.close()
    file.close()
    file.flush()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"late")


def test_other_schemes_are_left_to_pyiceberg() -> None:
    """An object store keeps what it has acknowledged."""
    io = load_file_io({"py-io-impl": FILE_IO, "s3.region": "us-east-1"}, "s3://bucket/x")
    assert type(io.new_output("s3://bucket/x")).__name__ == "PyArrowFile"
    assert type(io.new_output("/x")).__name__ == "_LocalFile"


def test_everything_is_on_disk_before_the_catalog_knows(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data file, manifest, manifest list and metadata are synced, and named, when it commits."""
    flush = Flush(table)
    files = RecordingFiles()
    monkeypatch.setattr(durable, "FILES", files)
    flush.flush(spans(range(3)))
    named = [name for what, name in files.done if what == "name"]
    assert [name.rpartition(".")[2] for name in named] == ["parquet", "avro", "avro", "json"]
    for place, (what, _) in enumerate(files.done):
        if what == "name":
            assert files.done[place - 1] == ("sync", "file")
            assert files.done[place + 1][0] == "sync folder"
