"""`penstock subscribers` shows who is how far, and changes it while nobody has the store open."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from penstock.model import Topic
from penstock.storage import DataDirectory
from tests.cli.running import log_folder, run
from tests.cli.stores import (
    LOGS,
    Placed,
    bundle,
    delivered,
    eventually,
    harm,
    harm_header,
    make_store,
    open_store,
    owner_process,
)

if TYPE_CHECKING:
    from pathlib import Path


def listed(store: Placed, *arguments: str) -> list[dict[str, Any]]:
    """What `list` says, as JSON."""
    answer = run("subscribers", "list", "--json", "--data-dir", store.data, *arguments)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def change(store: Placed, command: str, *arguments: str) -> list[dict[str, Any]]:
    """What a command that changes something says, as JSON."""
    answer = run("subscribers", command, "--json", "--data-dir", store.data, *arguments)
    assert (answer.code, answer.err) == (0, "")
    return answer.json


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, with its bytes."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# --- list --------------------------------------------------------------------------------------


def test_list_says_how_far_each_subscriber_is(store: Placed) -> None:
    """Its mark, what it lacks, and what became of the rest."""
    exporter, archive = listed(store)
    assert (exporter["subscriber"], exporter["active"]) == ("exporter", True)
    assert (exporter["topic"], exporter["partition"]) == ("/default/logs", 0)
    assert (exporter["segment_seq"], exporter["bundle_index"]) == (0, 2)
    assert (exporter["lag_segments"], exporter["lag_bundles"]) == (3, 9)
    assert (exporter["acked"], exporter["rejected"], exporter["nacked"]) == (2, 1, 0)
    assert (exporter["gap_set_size"], exporter["oldest_unacked_s"] > 0) == (1, True)
    assert (archive["subscriber"], archive["lag_bundles"], archive["acked"]) == ("archive", 12, 0)


def test_list_for_people_has_a_row_a_subscriber(store: Placed) -> None:
    """With the mark as segment and bundle."""
    header, exporter, archive = run(
        "subscribers", "list", "--data-dir", store.data
    ).out.splitlines()
    assert header.split()[:6] == ["topic", "partition", "subscriber", "state", "mark", "lag"]
    assert exporter.split()[:6] == ["/default/logs", "0", "exporter", "active", "0:2", "9"]
    assert archive.split()[4:6] == ["0:0", "12"]


def test_list_is_of_all_topics_or_of_one(store: Placed) -> None:
    """And of one partition, where that is asked for."""
    make_store(store.data, Topic("default", "other"))
    assert {row["topic"] for row in listed(store)} == {"/default/logs", "/default/other"}
    assert {row["topic"] for row in listed(store, "logs")} == {"/default/logs"}
    assert len(listed(store, "--partition", "0", "logs")) == 2


def test_list_changes_nothing(store: Placed) -> None:
    """Not a byte, and no file comes or goes."""
    before = contents(store.data)
    listed(store)
    assert contents(store.data) == before


def test_list_beside_a_running_store_says_what_is_durable_there(store: Placed) -> None:
    """It needs no lock."""
    with open_store(store.folder) as opened:
        assert [row["lag_bundles"] for row in listed(store)] == [9, 12]
        opened.append(bundle(12))
        opened.flush()
        opened.subscribe("exporter").next_bundle(60).ack().wait()
        assert [row["lag_bundles"] for row in listed(store)] == [9, 13]


def test_list_of_a_log_without_a_store_is_empty(data: Path) -> None:
    """That is no error."""
    answer = run("subscribers", "list", "--data-dir", data, "traces")
    assert (answer.code, answer.out) == (0, "/default/traces has no subscribers\n")
    assert not (log_folder(data).parent / "segments").exists()


def test_paused_subscriber_is_shown_as_such(store: Placed) -> None:
    """It pins data all the same."""
    with open_store(store.folder) as opened:
        opened.deactivate("archive")
    assert [row["active"] for row in listed(store)] == [True, False]
    assert "paused" in run("subscribers", "list", "--data-dir", store.data).out


def test_list_of_a_damaged_store_says_what_is_provable(store: Placed) -> None:
    """The damage is named on stderr, the exit code is 1, and nothing is written."""
    harm_header(store.ack_log)
    before = contents(store.folder)
    answer = run("subscribers", "list", "--json", "--data-dir", store.data)
    assert answer.code == 1
    assert {row["subscriber"] for row in answer.json} == {"exporter", "archive"}
    assert "ack.log" in answer.err
    assert contents(store.folder) == before


# --- add ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "numbers"),
    [
        ([], range(12)),
        (["--from", "earliest"], range(12)),
        (["--from", "1"], range(4, 12)),
        (["--from", "2"], range(8, 12)),
        (["--from", "latest"], []),
        (["--from", "99"], []),
    ],
)
def test_added_subscriber_gets_everything_from_its_start(
    store: Placed, start: list[str], numbers: range
) -> None:
    """As if it had been registered by the store."""
    (row,) = change(store, "add", *start, "logs", "newcomer")
    assert (row["subscriber"], row["added"], row["lag_bundles"]) == ("newcomer", True, len(numbers))
    assert delivered(store, "newcomer") == list(numbers)


@pytest.mark.parametrize("start", ["latest", "99"])
def test_subscriber_that_begins_at_the_end_gets_what_is_sealed_next(
    store: Placed, start: str
) -> None:
    """Also where the number lies in the future."""
    change(store, "add", "--from", start, "logs", "newcomer")
    with open_store(store.folder) as opened:
        opened.append(bundle(12))
    assert delivered(store, "newcomer") == [12]


def test_adding_keeps_what_the_others_have(store: Placed) -> None:
    """Answers and counts stay."""
    before = listed(store)
    change(store, "add", "logs", "newcomer")
    after = listed(store)
    for row in [*before, *after]:
        del row["oldest_unacked_s"]
    assert after[:2] == before
    assert [row["subscriber"] for row in after] == ["exporter", "archive", "newcomer"]


def test_adding_one_that_is_known_moves_nothing(store: Placed) -> None:
    """Wherever it would have begun."""
    (row,) = change(store, "add", "--from", "latest", "logs", "exporter")
    assert (row["added"], row["segment_seq"], row["lag_bundles"]) == (False, 0, 9)
    answer = run("subscribers", "add", "--data-dir", store.data, "logs", "exporter")
    assert answer.out.startswith("known already: exporter at /default/logs partition 0")


def test_subscriber_can_be_added_before_there_is_a_store(data: Path) -> None:
    """To a topic of which there is only the log: everything in it will be kept."""
    answer = run("subscribers", "add", "--json", "--data-dir", data, "traces", "newcomer")
    assert [(row["partition"], row["added"]) for row in answer.json] == [(0, True), (1, True)]
    with open_store(log_folder(data).parent) as opened:
        opened.flush()
        subscription = opened.subscribe("newcomer")
        deliveries = []
        while delivery := subscription.next_bundle(0):
            deliveries.append(delivery)
        assert sum(delivery.messages for delivery in deliveries) == 60


def test_bundles_in_the_log_are_left_for_the_store_to_seal(store: Placed) -> None:
    """The command knows no decoder, and touches neither log nor segments."""
    before = contents(store.folder)
    change(store, "add", "logs", "newcomer")
    changed = {name for name, data in contents(store.folder).items() if before.get(name) != data}
    assert changed - {".lock"} == {"ack.log", "ack.ckpt"}


# --- remove ------------------------------------------------------------------------------------


def test_removed_subscriber_is_gone_and_pins_nothing(store: Placed) -> None:
    """What only it lacked goes when the store is opened."""
    delivered(store, "exporter")
    (row,) = change(store, "remove", "logs", "archive")
    assert row == {
        "topic": "/default/logs",
        "partition": 0,
        "subscriber": "archive",
        "removed": True,
    }
    assert [row["subscriber"] for row in listed(store)] == ["exporter"]
    with open_store(store.folder) as opened:
        assert eventually(lambda: opened.segments == ())


@pytest.mark.parametrize("command", ["remove", "reset"])
def test_unknown_subscriber_is_one_sentence(store: Placed, command: str) -> None:
    """And nothing is changed."""
    before = contents(store.folder)
    answer = run("subscribers", command, "--data-dir", store.data, "logs", "nobody")
    assert answer.is_one_sentence()
    assert "nobody" in answer.err
    assert contents(store.folder) == before


# --- reset -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "numbers"),
    [([], range(12)), (["--from", "2"], range(8, 12)), (["--from", "latest"], [])],
)
def test_reset_subscriber_begins_anew(store: Placed, start: list[str], numbers: range) -> None:
    """With what is still there; its counts begin again, too."""
    (row,) = change(store, "reset", *start, "logs", "exporter")
    assert (row["reset"], row["acked"], row["lag_bundles"]) == (True, 0, len(numbers))
    assert delivered(store, "exporter") == list(numbers)


# --- several partitions, other processes, damage -----------------------------------------------


def test_changes_are_made_to_every_partition_or_to_the_one_named(store: Placed) -> None:
    """A subscriber is one of a topic."""
    second = DataDirectory(store.data).partition(LOGS, 1).folder
    open_store(second).close()
    assert len(change(store, "add", "--partition", "1", "logs", "first")) == 1
    assert [row["added"] for row in change(store, "add", "logs", "first")] == [True, False]
    assert len(change(store, "remove", "logs", "first")) == 2


@pytest.mark.parametrize("command", ["add", "remove", "reset"])
def test_store_in_use_is_refused_by_its_process(store: Placed, command: str) -> None:
    """And no other partition is changed either."""
    second = DataDirectory(store.data).partition(LOGS, 1).folder
    with open_store(second) as opened:
        opened.register("exporter")
    before = listed(store)
    with owner_process(second) as owner:
        answer = run("subscribers", command, "--data-dir", store.data, "logs", "exporter")
        assert answer.is_one_sentence()
        assert f"process {owner.pid}" in answer.err
    for row in [*before, *(after := listed(store))]:
        del row["oldest_unacked_s"]
    assert after == before


def test_change_to_a_damaged_store_goes_on_with_what_is_provable(store: Placed) -> None:
    """The damage is named, and the original is kept."""
    harm_header(store.ack_log)
    damaged = store.ack_log.read_bytes()
    answer = run("subscribers", "add", "--data-dir", store.data, "logs", "newcomer")
    assert (answer.code, "ack.log" in answer.err) == (0, True)
    assert (store.folder / "ack.log.damaged").read_bytes() == damaged
    assert [row["subscriber"] for row in listed(store)] == ["exporter", "archive", "newcomer"]


def test_segment_numbers_go_on_where_all_else_is_lost(store: Placed) -> None:
    """Both files are unreadable and every segment is gone: the log says what was used."""
    harm_header(store.ack_log)
    harm(store.checkpoint, 20)
    for seq in range(3):
        store.segment(seq).unlink()
    run("subscribers", "add", "--data-dir", store.data, "logs", "newcomer")
    with open_store(store.folder) as opened:
        opened.append(bundle(0))
        opened.flush()
        assert min(info.segment_seq for info in opened.segments) >= 12


@pytest.mark.parametrize("name", ["", "x" * 256, "two\nlines", "\ud800"])
def test_name_that_cannot_be_stored_is_a_usage_error(store: Placed, name: str) -> None:
    """Before anything is opened."""
    answer = run("subscribers", "add", "--data-dir", store.data, "logs", name)
    assert (answer.code, answer.out) == (2, "")


def test_names_may_have_any_letters(store: Placed) -> None:
    """And come back as they were given."""
    change(store, "add", "logs", "Größe 名")
    assert listed(store)[-1]["subscriber"] == "Größe 名"


def test_list_of_a_busy_store_reports_no_damage(store: Placed) -> None:
    """However often it is looked at while another process writes, compacts and deletes."""
    with owner_process(store.folder) as owner:
        assert owner.stdin is not None
        owner.stdin.write("30\n")
        owner.stdin.flush()
        for _ in range(15):
            listed(store)
        with contextlib.suppress(BrokenPipeError):
            owner.stdin.close()
