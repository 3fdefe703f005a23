"""DuckDB over the three tiers, shut off from every other file and from the network."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from penstock.model.errors import Damaged, DataMoved, InvalidArgument, PenstockError, QueryTooLarge
from penstock.query.database import NO_FILES, Engine, connection_to
from penstock.query.deadline import Deadline
from penstock.query.relations import KNOWN, ROLLUPS, Relations, Scope
from penstock.query.statements import checked, sentence
from penstock.query.unreadable import MISSING, unreadable
from penstock.tiers.cut import ALL
from penstock.tiers.findings import Findings

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.settings import LakeSettings
    from penstock.tiers.cut import Tier
    from penstock.tiers.table import TableTiers

ATTEMPTS: Final = 20
"""Each is planned anew: files of the one before were replaced, or cannot be read."""
_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_BATCH_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """What one query may use; None: no limit."""

    rows: int | None = None
    """Of the answer; more is QueryTooLarge."""
    bytes: int | None = None
    seconds: float | None = None
    """After these it is stopped, with QueryTooSlow."""
    memory_bytes: int = 1024**3
    spill_bytes: int | None = None
    """Of what it puts aside on disk; more is QueryTooLarge."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows, and how they were found."""

    rows: pa.Table
    tables: dict[str, TableTiers]
    warnings: list[str]
    """What is missing, and what else is worth knowing."""
    partial: bool = False
    """Whether something is missing; never without being asked for."""


def ask(
    data_dir: Path,
    lake: LakeSettings,
    sql: str,
    *,
    tiers: Collection[Tier] = ALL,
    limits: QueryLimits | None = None,
    namespaces: Collection[str] | None = None,
    partial: bool = False,
) -> Answer:
    """Answers one statement that reads. InvalidArgument says what is wrong with it.

    It sees everything that was acknowledged before it began, each row once: AnswerIncomplete names
    what cannot be read of that. With `partial` it is answered without, and the warnings name it.
    Beside whatever moves data it is planned again by itself; DataMoved where that never ends. With
    `namespaces` it sees the rows of these alone, in every table, view and rollup; of none, where
    there are none.
    """
    limits = limits or QueryLimits()
    seen = None if namespaces is None else frozenset(namespaces)
    question = _Question(Scope(data_dir, lake, tiers, seen), sql, limits, partial)
    for number in range(ATTEMPTS):
        answer = question.answer()
        if answer is not None:
            return answer
        question.pause(min(_PAUSE_S * 2**number, _LONGEST_PAUSE_S))
    raise DataMoved(f"files were replaced under {ATTEMPTS} attempts, {question.last} the last time")


class _Question:
    """One statement, asked again when files were replaced, or without those that are unreadable."""

    def __init__(self, scope: Scope, sql: str, limits: QueryLimits, partial: bool) -> None:
        self._scope = scope
        self._sql = sql
        self._limits = limits
        self._partial = partial
        self._deadline = Deadline(limits.seconds)
        self._gone: set[str] = set()
        self._left_out = Findings()
        self.last = ""
        """The file that the last attempt ended at."""

    def pause(self, seconds: float) -> None:
        """Before the next attempt; whoever replaces files has time to come to an end."""
        if not self._left_out.missing:
            time.sleep(seconds)
        self._deadline.check()

    def answer(self) -> Answer | None:
        """None: ask again."""
        with self._engine(NO_FILES) as asking:
            statement = checked(asking, self._sql, KNOWN)
            if self._scope.namespaces is not None and statement.is_analyzed:
                raise InvalidArgument("EXPLAIN ANALYZE names files, and you see some namespaces")
            relations = Relations(self._scope, statement)
            try:
                self._deadline.check()
                relations.look(asking, self._deadline.check)
                self._check(relations)
                rows = self._rows(relations)
            except (duckdb.Error, pa.ArrowException, OSError, Damaged) as error:
                self._deadline.check()
                self._without(unreadable(error, relations.files), error)
                self._check(relations)
                return None
        said = self._said(relations)
        return Answer(rows, relations.tables, said.warnings, bool(said.missing))

    def _engine(
        self, paths: frozenset[str] | None = None
    ) -> contextlib.AbstractContextManager[DuckDBPyConnection]:
        warehouse, limits = self._scope.lake.warehouse, self._limits
        return connection_to(Engine(warehouse, limits.memory_bytes, paths, limits.spill_bytes))

    def _rows(self, relations: Relations) -> pa.Table:
        """Here alone the caller's statement is run: what the engine reaches, the caller may see."""
        with self._engine(relations.paths) as fenced, self._deadline.of(fenced):
            relations.make(fenced)
            return _within(_reader(fenced, relations.statement.sql), self._limits)

    def _without(self, problems: dict[str, str], error: Exception) -> None:
        """Leaves files out. One that is gone may have been replaced: first it is looked again."""
        if not problems:
            raise error if isinstance(error, PenstockError) else _refused(error) from None
        new = {path for path, reason in problems.items() if reason == MISSING} - self._gone
        self._gone |= new
        for path in problems.keys() - new:
            self._left_out.lack(f"{path} cannot be read: {problems[path]}")
        self.last = next(iter(problems))
        left_out = self._scope.left_out | (problems.keys() - new)
        self._scope = replace(self._scope, left_out=left_out)

    def _said(self, relations: Relations) -> Findings:
        """Of the fresh tiers, and of files."""
        said = Findings()
        said.add(self._left_out)
        said.add(relations.said)
        return said

    def _check(self, relations: Relations) -> None:
        self._said(relations).check(partial=self._partial)


def _reader(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    return connection.sql(sql).to_arrow_reader(_BATCH_ROWS)


def _refused(error: Exception) -> PenstockError:
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryTooLarge(_about_room(error))
    return InvalidArgument(_explained(sentence(error)))


def _about_room(error: duckdb.OutOfMemoryException) -> str:
    """What was short, without the engine's settings, which the asker cannot change."""
    what, _, by = sentence(error).partition(" This limit was set by the 'max_temp_directory_size'")
    return f"the query puts more aside on disk than it may: {what}" if by else what


def _within(reader: pa.RecordBatchReader, limits: QueryLimits) -> pa.Table:
    batches, rows, size = [], 0, 0
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if limits.rows is not None and rows > limits.rows:
            raise QueryTooLarge(f"the answer has more than {limits.rows} rows; add a LIMIT")
        if limits.bytes is not None and size > limits.bytes:
            raise QueryTooLarge(f"the answer has more than {limits.bytes} bytes; add a LIMIT")
        batches.append(batch)
    rows = pa.Table.from_batches(batches, reader.schema)
    return rows.rename_columns(_told_apart(rows.column_names))


def _told_apart(names: Sequence[str]) -> list[str]:
    """Names that were given twice get a number: most formats know a column by its name."""
    found: list[str] = []
    for name in names:
        number, new = 1, name
        while new in found or (new != name and new in names):
            new, number = f"{name}_{number}", number + 1
        found.append(new)
    return found


def _explained(text: str) -> str:
    """With what to do about a table that is promised and not there yet."""
    missing = any(f"Table with name {table} does not exist" in text for table in ROLLUPS)
    return f"{text} `penstock pipeline rollup` makes it." if missing else text
