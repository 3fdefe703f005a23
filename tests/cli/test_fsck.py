"""`penstock fsck` finds damage, says what it cost, and repairs it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.running import Answer, finish, fsck, log_folder, run, start, writer_process
from tests.log.small_logs import (
    flip,
    flip_message,
    frame_position,
    messages_for,
    read_log,
    truncate_before,
    wal,
    write_killed_log,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def damage(path: Path) -> dict[str, Any]:
    """The one damage that there is."""
    code, found = fsck(path)
    assert (code, found["sound"], len(found["damage"])) == (1, False, 1)
    return found["damage"][0]


# --- sound -------------------------------------------------------------------------------------


def test_sound_directory_exits_with_0(data: Path) -> None:
    """After reading every byte of every log."""
    code, found = fsck(data)
    size = sum(path.stat().st_size for path in data.rglob("*.wal"))
    assert code == 0
    assert (found["sound"], found["damage"], found["notes"]) == (True, [], [])
    assert (found["logs"], found["files_checked"], found["bytes_checked"]) == (2, 6, size)
    assert (found["messages"], found["messages_lost"]) == (67, 0)


def test_directory_without_topics_is_sound(data: Path) -> None:
    """There is nothing in it to be wrong."""
    shutil.rmtree(data / "topics")
    assert fsck(data)[0] == 0


def test_one_log_and_one_file_can_be_verified(log: Path) -> None:
    """By their paths."""
    assert fsck(log)[1]["messages"] == 60
    code, found = fsck(wal(log, 20))
    assert (code, found["files_checked"], found["messages"]) == (0, 1, 30)


def test_killed_log_is_sound(data: Path) -> None:
    """A torn tail was never acknowledged; it is noted."""
    folder = write_killed_log(log_folder(data, 2))
    with wal(folder, 50).open("r+b") as file:
        file.seek(frame_position(50, 60))
        file.write((60).to_bytes(8, "little") + b"\x20")
    code, found = fsck(folder)
    assert (code, found["messages"]) == (0, 60)
    assert "interrupted write" in found["notes"][0]


def test_log_that_another_process_writes_is_sound(data: Path, log: Path) -> None:
    """Verifying needs no lock."""
    with writer_process(log):
        assert fsck(data)[0] == 0


def test_text_for_people_ends_with_the_verdict(data: Path, log: Path) -> None:
    """And names the place of each damage."""
    assert run("fsck", data).out.splitlines()[-1] == "sound"
    position = flip_message(log, 20, 33)
    answer = run("fsck", data)
    assert (answer.code, answer.err) == (1, "")
    assert f"{wal(log, 20)} at byte {position}" in answer.out
    assert "1 message " in answer.out
    assert "offset 33" in answer.out


@pytest.mark.parametrize("name", ["notes.txt", "log.ckpt.bak"])
def test_file_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    """It is neither sound nor damaged."""
    (tmp_path / name).write_text("text")
    assert run("fsck", tmp_path / name).is_one_sentence()
    assert run("fsck", tmp_path).is_one_sentence()


# --- damaged -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "offset"), [(0, 0), (20, 33), (50, 59)])
def test_flipped_byte_is_found_where_it_is(data: Path, log: Path, first: int, offset: int) -> None:
    """File, position, offset, and one message lost."""
    position = flip_message(log, first, offset)
    row = damage(data)
    assert (row["file"], row["position"]) == (str(wal(log, first)), position)
    assert (row["first_offset"], row["messages_lost"]) == (offset, 1)


def test_deleted_middle_file_costs_what_was_in_it(data: Path, log: Path) -> None:
    """Thirty messages."""
    wal(log, 20).unlink()
    row = damage(data)
    assert (row["file"], row["first_offset"], row["messages_lost"]) == (str(wal(log, 20)), 20, 30)


def test_deleted_last_file_costs_what_was_in_it(data: Path, log: Path) -> None:
    """The checkpoint knows that it was there."""
    wal(log, 50).unlink()
    row = damage(data)
    assert (row["file"], row["first_offset"], row["messages_lost"]) == (str(wal(log, 50)), 50, 10)


def test_all_files_deleted_cost_all_messages(data: Path, log: Path) -> None:
    """As long as the checkpoint is there."""
    for path in log.glob("*.wal"):
        path.unlink()
    assert damage(data)["messages_lost"] == 60


@pytest.mark.parametrize(("first", "offset", "lost"), [(20, 45, 5), (50, 51, 9)])
def test_truncated_file_costs_what_was_cut_off(
    data: Path, log: Path, first: int, offset: int, lost: int
) -> None:
    """Every damage that is named lies in the file that was cut."""
    truncate_before(log, first, offset)
    code, found = fsck(data)
    assert (code, found["messages_lost"], found["messages"]) == (1, lost, 67 - lost)
    assert {row["file"] for row in found["damage"]} == {str(wal(log, first))}


def test_damaged_checkpoint_costs_no_message(data: Path, log: Path) -> None:
    """It is reported by its name."""
    (log / "log.ckpt").write_text("{}")
    row = damage(data)
    assert (row["file"], row["messages_lost"]) == (str(log / "log.ckpt"), 0)


def test_foreign_file_is_not_taken_for_a_part_of_the_log(data: Path, log: Path) -> None:
    """Neither a copy under another name nor a file of another log under the right one."""
    other = write_log(log_folder(data, 2), (20, 30))
    for source, reason in [(wal(log, 0), "begins at 0"), (wal(other, 20), "another log")]:
        shutil.copy(source, wal(log, 20))
        code, found = fsck(log)
        assert (code, found["messages_lost"], found["messages"]) == (1, 30, 30)
        assert reason in found["damage"][0]["detail"]
        assert found["damage"][0]["file"] == str(wal(log, 20))


def test_damaged_identity_is_found(data: Path) -> None:
    """The logs are verified all the same."""
    (data / "penstock.json").write_text("{")
    code, found = fsck(data)
    assert (code, found["messages"]) == (1, 67)
    assert [row["kind"] for row in found["damage"]] == ["identity"]


def test_damage_of_all_logs_is_added_up(data: Path, log: Path) -> None:
    """Each row says in which file."""
    flip_message(log, 20, 33)
    flip_message(log_folder(data, 1), 0, 3)
    code, found = fsck(data)
    assert (code, found["messages_lost"], len(found["damage"])) == (1, 2, 2)
    assert {row["file"] for row in found["damage"]} == {
        str(wal(log, 20)),
        str(wal(log_folder(data, 1), 0)),
    }


def test_single_damaged_file_is_found(log: Path) -> None:
    """Without its neighbours; the others are not looked at."""
    position = flip_message(log, 20, 33)
    assert fsck(wal(log, 0))[0] == 0
    row = damage(wal(log, 20))
    assert (row["position"], row["first_offset"], row["messages_lost"]) == (position, 33, 1)


def test_script_finds_damage_too(data: Path, log: Path) -> None:
    """The installed command says the same and logs nothing beside it."""
    flip_message(log, 20, 33)
    assert finish(start("fsck", "--json", data)) == run("fsck", "--json", data)


# --- repair ------------------------------------------------------------------------------------


def lose_header(log: Path) -> None:
    """Damages both copies of the middle file's header."""
    for position in (20, 2068):
        flip(wal(log, 20), position)


