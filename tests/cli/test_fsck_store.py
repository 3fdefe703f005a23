"""`penstock fsck` verifies segments and acknowledgement logs, and repairs them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from penstock.log import format as log_format
from penstock.model.errors import UnsupportedVersion
from penstock.segment import format as segment_format
from penstock.storage import DataDirectory, LocalFiles
from penstock.store.verify import survey_store, verify_store, verify_store_file
from tests.cli.running import fsck, run
from tests.cli.stores import (
    LOGS,
    Placed,
    bundle,
    delivered,
    eventually,
    harm,
    harm_header,
    harm_text,
    make_store,
    open_store,
    owner_process,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penstock.storage import File


def damage(store: Placed) -> dict[str, Any]:
    """The one damage that there is."""
    code, found = fsck(store.data)
    assert (code, found["sound"], len(found["damage"])) == (1, False, 1)
    return found["damage"][0]


def counts(store: Placed, outcome: str) -> dict[str, int]:
    """How many bundles of each subscriber ended so."""
    rows = run("subscribers", "list", "--json", "--data-dir", store.data).json
    return {row["subscriber"]: row[outcome] for row in rows}


@pytest.fixture
def killed(store: Placed) -> Placed:
    """The store as a killed process left it: its ack.log holds four events behind the snapshot."""
    copy = Placed(store.data.with_name("killed"), store.data.with_name("killed"))
    copy = Placed(copy.data, DataDirectory(copy.data).partition(LOGS).folder)
    with open_store(store.folder) as opened:
        archive = opened.subscribe("archive")
        for _ in range(4):
            archive.next_bundle(60).ack().wait()
        shutil.copytree(store.data, copy.data, ignore=shutil.ignore_patterns("*.tmp"))
    return copy


# --- sound -------------------------------------------------------------------------------------


def test_sound_store_exits_with_0(store: Placed) -> None:
    """After reading every byte of it."""
    code, found = fsck(store.data)
    assert (code, found["sound"], found["damage"], found["notes"]) == (0, True, [], [])
    assert (found["logs"], found["stores"], found["segments"], found["bundles"]) == (1, 1, 3, 12)
    files = [*store.folder.rglob("*.seg"), *store.folder.rglob("*.wal")]
    files += [store.ack_log, store.checkpoint]
    assert found["files_checked"] == len(files) + 1  # and log.ckpt
    assert found["bytes_checked"] == sum(path.stat().st_size for path in files)


def test_killed_store_is_sound(killed: Placed) -> None:
    """Whatever its last moment was."""
    assert fsck(killed.data)[0] == 0


def test_parts_of_a_store_can_be_verified(store: Placed) -> None:
    """By their paths; the folder of segments stands for the store."""
    for path in (store.folder, store.folder / "segments"):
        assert fsck(path)[1]["bundles"] == 12
    assert fsck(store.segment(1))[1]["bundles"] == 4
    for path in (store.ack_log, store.checkpoint):
        assert fsck(path)[1]["files_checked"] == 1


def test_text_for_people_counts_segments_and_bundles(store: Placed) -> None:
    """And ends with the verdict."""
    first, last = run("fsck", store.data).out.splitlines()
    assert first.endswith("12 messages, 3 segments, 12 bundles")
    assert last == "sound"


def test_leftovers_are_notes_and_no_damage(store: Placed) -> None:
    """A half-written segment, files set aside, messages that nobody understood."""
    (store.folder / "segments" / f"{store.segment(3).name}.tmp").write_bytes(b"half")
    (store.folder / "ack.log.damaged").write_bytes(b"")
    (store.folder / "segments" / f"{store.segment(9).name}.damaged").write_bytes(b"")
    (store.folder / "aside").mkdir()
    (store.folder / "aside" / f"{5:020d}.msg").write_bytes(b"?")
    code, found = fsck(store.data)
    assert (code, len(found["notes"])) == (0, 4)


def test_missing_checkpoint_is_no_damage(store: Placed) -> None:
    """It is a second copy."""
    store.checkpoint.unlink()
    assert fsck(store.data)[0] == 0


def test_checkpoint_that_is_older_than_ack_log_is_no_damage(store: Placed) -> None:
    """The process was killed between the two: ack.log begins with a newer snapshot."""
    older = store.checkpoint.read_bytes()
    with open_store(store.folder) as opened:
        opened.register("newcomer")
    store.checkpoint.write_bytes(older)
    assert fsck(store.data)[0] == 0
    with open_store(store.folder) as opened:
        assert opened.problems == ()
        assert [each.name for each in opened.subscribers()] == ["exporter", "archive", "newcomer"]


def test_segment_that_no_event_names_is_a_note(store: Placed) -> None:
    """It was sealed just before the end; opening the store takes it in."""
    with open_store(store.folder) as opened:
        ack_files = [(path, path.read_bytes()) for path in (store.ack_log, store.checkpoint)]
        opened.append(bundle(12))
    for path, content in ack_files:
        path.write_bytes(content)
    code, found = fsck(store.data)
    assert (code, found["segments"]) == (0, 4)
    assert "takes it in" in found["notes"][0]


def test_busy_store_of_another_process_is_sound(store: Placed) -> None:
    """However often it is looked at while segments come and go."""
    folder = DataDirectory(store.data).partition(LOGS, 1).folder
    with owner_process(folder) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        owner.stdin.write("60\n")
        owner.stdin.flush()
        seen = [fsck(folder) for _ in range(12)]
        assert owner.stdout.readline() == "done\n"
    assert [found["damage"] for _, found in seen] == [[]] * 12


class Meanwhile(LocalFiles):
    """Does something of the test's just before a folder of segments is listed."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def names(self, folder: Path) -> list[str]:
        """What is in the folder."""
        if folder.name == "segments":
            self._act()
        return super().names(folder)


