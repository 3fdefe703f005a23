"""How many subscribers a token has registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.model import Topic
from penstock.model.errors import StoreFull
from penstock.server.flight import registrations
from penstock.server.flight.registrations import FILE, Registered, Registrations
from penstock.storage import DataDirectory
from penstock.store import Store

TRACES = "/default/traces"


def one(name: str) -> Registered:
    """A subscriber of that name."""
    return Registered(TRACES, 0, name)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory with a store, and two subscribers in that."""
    directory = DataDirectory(tmp_path)
    directory.create()
    with Store.open(directory.partition(Topic.parse(TRACES)).folder) as store:
        store.register("x")
        store.register("y")
    return tmp_path


def test_count_outlives_the_process(data: Path) -> None:
    """Each token has its own; one that is known already counts once."""
    before = Registrations(data, 2)
    assert [before.enter("a", one(name)) for name in ("x", "y", "y", "z")] == [True] * 3 + [False]
    after = Registrations(data, 2)
    assert not after.enter("a", one("z"))
    assert after.enter("b", one("z"))
    after.leave(one("x"))
    assert after.enter("a", one("w"))


def test_those_that_are_gone_make_room(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what the store itself says; those that were entered just now are not taken for gone."""
    counted = Registrations(data, 2)
    counted.enter("a", one("x"))
    counted.enter("a", one("gone"))
    assert not counted.enter("a", one("new"))
    monkeypatch.setattr(registrations, "_NEW_S", 0.0)
    assert not counted.enter("a", one("new"))  # it was looked just now
    monkeypatch.setattr(registrations, "_LOOK_AGAIN_S", 0.0)
    assert counted.enter("a", one("new"))
    assert not Registrations(data, 1).enter("a", one("newer"))


def test_what_failed_does_not_count(data: Path) -> None:
    """Unless it was done all the same, and its answer was lost."""
    counted = Registrations(data, 1)
    counted.enter("a", one("failed"))
    counted.look_again(one("failed"))
    assert counted.enter("a", one("x"))
    counted.look_again(one("x"))
    assert not counted.enter("a", one("more"))


def test_damaged_file_is_begun_anew(data: Path) -> None:
    """It counts less than there is, and keeps nobody out."""
    (data / FILE).write_bytes(b"{}")
    assert Registrations(data, 1).enter("a", one("x"))
    assert not Registrations(data, 1).enter("a", one("y"))


def test_what_cannot_be_counted_is_not_registered(data: Path) -> None:
    """A full disk: the client is to come again."""
    counted = Registrations(data, 1)
    (data / f"{FILE}.tmp").mkdir()  # nothing can be written there
    with pytest.raises(StoreFull):
        counted.enter("a", one("x"))
    (data / f"{FILE}.tmp").rmdir()
    assert counted.enter("a", one("x"))