HARMS: dict[str, tuple[Callable[[Path], object], set[int]]] = {
    "flipped byte": (lambda log: flip_message(log, 20, 33), {33}),
    "deleted middle file": (lambda log: wal(log, 20).unlink(), set(range(20, 50))),
    "deleted last file": (lambda log: wal(log, 50).unlink(), set(range(50, 60))),
    "truncated middle file": (lambda log: truncate_before(log, 20, 45), set(range(45, 50))),
    "truncated last file": (lambda log: truncate_before(log, 50, 51), set(range(51, 60))),
    "unreadable header": (lose_header, set(range(20, 50))),
    "damaged checkpoint": (lambda log: (log / "log.ckpt").write_text("{}"), set()),
}


@pytest.mark.parametrize(("harm", "gone"), HARMS.values(), ids=HARMS.keys())
def test_repaired_log_stays_sound(
    data: Path, log: Path, harm: Callable[[Path], object], gone: set[int]
) -> None:
    """The repair exits with 0, and so does every fsck after it, also once the log was used."""
    harm(log)
    code, found = fsck(data, "--repair")
    assert (code, found["repaired"], found["messages_lost"]) == (0, True, len(gone))
    assert (found["after"]["sound"], found["after"]["messages"]) == (True, 67 - len(gone))
    assert fsck(data)[0] == 0
    kept = sorted(set(range(60)) - gone)
    assert read_log(log) == dict(zip(kept, messages_for(kept), strict=True))
    assert fsck(data)[0] == 0