class Midway(LocalFiles):
    """Shows ack.log once as it was in the middle of a write, and then as it is."""

    def __init__(self, half_written: Path) -> None:
        self._half_written = half_written

    def open(self, path: Path) -> File:
        """An existing file, for reading."""
        seen = path if path.name != "ack.log" else self._half_written
        self._half_written = path if seen == self._half_written else self._half_written
        return super().open(seen)


def test_segment_that_goes_while_fsck_looks_is_not_missing(store: Placed) -> None:
    """Its removal was recorded before its file went."""
    with open_store(store.folder) as opened:
        for name in ("exporter", "archive"):
            subscription = opened.subscribe(name)
            while delivery := subscription.next_bundle(0):
                delivery.ack()
        assert eventually(lambda: opened.segments == ())
    after = store.ack_log.read_bytes()
    shutil.rmtree(store.data)
    make_store(store.data)

    def remove_all() -> None:
        store.ack_log.write_bytes(after)
        for path in store.folder.glob("segments/*.seg"):
            path.unlink()

    store.checkpoint.unlink()
    assert verify_store(Meanwhile(remove_all), store.folder).damage == []
    assert not store.segment(0).exists()


def test_event_that_is_being_written_is_no_damage(killed: Placed) -> None:
    """What is damaged is so a second time."""
    half = killed.folder / "half"
    shutil.copy(killed.ack_log, half)
    position = half.read_bytes().index(bytes([7, 1, 1, 0, 0, 0]))
    harm(half, position + 20)
    assert verify_store(Midway(half), killed.folder).damage == []
    assert survey_store(Midway(half), killed.folder).problems == []
    shutil.copy(half, killed.ack_log)
    assert len(verify_store(LocalFiles(), killed.folder).damage) == 1
    assert len(survey_store(LocalFiles(), killed.folder).problems) == 1


# --- damaged segments --------------------------------------------------------------------------


def test_damaged_chunk_costs_its_bundle(store: Placed) -> None:
    """File, position, and the one message in it."""
    position = harm_text(store.segment(1), b"span 6span 6")
    row = damage(store)
    assert row["file"] == str(store.segment(1))
    assert row["position"] <= position
    assert (row["kind"], row["first_offset"], row["messages_lost"]) == ("segment", 6, 1)
    assert fsck(store.segment(1))[1]["messages_lost"] == 1


