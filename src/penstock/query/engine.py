"""DuckDB over the three tiers, shut off from every other file and from the network."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from penstock.model.errors import Damaged, InvalidArgument, PenstockError, QueryTooLarge
from penstock.query.database import connection_to
from penstock.query.deadline import Deadline
from penstock.query.relations import KNOWN, ROLLUPS, Relations, Scope
from penstock.query.statements import checked, sentence
from penstock.query.tiers import ALL
from penstock.query.unreadable import MISSING, unreadable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from penstock.lake.settings import LakeSettings
    from penstock.query.tiers import TableTiers, Tier

ATTEMPTS: Final = 20
"""Each is without the files that the one before could not read."""
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


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows, and how they were found."""

    rows: pa.Table
    tables: dict[str, TableTiers]
    warnings: list[str]


def ask(
    data_dir: Path,
    lake: LakeSettings,
    sql: str,
    *,
    tiers: Collection[Tier] = ALL,
    limits: QueryLimits | None = None,
    namespaces: Collection[str] | None = None,
) -> Answer:
    """Answers one statement that reads. InvalidArgument says what is wrong with it.

    It sees everything that was acknowledged before it began, each row once. What could not be read
    is named in the warnings. With `namespaces` it sees the rows of these alone, in every table,
    view and rollup; of none, where there are none.
    """
    limits = limits or QueryLimits()
    seen = None if namespaces is None else frozenset(namespaces)
    question = _Question(Scope(data_dir, lake, tiers, seen), sql, limits)
    for _ in range(ATTEMPTS):
        answer = question.answer()
        if answer is not None:
            return answer
    raise Damaged(f"{ATTEMPTS} attempts failed, the last one at {question.problems[-1]}")


class _Question:
    """One statement, asked again without files that turn out to be unreadable."""

    def __init__(self, scope: Scope, sql: str, limits: QueryLimits) -> None:
        self._scope = scope
        self._sql = sql
        self._limits = limits
        self._deadline = Deadline(limits.seconds)
        self._gone: set[str] = set()
        self.problems: list[str] = []

    def answer(self) -> Answer | None:
        """None: ask again, there is a file less."""
        with connection_to(self._scope.lake, self._limits.memory_bytes) as connection:
            statement = checked(connection, self._sql, KNOWN)
            relations = Relations(connection, self._scope, statement)
            try:
                with self._deadline.of(connection):
                    relations.make()
                    rows = _within(_reader(connection, statement.sql), self._limits)
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                self._deadline.check()
                self._without(unreadable(error, relations.files), error)
                return None
        warnings = dict.fromkeys([*self.problems, *relations.warnings])
        return Answer(rows, relations.tables, list(warnings))

    def _without(self, problems: dict[str, str], error: Exception) -> None:
        """Leaves files out. One that is gone may have been replaced: first it is looked again."""
        if not problems:
            raise _refused(error) from None
        new = {path for path, reason in problems.items() if reason == MISSING} - self._gone
        self._gone |= new
        for path in problems.keys() - new:
            self.problems.append(f"{path} is left out: {problems[path]}")
        left_out = self._scope.left_out | (problems.keys() - new)
        self._scope = replace(self._scope, left_out=left_out)


def _reader(connection: DuckDBPyConnection, sql: str) -> pa.RecordBatchReader:
    return connection.sql(sql).to_arrow_reader(_BATCH_ROWS)


def _refused(error: Exception) -> PenstockError:
    if isinstance(error, duckdb.OutOfMemoryException):
        return QueryTooLarge(sentence(error))
    return InvalidArgument(_explained(sentence(error)))


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
