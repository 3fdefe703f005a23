"""What one process has compared, another need not: and a record is never a reason to be wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.lake.files import live_files
from penstock.lake.replace import take_out
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from penstock.query import relations
from penstock.tiers import doubles
from penstock.tiers.doubles import Doubles
from tests.pipeline.helpers import Data, spans, trace_id
from tests.query.helpers import named, values
from tests.tiers.test_doubles import twice

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were compared with others, one after the other."""
    found: list[str] = []
    original = doubles._compared

    def noted(newer: Any, *others: Any) -> Any:
        found.append(newer.path)
        return original(newer, *others)

    monkeypatch.setattr(doubles, "_compared", noted)
    return found


def anew(data: Data, where: str = "true") -> list[str]:
    """The names of spans, as a process that remembers nothing finds them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(relations, "DOUBLES", Doubles())
        sql = f"SELECT name FROM spans WHERE {where} ORDER BY name"  # noqa: S608 - our own
        found = values(data, sql)
    return [name for (name,) in found]


def record_of(data: Data) -> Path:
    """Where it is."""
    return data.root / "lake" / "spans" / "seen" / "doubles.json"


def three_files(data: Data) -> None:
    """With the spans 1 to 4; 2 is there twice, 3 three times."""
    twice(data, spans(1, 2, 3))
    twice(data, spans(2, 3))
    twice(data, spans(3, 4))


def test_next_process_compares_nothing(data: Data, compared: list[str]) -> None:
    """And counts the same."""
    three_files(data)
    assert anew(data) == named([1, 2, 3, 4])
    assert len(compared) == 2
    assert anew(data) == named([1, 2, 3, 4])
    assert len(compared) == 2


def test_only_what_came_since_is_compared(data: Data, compared: list[str]) -> None:
    """By the next question over all of the table."""
    three_files(data)
    doubles.record_doubles(LakeSettings.of(data.root))
    compared.clear()
    twice(data, spans(4, 5))
    assert anew(data) == named([1, 2, 3, 4, 5])
    assert len(compared) == 1
    assert anew(data) == named([1, 2, 3, 4, 5])
    assert len(compared) == 1


def _torn(text: bytes) -> bytes:
    return text[:-20]


def _flipped(text: bytes) -> bytes:
    return text.replace(b'"rows":{', b'"rows":{ ')


def _of_another_table(text: bytes) -> bytes:
    head, _, body = text.partition(b"\n")
    return json.dumps({**json.loads(head), "table": "another"}).encode() + b"\n" + body


def _empty(_: bytes) -> bytes:
    return b""


def _later(text: bytes) -> bytes:
    head, _, body = text.partition(b"\n")
    return json.dumps({**json.loads(head), "version": 2}).encode() + b"\n" + body


@pytest.mark.parametrize("harm", [_torn, _flipped, _of_another_table, _empty, _later])
def test_record_that_is_not_to_be_relied_on_is_made_anew(
    data: Data, compared: list[str], harm: Callable[[bytes], bytes]
) -> None:
    """The files are compared again, and the answer is the same."""
    three_files(data)
    anew(data)
    record_of(data).write_bytes(harm(record_of(data).read_bytes()))
    compared.clear()
    assert anew(data) == named([1, 2, 3, 4])
    assert len(compared) == 2
    assert anew(data) == named([1, 2, 3, 4])
    assert len(compared) == 2


def test_record_that_cannot_be_written_is_done_without(data: Data, compared: list[str]) -> None:
    """A reader of a lake that is somebody else's."""
    three_files(data)
    record_of(data).parent.write_bytes(b"no folder")
    for _ in range(2):
        assert anew(data) == named([1, 2, 3, 4])
    assert len(compared) == 4


def test_question_over_some_files_records_nothing_and_finds_doubles(data: Data) -> None:
    """It has not compared all that a record speaks of."""
    three_files(data)
    trace = f"trace_id = '{trace_id(2).hex()}'"
    assert len(anew(data, trace)) == 1
    assert not record_of(data).exists()
    assert anew(data) == named([1, 2, 3, 4])
    assert len(anew(data, trace)) == 1


def test_copy_counts_again_when_the_file_with_the_other_one_goes(data: Data) -> None:
    """A record speaks of files that are there, and of no others."""
    three_files(data)
    assert anew(data) == named([1, 2, 3, 4])
    with Lake.open(LakeSettings.of(data.root)) as lake:
        table = lake.table("spans")
        [first] = [file for file in live_files(table) if file.rows == 3]
        take_out(table, [first], operation="compact")
    assert anew(data) == named([2, 3, 4])