def test_two_damaged_slots_of_a_bundle_cost_it_once(store: Placed) -> None:
    """Messages are not counted twice."""
    harm_text(store.segment(1), b"span 6span 6")
    harm_text(store.segment(1), b"key 6")
    code, found = fsck(store.data)
    assert (code, len(found["damage"]), found["messages_lost"]) == (1, 2, 1)
    assert found["bundles"] == 11


@pytest.mark.parametrize(
    "act",
    [
        lambda path: harm(path, 10),
        lambda path: harm(path, path.stat().st_size - 20),
        lambda path: harm(path, path.stat().st_size - 300),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
    ],
    ids=["header", "trailer", "footer", "truncated", "empty", "missing"],
)
def test_unreadable_segment_costs_all_its_messages(
    store: Placed, act: Callable[[Path], object]
) -> None:
    """ack.log knows how many there were."""
    store.segment(1).chmod(0o644)
    act(store.segment(1))
    row = damage(store)
    assert (row["file"], row["first_offset"]) == (str(store.segment(1)), 4)
    assert row["messages_lost"] == 4


def test_swapped_segments_are_not_taken_for_each_other(store: Placed) -> None:
    """Neither under another number nor one of another store under the right one."""
    content = store.segment(0).read_bytes()
    store.segment(1).unlink()
    store.segment(1).write_bytes(content)
    assert "segment 0" in damage(store)["detail"]
    other = DataDirectory(store.data).partition(LOGS, 7).folder
    with open_store(other) as opened:
        for _ in range(2):
            opened.append(bundle(0))
            opened.flush()
    foreign = Placed(store.data, other).segment(1).read_bytes()
    store.segment(1).write_bytes(foreign)
    assert "not the segment that ack.log names" in damage(store)["detail"]


def test_swapped_segment_is_not_delivered_in_the_place_of_another(store: Placed) -> None:
    """Its bundles count as lost; no wrong one passes for them."""
    content = store.segment(0).read_bytes()
    store.segment(1).unlink()
    store.segment(1).write_bytes(content)
    assert delivered(store, "archive") == [0, 1, 2, 3, 8, 9, 10, 11]
    assert counts(store, "lost")["archive"] == 4


def test_every_flipped_byte_of_a_segment_is_found(store: Placed) -> None:
    """Wherever it lies; here a sample of the bytes."""
    path = store.segment(2)
    path.chmod(0o644)
    whole = path.read_bytes()
    for position in range(0, len(whole), 41):
        data = bytearray(whole)
        data[position] ^= 0x01
        path.write_bytes(data)
        assert not verify_store(LocalFiles(), store.folder).sound, position


# --- damaged acknowledgement logs ----------------------------------------------------------------


def test_damaged_event_is_found_where_it_is(killed: Placed) -> None:
    """It costs no message: its answer is asked for again."""
    data = killed.ack_log.read_bytes()
    position = data.index(bytes([7, 1, 1, 0, 0, 0]))  # the first answer of subscriber 1
    harm(killed.ack_log, position + 20)
    row = damage(killed)
    assert (row["file"], row["position"]) == (str(killed.ack_log), position - 16)
    assert (row["kind"], row["messages_lost"]) == ("events", 0)
    assert fsck(killed.ack_log)[0] == 1


def test_event_that_nobody_understands_is_found(store: Placed) -> None:
    """Though its CRC holds: it was written by something else."""
    with open_store(store.folder) as opened:
        opened._journal._acks._commits.append(b"\x63 unknown").durable.wait()
        copy = store.ack_log.read_bytes()
    store.ack_log.write_bytes(copy)
    assert "not an event" in damage(store)["detail"]


@pytest.mark.parametrize(("copies", "lost"), [([20], "one of the two"), ([20, 2068], "damaged")])
def test_damaged_header_of_ack_log_is_found(store: Placed, copies: list[int], lost: str) -> None:
    """One copy or both."""
    for position in copies:
        harm(store.ack_log, position)
    row = damage(store)
    assert (row["file"], row["kind"]) == (str(store.ack_log), "header")
    assert lost in row["detail"]


