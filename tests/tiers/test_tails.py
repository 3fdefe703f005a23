"""What was decoded once is remembered, as long as it is true."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock.lake.schemas import SPANS
from penstock.otel import Signal
from penstock.storage import DataDirectory
from penstock.tiers import hot as hot_tier
from penstock.tiers.findings import Findings
from penstock.tiers.pieces import Piece, Pieces
from penstock.tiers.repeats import without_repeats
from penstock.tiers.tails import Tails
from tests.pipeline.helpers import TRACES, Data, spans
from tests.query.helpers import hot

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which the log is decoded, one after the other."""
    found: list[int] = []
    original = hot_tier.hot_rows

    def noted(partition: Any, signal: Signal, start: int, said: Findings) -> Any:
        found.append(start)
        return original(partition, signal, start, said)

    monkeypatch.setattr(hot_tier, "hot_rows", noted)
    return found


def tail(tails: Tails, data: Data, sealed: int = 0) -> list[str]:
    """The names of the spans that are not sealed."""
    partition = DataDirectory(data.root).partition(TRACES, 0)
    said = Findings()
    pieces = tails.pieces(partition, Signal.TRACES, sealed, said)
    assert said.warnings == []
    return [name for piece in pieces for name in piece.rows["name"].to_pylist()]


def test_only_what_is_new_is_decoded(data: Data, starts: list[int]) -> None:
    """The rest is as it was."""
    tails = Tails()
    with hot(data, spans(1), spans(2)) as store:
        assert tail(tails, data) == ["span 1", "span 2"]
        store.append_durable(spans(3))
        assert tail(tails, data) == ["span 1", "span 2", "span 3"]
    assert starts == [0, 2]


def test_what_is_sealed_is_forgotten(data: Data, starts: list[int]) -> None:
    """And decoded again where somebody asks for it."""
    tails = Tails()
    with hot(data, *(spans(number) for number in range(1, 5))):
        assert len(tail(tails, data)) == 4
        assert tail(tails, data, sealed=3) == ["span 4"]
        assert len(tail(tails, data)) == 4
    assert starts == [0, 4, 0]


def test_log_that_has_been_quiet_is_not_read_again(data: Data, starts: list[int]) -> None:
    """Until its files change."""
    tails = Tails()
    with hot(data, spans(1)):
        pass
    _age(data)
    assert tail(tails, data) == tail(tails, data) == ["span 1"]
    assert starts == [0]
    with hot(data, spans(2)):
        pass
    assert tail(tails, data) == ["span 1", "span 2"]
    assert starts == [0, 1]


def _age(data: Data) -> None:
    """As if nothing had happened for an hour."""
    folder: Path = DataDirectory(data.root).partition(TRACES, 0).log_folder
    for path in folder.iterdir():
        then = path.stat().st_mtime - 3600
        os.utime(path, (then, then))


def test_many_short_stretches_are_put_together(data: Data) -> None:
    """A tail that is asked for after every request stays in few pieces."""
    tails = Tails()
    partition = DataDirectory(data.root).partition(TRACES, 0)
    with hot(data) as store:
        for number in range(1, 40):
            store.append_durable(spans(number))
            pieces = tails.pieces(partition, Signal.TRACES, 0, Findings())
            assert len(pieces) <= 17
            assert sum(piece.rows.num_rows for piece in pieces) == number
            assert all(len(piece.keys) == piece.rows.num_rows for piece in pieces)


def _piece(rows: int) -> Piece:
    return Piece("spans", pa.Table.from_pylist([{"name": "x" * 100}] * rows, SPANS))


def test_pieces_that_were_not_used_for_longest_are_forgotten() -> None:
    """When they are too large together."""
    size = _piece(100).bytes
    pieces = Pieces(most_bytes=int(2.5 * size))
    first = pieces.get("first", lambda: _piece(100))
    pieces.get("second", lambda: _piece(100))
    assert pieces.get("first", lambda: _piece(1)) is first
    pieces.get("third", lambda: _piece(100))
    assert pieces.peek("first") is first
    assert pieces.peek("second") is None


def test_piece_that_is_too_large_is_not_kept() -> None:
    """It is used all the same."""
    pieces = Pieces(most_bytes=10)
    assert pieces.get("large", lambda: _piece(100)).rows.num_rows == 100
    assert pieces.peek("large") is None


def test_rows_that_were_put_together_are_put_together_once() -> None:
    """As long as the same pieces are there, and no more of them is in the lake."""
    rows = [{"name": "x", "trace_id": "a" * 32, "span_id": f"{n:016x}"} for n in range(1, 6001)]
    many_rows = Piece("spans", pa.Table.from_pylist(rows, SPANS))
    other = Piece("spans", pa.Table.from_pylist(rows[:3], SPANS))
    first = without_repeats([many_rows], [])
    assert first is without_repeats([many_rows], [])
    assert first is not None
    assert first.num_rows == 6000
    both = without_repeats([many_rows, other], [])
    assert both is not None
    assert both.num_rows == 6000
