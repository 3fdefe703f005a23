"""What manifests list is noted for the next process, and never believed wrongly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.lake import glance as glancing
from penstock.lake import noted
from penstock.lake.glance import glance
from penstock.lake.metadata import TableMetadata
from penstock.lake.settings import LakeSettings
from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import cold

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    """A lake of three files, which are many here."""
    without_spark(monkeypatch)
    monkeypatch.setattr(noted, "MANY_FILES", 2)
    monkeypatch.setattr(noted, "WORTH_FILES", 1)
    made = Data(tmp_path / "data")
    for number in (1, 2, 3):
        cold(made, spans(number))
    return made


def read(data: Data, monkeypatch: pytest.MonkeyPatch) -> tuple[object, int]:
    """The files, as a new process finds them, and how many manifests it read."""
    glancing.forget()
    noted._last.clear()
    manifests: list[str] = []
    original = TableMetadata.records

    def counted(self: TableMetadata, location: str) -> object:
        manifests.append(location)
        return original(self, location)

    with monkeypatch.context() as patched:
        patched.setattr(TableMetadata, "records", counted)
        found = glance(LakeSettings.of(data.root), "spans").files
    return found, len(manifests) - 1  # without their list


def test_noted_manifests_are_not_read_again(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what came since is."""
    first, count = read(data, monkeypatch)
    assert count >= 1
    assert read(data, monkeypatch) == (first, 0)
    cold(data, spans(4))
    now, count = read(data, monkeypatch)
    assert (len(now), count) == (4, 1)  # type: ignore[arg-type]


def test_damaged_notes_are_passed_over(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifests say the same."""
    first, count = read(data, monkeypatch)
    path = data.root / "lake" / "spans" / "seen" / "manifests.json"
    path.write_bytes(path.read_bytes()[:-1])
    assert read(data, monkeypatch) == (first, count)