def test_missing_ack_log_is_found(store: Placed) -> None:
    """The checkpoint and the segments show that there was one."""
    store.ack_log.unlink()
    assert (damage(store)["file"], damage(store)["kind"]) == (str(store.ack_log), "missing")


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 5000, b'{"penstock": "ack checkpoint"}'])
def test_damaged_checkpoint_is_found(store: Placed, content: bytes) -> None:
    """By its own name, also when it is verified alone."""
    store.checkpoint.write_bytes(content)
    assert (damage(store)["file"], damage(store)["kind"]) == (str(store.checkpoint), "checkpoint")
    assert not verify_store_file(LocalFiles(), store.checkpoint).sound


@pytest.mark.parametrize("part", ["ack.log", "segment"])
def test_store_of_a_newer_version_is_neither_damaged_nor_touched(
    store: Placed, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused in one sentence, by fsck, by other commands and by the store itself."""
    if part == "ack.log":
        monkeypatch.setattr(log_format, "VERSION", 2)
    else:
        monkeypatch.setattr(segment_format, "PLAIN", 3)
        store.ack_log.unlink()
        store.checkpoint.unlink()
    before = {path: path.read_bytes() for path in store.data.rglob("*") if path.is_file()}
    assert run("fsck", "--repair", store.folder).is_one_sentence()
    answer = run("subscribers", "add", "--data-dir", store.data, "logs", "newcomer")
    assert answer.is_one_sentence()
    assert "version 1" in answer.err
    with pytest.raises(UnsupportedVersion):
        open_store(store.folder)
    after = {path: path.read_bytes() for path in store.data.rglob("*") if path.is_file()}
    assert after == before


# --- repair ------------------------------------------------------------------------------------


def test_repair_keeps_a_segment_with_readable_bundles(store: Placed) -> None:
    """What cannot be read is recorded as lost for whoever lacks it; the rest is delivered."""
    harm_text(store.segment(1), b"span 6span 6")
    damaged = store.segment(1).read_bytes()
    code, found = fsck(store.data, "--repair")
    assert (code, found["after"]["sound"]) == (0, True)
    assert store.segment(1).read_bytes() == damaged
    assert counts(store, "lost") == {"exporter": 1, "archive": 1}
    assert delivered(store, "archive") == [number for number in range(12) if number != 6]


def test_repair_remembers_the_loss(store: Placed) -> None:
    """The next fsck is clean, and says what was lost earlier."""
    harm_text(store.segment(1), b"span 6span 6")
    fsck(store.data, "--repair")
    code, found = fsck(store.data)
    known = {"folder": str(store.folder), "first_offset": 6, "messages_lost": 1}
    assert (code, found["known_losses"]) == (0, [known])


def test_what_everybody_has_had_is_no_damage(store: Placed) -> None:
    """Nobody waits for it any more: also without a repair."""
    with open_store(store.folder) as opened:
        archive = opened.subscribe("archive")
        for _ in range(2):
            archive.next_bundle(60).ack().wait()
    harm_text(store.segment(0), b"span 1span 1")
    code, found = fsck(store.data)
    assert (code, found["known_losses"][0]["first_offset"]) == (0, 1)
    harm_text(store.segment(0), b"span 2span 2")
    assert damage(store)["first_offset"] == 2


def test_damage_stays_damage_where_nobody_subscribes(store: Placed) -> None:
    """There is no answer to record: the readable bundles stay for whoever comes."""
    for name in ("exporter", "archive"):
        run("subscribers", "remove", "--data-dir", store.data, "logs", name)
    harm_text(store.segment(1), b"span 6span 6")
    code, found = fsck(store.data, "--repair")
    assert (code, len(found["after"]["damage"])) == (1, 1)
    assert len(delivered(store, "late")) == 11


def test_repair_sets_an_unreadable_segment_aside(store: Placed) -> None:
    """As FILE.damaged; its bundles are lost for whoever lacked them."""
    harm(store.segment(0), store.segment(0).stat().st_size - 20)
    damaged = store.segment(0).read_bytes()
    assert fsck(store.data, "--repair")[0] == 0
    aside = store.segment(0).with_name(f"{store.segment(0).name}.damaged")
    assert (aside.read_bytes(), store.segment(0).exists()) == (damaged, False)
    assert counts(store, "lost") == {"exporter": 1, "archive": 4}
    assert fsck(store.data)[0] == 0
    assert delivered(store, "archive") == list(range(4, 12))


def test_repair_gives_up_a_missing_segment(store: Placed) -> None:
    """Its bundles are lost, exactly those."""
    store.segment(1).unlink()
    assert fsck(store.data, "--repair")[0] == 0
    assert counts(store, "lost") == {"exporter": 4, "archive": 4}
    assert delivered(store, "exporter") == [2, 8, 9, 10, 11]


def test_repair_writes_the_acknowledgement_log_anew(killed: Placed) -> None:
    """From what is provable; the original is kept, and nothing is skipped."""
    position = killed.ack_log.read_bytes().index(bytes([7, 1, 1, 0, 0, 0]))
    harm(killed.ack_log, position + 20)
    damaged = killed.ack_log.read_bytes()
    assert fsck(killed.data, "--repair")[0] == 0
    assert (killed.folder / "ack.log.damaged").read_bytes() == damaged
    assert counts(killed, "acked") == {"exporter": 2, "archive": 3}
    assert delivered(killed, "archive") == [0, *range(4, 12)]


@pytest.mark.parametrize(
    "act",
    [
        lambda store: harm_header(store.ack_log),
        lambda store: store.ack_log.unlink(),
        lambda store: store.checkpoint.write_bytes(b"{}"),
        lambda store: (harm_header(store.ack_log), store.checkpoint.write_bytes(b"{}")),
        lambda store: (store.ack_log.unlink(), store.checkpoint.unlink()),
    ],
    ids=["ack.log", "no ack.log", "ack.ckpt", "both", "neither"],
)
def test_repaired_store_delivers_every_bundle(
    store: Placed, act: Callable[[Placed], object]
) -> None:
    """Whichever of the two files is left, and without either."""
    act(store)
    assert fsck(store.data)[0] == 1
    assert fsck(store.data, "--repair")[0] == 0
    assert fsck(store.data)[0] == 0
    assert delivered(store, "archive") == list(range(12))


def test_repair_of_a_sound_store_changes_nothing(store: Placed) -> None:
    """And has nothing to report."""
    before = {path: path.read_bytes() for path in store.data.rglob("*") if path.is_file()}
    code, found = fsck(store.data, "--repair")
    assert (code, "repaired" in found) == (0, False)
    assert {path: path.read_bytes() for path in store.data.rglob("*") if path.is_file()} == before


def test_second_repair_finds_nothing_to_do(store: Placed) -> None:
    """The first one was whole."""
    harm_text(store.segment(1), b"span 6span 6")
    store.segment(2).unlink()
    assert fsck(store.data, "--repair")[0] == 0
    assert "repaired" not in fsck(store.data, "--repair")[1]


def test_repair_of_a_store_in_use_names_its_process(store: Placed) -> None:
    """It needs the server stopped; nothing is changed."""
    harm_text(store.segment(1), b"span 6span 6")
    with owner_process(store.folder) as owner:
        answer = run("fsck", "--repair", store.data)
        assert answer.is_one_sentence()
        assert str(owner.pid) in answer.err
    assert counts(store, "lost") == {"exporter": 0, "archive": 0}


def test_repair_of_one_file_of_a_store_is_refused(store: Placed) -> None:
    """A segment is repaired as a part of its store."""
    harm_text(store.segment(1), b"span 6span 6")
    answer = run("fsck", "--repair", store.segment(1))
    assert answer.is_one_sentence()
    assert "folder" in answer.err


def test_repair_for_people_says_what_is_readable(store: Placed) -> None:
    """Bundles beside messages."""
    harm_text(store.segment(1), b"span 6span 6")
    last = run("fsck", "--repair", store.data).out.splitlines()[-1]
    assert last == "repaired: 12 messages and 11 bundles readable; sound now"