def test_repair_keeps_the_original_and_remembers_the_loss(data: Path, log: Path) -> None:
    """As FILE.damaged; what was lost is known and damage no more."""
    flip_message(log, 20, 33)
    damaged = wal(log, 20).read_bytes()
    assert fsck(data, "--repair")[0] == 0
    assert (log / f"{wal(log, 20).name}.damaged").read_bytes() == damaged
    known = {"folder": str(log), "first_offset": 33, "messages_lost": 1}
    assert fsck(data)[1]["known_losses"] == [known]


def test_repair_of_a_sound_directory_changes_nothing(data: Path) -> None:
    """And has nothing to report."""
    before = {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}
    code, found = fsck(data, "--repair")
    assert (code, "repaired" in found) == (0, False)
    assert {path: path.read_bytes() for path in data.rglob("*") if path.is_file()} == before


def test_repair_of_an_open_log_names_its_process(data: Path, log: Path) -> None:
    """It needs the server stopped; nothing is changed."""
    flip_message(log, 20, 33)
    damaged = wal(log, 20).read_bytes()
    with writer_process(log) as writer:
        answer = run("fsck", "--repair", data)
        assert answer.is_one_sentence()
        assert str(writer.pid) in answer.err
    assert wal(log, 20).read_bytes() == damaged


def test_repair_of_one_file_is_refused(log: Path) -> None:
    """A file is repaired as a part of its log."""
    flip_message(log, 20, 33)
    answer = run("fsck", "--repair", wal(log, 20))
    assert answer.is_one_sentence()
    assert "folder" in answer.err


def test_repair_for_people_says_what_is_readable(data: Path, log: Path) -> None:
    """What was damaged first, the result last."""
    flip_message(log, 20, 33)
    answer: Answer = run("fsck", "--repair", data)
    assert answer.code == 0
    assert "damaged:" in answer.out
    assert answer.out.splitlines()[-1] == "repaired: 66 messages readable; sound now"


def test_identity_is_not_repaired(data: Path) -> None:
    """Which data directory this was, only its owner knows."""
    (data / "penstock.json").write_text("{")
    code, found = fsck(data, "--repair")
    assert (code, found["after"]["sound"]) == (1, False)
    assert (data / "penstock.json").read_text() == "{"


# --- odd directories ---------------------------------------------------------------------------


def test_topic_behind_a_link_is_verified_too(data: Path) -> None:
    """A topic may live on another disk; links that lead in circles end somewhere."""
    before = fsck(data)[1]["messages"]
    topic = log_folder(data).parent.parent
    elsewhere = topic.rename(data.parent / "elsewhere")
    topic.symlink_to(elsewhere)
    (elsewhere / "circle").symlink_to(data)
    assert fsck(data)[1]["messages"] == before
    flip_message(log_folder(data), 20, 33)
    assert damage(data)["messages_lost"] == 1


def test_name_that_leads_nowhere_is_a_clear_error(data: Path) -> None:
    """It is listed and cannot be opened: said in one sentence, not tried for ever."""
    (log_folder(data) / wal(data, 90).name).symlink_to(data / "nowhere")
    for command in (["fsck", data], ["topics", "--data-dir", data]):
        answer = run(*command)
        assert (answer.code, answer.out) == (1, "")
        assert "No such file" in answer.err
