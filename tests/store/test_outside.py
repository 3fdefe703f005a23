"""A subscriber that reads the files by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model.errors import Damaged, ForeignPosition, SubscriberUnknown
from penstock.storage import DataDirectory
from penstock.storage.documents import encode_document
from penstock.store.outside import (
    FILE,
    LAKE,
    Delivered,
    DeliveredFile,
    Taken,
    acknowledge,
    put_behind,
    read_delivered,
    read_given,
    write_delivered,
)
from tests.store.helpers import (
    TOPIC,
    counts,
    drain,
    fill,
    open_store,
    segment_files,
    seqs,
    status,
    wait_until,
)

LATER_NS = 2**62
"""After everything that these tests seal."""


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """By the next process too."""
    assert read_delivered(tmp_path) is None
    through = {
        "/default/traces/0": Taken(41, 99, LATER_NS),
        "/default/logs/1": Taken(0, 1, LATER_NS),
    }
    delivered = Delivered("lake", through, "a")
    write_delivered(tmp_path, delivered)
    assert read_delivered(tmp_path) == delivered


def test_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    """And only then."""
    file = DeliveredFile(tmp_path)
    assert file.read() is None
    for seq in range(3):
        write_delivered(tmp_path, Delivered("lake", {"t": Taken(seq, 1, LATER_NS)}, "a"))
        first = file.read()
        assert first == Delivered("lake", {"t": Taken(seq, 1, LATER_NS)}, "a")
        assert file.read() is first


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-5], lambda data: data.replace(b"41", b"42"), lambda _: b"{}"]
)
def test_damaged_file_acknowledges_nothing(tmp_path: Path, damage: object) -> None:
    """What is acknowledged may be deleted, so it must be beyond doubt."""
    write_delivered(tmp_path, Delivered("lake", {"t": Taken(41, 99, LATER_NS)}, "a"))
    path = tmp_path / FILE
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]  # a parameter
    with pytest.raises(Damaged):
        read_delivered(tmp_path)


def test_segments_that_it_has_are_removed(tmp_path: Path) -> None:
    """Those that it lacks stay, and so does its progress over a restart."""
    with open_store(tmp_path, registered=[LAKE]) as store:
        fill(store, [0, 1], [2], [3, 4])
        assert acknowledge(store, Delivered("lake", {TOPIC: Taken(1, 3, LATER_NS)}, "a")) == 3
        wait_until(lambda: seqs(store) == [2])
        assert counts(store, "lake") == {"acked": 3}
        assert acknowledge(store, Delivered("lake", {TOPIC: Taken(1, 3, LATER_NS)}, "a")) == 0
    with open_store(tmp_path) as store:
        assert status(store, "lake").segment_seq == 2
        assert len(segment_files(tmp_path)) == 1


def test_others_keep_what_they_lack(tmp_path: Path) -> None:
    """It speaks for itself alone."""
    with open_store(tmp_path, registered=[LAKE]) as store:
        slow = store.subscribe("slow")
        fill(store, [0], [1])
        acknowledge(store, Delivered("lake", {TOPIC: Taken(1, 3, LATER_NS)}, "a"))
        assert drain(slow) == [0, 1]
        wait_until(lambda: seqs(store) == [])


def test_registered_at_the_opening_misses_no_segment(tmp_path: Path) -> None:
    """What others had before it was known counts too, as far as it is still there."""
    with open_store(tmp_path) as store:
        first = store.subscribe("first")
        fill(store, [0])
        store.register("second")  # who has nothing yet
        assert drain(first) == [0]
    with open_store(tmp_path, registered=[LAKE]) as store:
        assert status(store, LAKE).lag_bundles == 1
        fill(store, [1])
        for name in ("first", "second"):
            drain(store.subscribe(name))
        assert seqs(store) == [0, 1]
        assert acknowledge(store, Delivered(LAKE, {TOPIC: Taken(1, 2, LATER_NS)}, "a")) == 2
        wait_until(lambda: seqs(store) == [])


def test_registered_again_it_goes_on_where_it_was(tmp_path: Path) -> None:
    """The opening makes known who is not, and changes nobody else."""
    with open_store(tmp_path, registered=[LAKE]) as store:
        fill(store, [0], [1])
        acknowledge(store, Delivered(LAKE, {TOPIC: Taken(0, 1, LATER_NS)}, "a"))
    with open_store(tmp_path, registered=[LAKE]) as store:
        assert [each.name for each in store.subscribers()] == [LAKE]
        assert status(store, LAKE).segment_seq == 1


def test_library_registers_nobody_by_itself(tmp_path: Path) -> None:
    """Only a server knows that there is a lake; its word for a stranger changes nothing."""
    with open_store(tmp_path) as store:
        fill(store, [0])
        assert acknowledge(store, Delivered(LAKE, {TOPIC: Taken(0, 1, LATER_NS)}, "a")) == 0
        assert store.subscribers() == []


def test_half_a_segment_that_was_acked_before_is_completed(tmp_path: Path) -> None:
    """Each bundle counts once."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("lake")
        fill(store, [0, 1, 2])
        first = subscription.next_bundle()
        assert first is not None
        first.ack().wait()
        assert store.acknowledge_through("lake", 0) == 2
        assert counts(store, "lake") == {"acked": 3}


