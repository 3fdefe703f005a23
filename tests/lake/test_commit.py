"""Files and positions: both or neither, once, and by the newest writer only."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from penstock.lake import transaction
from penstock.lake.commit import claim, commit
from penstock.lake.positions import encode_positions, read_epochs, read_positions
from penstock.model.errors import CommitConflict, CommitContended, Fenced, InvalidArgument
from penstock.model.positions import UNKNOWN, Reached, SourcePartition

from .helpers import DAY, NEXT_DAY, SOURCE, TRACES, Flush, compact, numbers, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from penstock.lake.tables import Lake
    from penstock.model.positions import Positions


def intercept(
    table: Table, monkeypatch: pytest.MonkeyPatch, around: Callable[[Callable[[], Any]], Any]
) -> None:
    """Has `around` do the table's next commit to the catalog."""
    catalog = table.catalog
    real = catalog.commit_table

    def commit_table(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(catalog, "commit_table", real)
        return around(lambda: real(*arguments, **named))

    monkeypatch.setattr(catalog, "commit_table", commit_table)


def test_files_and_positions_are_committed_together(table: Table) -> None:
    """A reader that sees the rows sees where they come from."""
    flush = Flush(table)
    committed = flush.flush(spans(range(5)), spans(range(5, 8), NEXT_DAY))
    assert not committed.repeated
    assert numbers(table) == list(range(8))
    assert read_positions(table) == {TRACES: Reached(1, 10)}
    assert table.current_snapshot() is not None


def test_positions_move_on_without_files(table: Table) -> None:
    """All messages of a batch may have been set aside."""
    flush = Flush(table)
    flush.flush()
    flush.flush()
    assert read_positions(table) == {TRACES: Reached(2, 20)}
    assert numbers(table) == []


def test_a_commit_of_nothing_makes_no_snapshot(table: Table) -> None:
    """The table is there already."""
    flush = Flush(table)
    location = table.metadata_location
    assert commit(table, [], start={}, end={}, epoch=flush.epoch).repeated
    assert table.metadata_location == location


def test_partitions_have_positions_of_their_own(table: Table) -> None:
    """A batch leaves those that it does not read where they are."""
    flush, other = Flush(table), SourcePartition(SOURCE, "/tenant/traces", 3)
    flush.flush(spans([1]))
    flush.flush(spans([2]), place=other)
    assert read_positions(table) == {TRACES: Reached(1, 10), other: Reached(1, 10)}


def test_a_repeated_commit_changes_nothing(table: Table) -> None:
    """Its answer says so."""
    flush = Flush(table)
    batch = flush.batch(spans(range(5)))
    first = batch.commit_to(table)
    assert batch.commit_to(table).repeated
    assert table.current_snapshot().snapshot_id == first.snapshot_id  # type: ignore[union-attr] # there is one
    assert numbers(table) == list(range(5))


def test_an_older_writer_is_fenced(lake: Lake, table: Table) -> None:
    """Though it has written its files and began where the table is."""
    old = Flush(table)
    batch = old.batch(spans(range(5)))
    new = Flush(lake.table("spans"))
    with pytest.raises(Fenced, match=r"writer 2, this is 1"):
        batch.commit_to(table)
    assert new.epoch == 2
    assert numbers(table) == []
    assert read_positions(table) == {}


def test_a_claim_in_the_middle_of_a_commit_fences_it(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the writer's look at its epoch and its commit another one claims the table."""
    old = Flush(table)
    batch = old.batch(spans(range(5)))

    def claim_first(go_on: Callable[[], Any]) -> Any:
        claim(lake.table("spans"), [SOURCE])
        return go_on()

    intercept(table, monkeypatch, claim_first)
    with pytest.raises(Fenced):
        batch.commit_to(table)
    assert numbers(table) == []


def test_a_commit_from_other_positions_is_fenced(lake: Lake, table: Table) -> None:
    """Two writers that share an epoch by mistake do not write a range twice."""
    one = Flush(table)
    batch = one.batch(spans(range(5)))
    twin = copy.copy(one)
    twin.table = lake.table("spans")
    twin.flush(spans(range(5)), spans([5]), place=SourcePartition(SOURCE, "/default/traces", 1))
    with pytest.raises(Fenced, match="the batch begins at"):
        batch.commit_to(table)
    assert numbers(table) == list(range(6))


def test_of_writers_that_race_one_succeeds(lake: Lake, table: Table) -> None:
    """All have the same epoch and the same start; none of the others leaves a row."""
    first = Flush(table)
    gate, results = threading.Barrier(4), []

    def write(number: int) -> None:
        mine = copy.copy(first)
        mine.table = lake.table("spans")
        batch = mine.batch(spans([number]), place=TRACES._replace(partition=number))
        gate.wait()
        try:
            results.append(batch.commit_to(mine.table).snapshot_id)
        except Fenced:
            results.append(None)

    threads = [threading.Thread(target=write, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert sum(result is not None for result in results) == 1
    assert len(numbers(table)) == 1


def test_every_claim_is_another_epoch(lake: Lake, table: Table) -> None:
    """Also of writers that claim at the same moment."""
    gate, epochs = threading.Barrier(4), []

    def take() -> None:
        mine = lake.table("spans")
        gate.wait()
        epochs.append(claim(mine, [SOURCE]))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(epochs) == [1, 2, 3, 4]
    assert read_epochs(table.refresh())[SOURCE] == 4


def test_a_commit_waits_for_a_compaction_that_comes_between(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Epoch and positions are still its own, so it is tried again on what that left."""
    flush = Flush(table)
    flush.flush(spans(range(2)))
    flush.flush(spans(range(2, 4)))
    batch = flush.batch(spans(range(4, 6)))

    def compact_first(go_on: Callable[[], Any]) -> Any:
        compact(lake.table("spans"))
        return go_on()

    intercept(table, monkeypatch, compact_first)
    batch.commit_to(table)
    assert numbers(table) == list(range(6))
    assert len(list(table.scan().plan_files())) == 2
    assert read_positions(table) == batch.end


def test_a_commit_whose_answer_was_lost_is_recognised(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the table, and is not made again."""
    flush = Flush(table)
    batch = flush.batch(spans(range(5)))

    def lose_the_answer(go_on: Callable[[], Any]) -> Any:
        go_on()
        raise ConnectionError("no answer")

    intercept(table, monkeypatch, lose_the_answer)
    committed = batch.commit_to(table)
    assert table.current_snapshot().snapshot_id == committed.snapshot_id  # type: ignore[union-attr] # there is one
    assert numbers(table) == list(range(5))


def test_a_commit_that_fails_leaves_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is the catalog's; the same commit succeeds when that answers again."""
    flush = Flush(table)
    batch = flush.batch(spans(range(5)))

    def fail(go_on: Callable[[], Any]) -> Any:
        del go_on
        raise ConnectionError("no route")

    intercept(table, monkeypatch, fail)
    with pytest.raises(ConnectionError, match="no route"):
        batch.commit_to(table)
    assert numbers(table) == []
    assert not batch.commit_to(table).repeated
    assert numbers(table) == list(range(5))


def test_a_table_that_never_rests_ends_the_attempts(
    lake: Lake, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a bounded number of them, with an error that says: later."""
    monkeypatch.setattr(transaction, "_FIRST_PAUSE_S", 0.0)
    flush, other = Flush(table), lake.table("spans")
    batch = flush.batch(spans(range(5)))

    def lose(*_: Any, **__: Any) -> Any:
        with other.transaction() as change:
            change.set_properties({"touched": other.metadata_location})
        raise CommitFailedException("somebody was faster")

    def commit_table(wanted: Table, *arguments: Any, **named: Any) -> Any:
        run = lose if wanted is table else real
        return run(wanted, *arguments, **named)

    real = table.catalog.commit_table
    monkeypatch.setattr(table.catalog, "commit_table", commit_table)
    with pytest.raises(CommitContended, match="12 times"):
        batch.commit_to(table)
    assert numbers(table) == []


def test_files_of_another_batch_are_refused(table: Table) -> None:
    """A path that is there already cannot be added again under any positions."""
    flush = Flush(table)
    done = flush.batch(spans(range(5)))
    done.commit_to(table)
    fresh = flush.batch(spans([7]))
    with pytest.raises(InvalidArgument, match="written for another batch"):
        commit(table, done.files, start=fresh.start, end=fresh.end, epoch=flush.epoch)
    with pytest.raises(InvalidArgument, match="stands twice"):
        commit(table, fresh.files * 2, start=fresh.start, end=fresh.end, epoch=flush.epoch)
    assert numbers(table) == list(range(5))


def test_files_without_a_move_of_positions_are_refused(table: Table) -> None:
    """They could be committed again and again."""
    flush = Flush(table)
    batch = flush.batch(spans(range(5)))
    with pytest.raises(InvalidArgument, match="positions they come from"):
        commit(table, batch.files, start=batch.start, end=batch.start, epoch=flush.epoch)


def test_files_that_are_gone_are_not_committed(table: Table) -> None:
    """The table would not be readable afterwards."""
    batch = Flush(table).batch(spans(range(5)))
    Path(batch.files[0].path).unlink()
    with pytest.raises(CommitConflict, match="is gone"):
        batch.commit_to(table)
    assert read_positions(table) == {}


def test_metadata_stay_small(table: Table) -> None:
    """However many commits there were: snapshots, metadata files and manifests are bounded."""
    with table.transaction() as change:
        change.set_properties(
            {
                "penstock.snapshots-kept": "5",
                "penstock.manifests-merged-at": "6",
                "write.metadata.previous-versions-max": "5",
            }
        )
    flush = Flush(table)
    sizes = []
    for number in range(24):
        flush.flush(spans([number], DAY.replace(day=1 + number)))
        sizes.append(Path(table.metadata_location).stat().st_size)
        assert len(table.metadata.snapshots) <= 5
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(table.io)) <= 6
    assert max(sizes[12:]) < 1.05 * max(sizes[:12])
    assert len(list(Path(table.location(), "metadata").glob("*.metadata.json"))) <= 6
    assert numbers(table) == list(range(24))


def test_tags_keep_their_snapshots(table: Table) -> None:
    """Somebody wants to come back to it."""
    with table.transaction() as change:
        change.set_properties({"penstock.snapshots-kept": "2"})
    flush = Flush(table)
    tagged = flush.flush(spans([0])).snapshot_id
    assert tagged is not None
    table.manage_snapshots().create_tag(tagged, "audit").commit()
    for number in range(1, 6):
        flush.flush(spans([number]))
    assert table.snapshot_by_id(tagged) is not None
    assert table.scan(snapshot_id=tagged).count() == 1


def test_writers_of_two_sources_do_not_fence_each_other(table: Table, lake: Lake) -> None:
    """Each has positions and a claim of its own, in one table."""
    mine, other = Flush(table), Flush(lake.table("spans"), source="b")
    mine.flush(spans([1]))
    other.flush(spans([2]))
    mine.flush(spans([3]))
    assert numbers(table) == [1, 2, 3]
    assert read_positions(table) == {
        TRACES: Reached(2, 20),
        TRACES._replace(source="b"): Reached(1, 10),
    }


def test_a_second_writer_of_a_source_fences_the_first(table: Table, lake: Lake) -> None:
    """And nobody else."""
    mine, other = Flush(table), Flush(lake.table("spans"), source="b")
    batch = mine.batch(spans([1]))
    Flush(lake.table("spans"))
    with pytest.raises(Fenced, match="of the source"):
        batch.commit_to(table)
    other.flush(spans([2]))
    assert numbers(table) == [2]


class Heir:
    """A source that takes over all that is nobody's."""

    source = SOURCE

    def __call__(self, positions: Positions) -> dict[SourcePartition, SourcePartition]:
        """Under its own name."""
        return {each: each._replace(source=SOURCE) for each in positions if not each.source}


def test_a_first_claim_adopts_positions_of_0_1(table: Table) -> None:
    """In the same commit; later ones find them under its name."""
    old = TRACES._replace(source=UNKNOWN)
    with table.transaction() as transaction:
        transaction.set_properties(encode_positions({old: Reached(4, 44)}))
    claim(table, ["b"])
    assert read_positions(table) == {old: Reached(4, 44)}
    claim(table, [SOURCE], Heir())
    assert read_positions(table) == {TRACES: Reached(4, 44)}
