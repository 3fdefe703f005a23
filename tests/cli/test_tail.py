"""`penstock tail` prints a topic and follows it."""

from __future__ import annotations

import base64
import select
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.tail import preview
from tests.cli.running import Answer, finish, log_folder, run, start, tell, writer_process
from tests.log.small_logs import (
    flip,
    flip_message,
    message_for,
    truncate_before,
    wal,
    write_killed_log,
    write_log,
)

if TYPE_CHECKING:
    from pathlib import Path


def tail(data: Path, *arguments: str) -> Answer:
    """What is there now, in JSON lines."""
    return run("tail", "--json", "--no-follow", "--data-dir", data, *arguments, "traces")


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(partition, offset) of each message, whose content is checked on the way."""
    for row in rows:
        message = base64.b64decode(row["data"])
        assert message == message_for(row["offset"])
        assert (row["bytes"], row["topic"]) == (len(message), "/default/traces")
    return [(row["partition"], row["offset"]) for row in rows]


def offsets(partition: int, *ranges: range) -> list[tuple[int, int]]:
    """The places of these offsets."""
    return [(partition, offset) for offsets in ranges for offset in offsets]


# --- what is there -----------------------------------------------------------------------------


def test_earliest_prints_every_partition_from_its_beginning(data: Path) -> None:
    """Each in the order of its offsets."""
    answer = tail(data, "--from", "earliest")
    assert answer.code == 0
    assert sorted(places(answer.json_lines)) == offsets(0, range(60)) + offsets(1, range(7))


def test_latest_is_the_default_and_prints_nothing_old(data: Path) -> None:
    """Without following there is nothing to say."""
    for arguments in ([], ["--from", "latest"]):
        assert tail(data, *arguments) == Answer(0, "", "")


def test_offset_begins_in_the_middle(data: Path) -> None:
    """In each partition at that offset."""
    answer = tail(data, "--from", "5")
    assert sorted(places(answer.json_lines)) == offsets(0, range(5, 60)) + offsets(1, range(5, 7))


def test_one_partition_can_be_picked(data: Path) -> None:
    """Its offset need not be in the others."""
    answer = tail(data, "--from", "58", "--partition", "0")
    assert places(answer.json_lines) == offsets(0, range(58, 60))


@pytest.mark.parametrize("count", [0, 1, 25, 67, 1000])
def test_count_bounds_the_messages(data: Path, count: int) -> None:
    """Or there are fewer."""
    answer = tail(data, "--from", "earliest", "--count", str(count))
    assert (answer.code, len(answer.json_lines)) == (0, min(count, 67))


def test_count_ends_a_following_tail(data: Path) -> None:
    """As soon as it has printed that many."""
    answer = run("tail", "--data-dir", data, "--from", "earliest", "--count", "3", "traces")
    lines = answer.out.splitlines()
    assert (answer.code, lines[0], len(lines)) == (0, "0:0  10 B  message 0 ", 3)


def test_offset_outside_the_log_says_which_there_are(data: Path) -> None:
    """With the earliest and the end."""
    answer = tail(data, "--from", "61", "--partition", "0")
    assert answer.is_one_sentence()
    assert "0 to 60" in answer.err


def test_topic_is_given_in_full_or_by_its_name(data: Path) -> None:
    """A name alone lies in the namespace `default`."""
    common = ["tail", "--data-dir", data, "--no-follow", "--from", "earliest"]
    assert run(*common, "/default/traces") == run(*common, "traces")
    assert run(*common, "/other/traces").is_one_sentence()


def test_unfinished_file_is_read(data: Path) -> None:
    """After a kill, before anybody opened the log again."""
    write_killed_log(log_folder(data, 2), (3, 4))
    answer = tail(data, "--from", "earliest", "--partition", "2")
    assert places(answer.json_lines) == offsets(2, range(7))


# --- following ---------------------------------------------------------------------------------


def test_follows_another_process_over_rotations(data: Path, log: Path) -> None:
    """Each message once and in order, while files end and begin."""
    process = start(
        *("tail", "--json", "--data-dir", data, "--from", "0", "--count", "6060"),
        *("--partition", "0", "traces"),
    )
    with writer_process(log) as writer:
        for count in (1, 999, 2000, 3000):
            end = tell(writer, count)
        answer = finish(process)
    assert end == 6060
    assert (answer.code, answer.err) == (0, "")
    assert places(answer.json_lines) == offsets(0, range(6060))
    assert len(list(log.glob("*.wal"))) > 5


def test_follows_all_partitions(data: Path, log: Path) -> None:
    """From the latest on: what comes to either is printed."""
    write_log(log_folder(data, 1), (53,))
    process = start(
        *("tail", "--json", "--data-dir", data, "--from", "60", "--count", "30", "traces")
    )
    with writer_process(log) as one, writer_process(log_folder(data, 1)) as other:
        tell(one, 10)
        tell(other, 20)
        answer = finish(process)
    found = sorted(places(answer.json_lines))
    assert found == offsets(0, range(60, 70)) + offsets(1, range(60, 80))


# --- damage ------------------------------------------------------------------------------------


def test_damaged_message_is_named_and_the_rest_printed(data: Path, log: Path) -> None:
    """Exit code 1; stdout has messages and nothing else."""
    position = flip_message(log, 20, 33)
    answer = tail(data, "--from", "earliest", "--partition", "0")
    assert answer.code == 1
    assert places(answer.json_lines) == offsets(0, range(33), range(34, 60))
    (line,) = answer.err.splitlines()
    for word in ("/default/traces", "partition 0", "offsets 33 to 33", str(position)):
        assert word in line


def test_missing_file_is_named_and_the_rest_printed(data: Path, log: Path) -> None:
    """The next file says where to go on."""
    wal(log, 20).unlink()
    answer = tail(data, "--from", "earliest")
    assert answer.code == 1
    found = sorted(places(answer.json_lines))
    assert found == offsets(0, range(20), range(50, 60)) + offsets(1, range(7))
    assert "offsets 20 to 49" in answer.err


def test_truncated_file_is_named_and_the_rest_printed(data: Path, log: Path) -> None:
    """From the cut to the next file."""
    truncate_before(log, 20, 45)
    answer = tail(data, "--from", "earliest", "--partition", "0")
    assert answer.code == 1
    assert places(answer.json_lines) == offsets(0, range(45), range(50, 60))
    assert "offsets 45 to 49" in answer.err


@pytest.mark.parametrize(("first", "end"), [(0, 20), (20, 50)])
def test_unreadable_file_is_named_and_the_rest_printed(
    data: Path, log: Path, first: int, end: int
) -> None:
    """A damaged header costs the messages of its file, not those of the others."""
    for position in (20, 2068):
        flip(wal(log, first), position)
    answer = tail(data, "--from", "earliest", "--partition", "0")
    assert answer.code == 1
    assert places(answer.json_lines) == offsets(0, range(first), range(end, 60))
    assert f"offsets {first} to {end - 1}" in answer.err


def test_following_tail_names_a_loss_when_it_meets_it(data: Path, log: Path) -> None:
    """It may never end: what it passed over cannot wait until then."""
    flip_message(log, 20, 33)
    process = start("tail", "--data-dir", data, "--from", "earliest", "traces")
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], 10)
    process.terminate()
    answer = finish(process)
    assert ready, "nothing was said on stderr"
    assert "offsets 33 to 33" in answer.err


# --- previews ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (b"", ""),
        (b"plain text", "plain text"),
        ("größer".encode(), "größer"),
        (b"\x00\x01\xff", "00 01 ff"),
        (b"two\nlines", "74 77 6f 0a 6c 69 6e 65 73"),
        (b"\x1b[31mred", "1b 5b 33 31 6d 72 65 64"),
        (b"x" * 101, "x" * 100 + "…"),
        (b"\x00" * 101, " ".join(["00"] * 32) + "…"),
    ],
)
def test_preview_is_text_where_it_can_be(message: bytes, shown: str) -> None:
    """In hex otherwise: nothing in a message reaches the terminal as a command."""
    assert preview(message) == shown


def test_preview_that_cuts_a_character_in_two_is_still_text() -> None:
    """A long message in any language is shown as text."""
    assert preview(("a" + "é" * 80).encode()).startswith("aééé")