def test_unknown_subscriber_is_an_error(tmp_path: Path) -> None:
    """A name that nobody registered is a mistake."""
    with open_store(tmp_path) as store, pytest.raises(SubscriberUnknown):
        store.acknowledge_through("nobody", 0)


def test_only_segments_that_it_has_by_number_offset_and_time_are_removed(tmp_path: Path) -> None:
    """A directory that was restored has other segments under the same numbers."""
    with open_store(tmp_path, registered=[LAKE]) as store:
        fill(store, [0, 1], [2])
        [first, last] = store.segments
        for taken in (Taken(1, 2, LATER_NS), Taken(0, 3, LATER_NS)):
            acknowledge(store, Delivered(LAKE, {TOPIC: taken}, "a"))
            assert counts(store, LAKE).get("acked") == 2
        acknowledge(store, Delivered(LAKE, {TOPIC: Taken(1, 3, first.sealed_at_ns)}, "a"))
        assert counts(store, LAKE).get("acked") == 2
        acknowledge(store, Delivered(LAKE, {TOPIC: Taken(1, 3, last.sealed_at_ns)}, "a"))
        wait_until(lambda: seqs(store) == [])


def test_a_file_of_0_1_acknowledges_nothing(tmp_path: Path) -> None:
    """It had numbers alone; its pipeline, started again, says more."""
    (tmp_path / FILE).parent.mkdir()
    old = {"subscriber": "lake", "through": {TOPIC: 0}}
    (tmp_path / FILE).write_bytes(encode_document("delivered", 1, old))
    delivered = read_delivered(tmp_path)
    assert delivered == Delivered("lake", {TOPIC: Taken(0, None)}, None)
    with open_store(tmp_path / "store", registered=[LAKE]) as store:
        fill(store, [0])
        assert acknowledge(store, delivered) == 0


@pytest.mark.parametrize("source", ["another", "own"])
def test_a_file_that_cannot_be_true_is_removed(tmp_path: Path, source: str) -> None:
    """It is of another directory, or further than the log; else it would seem true one day."""
    own = DataDirectory(tmp_path).create()
    whose = own if source == "own" else source
    write_delivered(tmp_path, Delivered(LAKE, {TOPIC: Taken(0, 2, LATER_NS)}, whose))
    file = DeliveredFile(tmp_path)
    with open_store(tmp_path / "store", registered=[LAKE]) as store:
        fill(store, [0])
        with pytest.raises(ForeignPosition):
            file.tell([store])
        fill(store, [1])
        file.tell([store])
        assert seqs(store) == [0, 1]
        assert not (tmp_path / FILE).exists()
    assert read_given(tmp_path) == {TOPIC}, "a lake was given something all the same"


def test_what_a_lake_was_given_stays_known_when_it_is_put_behind(tmp_path: Path) -> None:
    """Again and again, also of a file that is damaged: then nobody knows."""
    put_behind(tmp_path)
    assert read_given(tmp_path) == frozenset()
    for name in ("/default/traces/0", "/default/logs/0"):
        write_delivered(tmp_path, Delivered(LAKE, {name: Taken(3, 9, LATER_NS)}, "own"))
        put_behind(tmp_path)
        assert read_delivered(tmp_path) is None
    assert read_given(tmp_path) == {"/default/traces/0", "/default/logs/0"}
    (tmp_path / FILE).write_bytes(b"{")
    put_behind(tmp_path)
    with pytest.raises(Damaged):
        read_given(tmp_path)
