"""`penstock tail --objects` reads archive, log and what comes as one stream."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING

import pytest

from tests.cli.archives import Archive, forget, make_archive
from tests.cli.running import Answer, finish, log_folder, run, start, tell, writer_process
from tests.cli.test_tail import offsets, places
from tests.log.small_logs import flip

if TYPE_CHECKING:
    from pathlib import Path


NOBODY = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_REGION": "none",
}
"""An S3 server that does not answer."""


@pytest.fixture
def archive(data: Path) -> Archive:
    """All of the topic is archived; of partition 0 only 50 to 79 are in the log, too."""
    made = make_archive(data)
    forget(data, 0, 20)
    return made


def tail(data: Path, archive: Archive, *arguments: str) -> Answer:
    """What is there now, in JSON lines."""
    where = ["--data-dir", str(data), *archive.options]
    return run("tail", "--json", "--no-follow", *where, *arguments, "traces")


@pytest.mark.parametrize(("start", "first"), [("0", 0), ("earliest", 0), ("47", 47), ("55", 55)])
def test_archive_and_log_are_one_stream(
    data: Path, archive: Archive, start: str, first: int
) -> None:
    """Each message once and in order, wherever it begins."""
    answer = tail(data, archive, "--from", start, "--partition", "0")
    assert (answer.code, answer.err) == (0, "")
    assert places(answer.json_lines) == offsets(0, range(first, 80))


def test_all_partitions_begin_in_their_archives(data: Path, archive: Archive) -> None:
    """Those whose log still has everything, too."""
    answer = tail(data, archive, "--from", "0")
    assert sorted(places(answer.json_lines)) == offsets(0, range(80)) + offsets(1, range(7))


def test_latest_prints_nothing_old(data: Path, archive: Archive) -> None:
    """With an archive as without."""
    assert tail(data, archive) == Answer(0, "", "")


def test_follows_from_the_archive_into_what_comes(data: Path, archive: Archive) -> None:
    """While another process appends."""
    where = ["--data-dir", data, *archive.options, "--from", "0", "--partition", "0"]
    process = start("tail", "--json", *where, "--count", "1080", "traces")
    with writer_process(log_folder(data)) as writer:
        tell(writer, 1000)
        answer = finish(process)
    assert (answer.code, answer.err) == (0, "")
    assert places(answer.json_lines) == offsets(0, range(1080))


def test_interrupted_tail_ends_without_a_traceback(data: Path, archive: Archive) -> None:
    """While it waits for more behind the archive."""
    where = ["--data-dir", data, *archive.options, "--from", "79", "--partition", "0"]
    process = start("tail", *where, "traces")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    answer = finish(process)
    assert (answer.code, answer.err.strip()) == (130, "")


@pytest.mark.parametrize("lost", ["topics", "."])
def test_lost_log_is_read_from_the_archive(data: Path, archive: Archive, lost: str) -> None:
    """Also on a machine that never had it."""
    shutil.rmtree(data / lost)
    answer = tail(data, archive, "--from", "50", "--partition", "0")
    assert places(answer.json_lines) == offsets(0, range(50, 80))
    assert tail(data, archive).out == ""


def test_offset_behind_the_archive_says_which_there_are(data: Path, archive: Archive) -> None:
    """Where there is no log to say so."""
    shutil.rmtree(data / "topics")
    answer = tail(data, archive, "--from", "81", "--partition", "0")
    assert answer.is_one_sentence()
    assert "0 to 80" in answer.err


@pytest.mark.usefixtures("archive")
def test_without_objects_the_log_is_all_there_is(data: Path) -> None:
    """The sentence says from where on it can be read."""
    answer = run("tail", "--data-dir", data, "--from", "0", "--partition", "0", "traces")
    assert answer.is_one_sentence()
    assert "50 to 80" in answer.err


def test_environment_names_the_archive(
    data: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `penstock archive`."""
    monkeypatch.setenv("PENSTOCK_ARCHIVE_OBJECTS", archive.objects)
    monkeypatch.setenv("PENSTOCK_ARCHIVE_METADATA", archive.metadata)
    answer = run("tail", "--no-follow", "--data-dir", data, "--from", "0", "traces")
    assert len(answer.out.splitlines()) == 87


def test_damaged_block_is_named_and_the_rest_printed(data: Path, archive: Archive) -> None:
    """The log goes on where its copy begins."""
    flip(archive.files[0], 200)
    answer = tail(data, archive, "--from", "0", "--partition", "0")
    assert answer.code == 1
    assert places(answer.json_lines) == offsets(0, range(60, 80))
    assert "offsets 0 to 59" in answer.err


def test_silent_metadata_store_is_said_with_the_missing_offsets(
    data: Path, archive: Archive
) -> None:
    """And where the log begins; what the log has can still be read."""
    silent = Archive(archive.objects, "etcd://127.0.0.1:1/nobody")
    answer = tail(data, silent, "--from", "3", "--partition", "0")
    assert answer.is_one_sentence()
    assert "offsets from 3 on" in answer.err
    assert "the log begins at offset 50" in answer.err
    answer = tail(data, silent, "--from", "50", "--partition", "0")
    assert places(answer.json_lines) == offsets(0, range(50, 80))


def test_silent_object_store_is_said_with_the_missing_offsets(
    data: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The descriptors say which offsets are in the object that does not come."""
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)
    silent = Archive("s3://bucket/archive", archive.metadata)
    answer = tail(data, silent, "--from", "3", "--partition", "0")
    assert answer.is_one_sentence()
    assert "offsets 3 to 59" in answer.err
    assert "the log begins at offset 50" in answer.err


def test_missing_folder_is_not_taken_for_an_empty_archive(data: Path, archive: Archive) -> None:
    """A place that was mistyped would otherwise look like a loss."""
    nowhere = (data / "nowhere").as_uri()
    for wrong in (archive._replace(objects=nowhere), archive._replace(metadata=nowhere)):
        answer = tail(data, wrong, "--from", "0")
        assert answer.is_one_sentence()
        assert nowhere in answer.err
    assert not (data / "nowhere").exists()
