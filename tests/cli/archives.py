"""Small archives of known content beside a data directory."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.cli.running import log_folder, run
from tests.log.small_logs import wal, write_log


class Archive(NamedTuple):
    """Where the halves of an archive are."""

    objects: str
    metadata: str

    @property
    def options(self) -> list[str]:
        """Of `tail` and `archive`."""
        return ["--objects", self.objects, "--metadata", self.metadata]

    @property
    def folder(self) -> Path:
        """Where its objects are."""
        return Path(urlsplit(self.objects).path)

    @property
    def files(self) -> list[Path]:
        """The objects, oldest first."""
        return sorted(self.folder.rglob("*.frames"))


def make_archive(data: Path) -> Archive:
    """All of `make_data` and 20 messages more in partition 0, which has two objects then.

    They part at offset 60. The log of partition 0 has files that begin at 0, 20, 50 and 60.
    """
    place = data.parent / "archive"
    archive = Archive((place / "objects").as_uri(), (place / "metadata.db").as_uri())
    place.mkdir()
    upload(archive, data)
    write_log(log_folder(data), (20,))
    upload(archive, data)
    return archive


def upload(archive: Archive, data: Path) -> None:
    """Everything that the logs hold."""
    answer = run("archive", "upload", "--data-dir", data, *archive.options)
    assert answer.code == 0, answer


def forget(data: Path, *first_offsets: int) -> None:
    """Removes log files of partition 0, as retention does."""
    for first in first_offsets:
        wal(log_folder(data), first).unlink()
