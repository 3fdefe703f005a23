"""The process that answers queries, so that neither ingest nor the web port waits for one.

    python -m penstock.server.querying.worker

The first question is the configuration, answered when everything is imported. It stays for the
next one. An answer is a document and what the client gets.
"""

from __future__ import annotations

import json
import logging
import resource
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.children.answering import NICENESS, begin
from penstock.model.errors import (
    AnswerIncomplete,
    InvalidArgument,
    PenstockError,
    QueryTooLarge,
    QueryTooSlow,
)
from penstock.server.configuration import config as configuration
from penstock.server.log_lines import set_up_logging

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.query.engine import Answer
    from penstock.server.configuration.config import Config

_LOG = logging.getLogger(__name__)
ARROW: Final = "arrow"
_DUCKDB_SHARE: Final = 0.6
"""Of the process's memory; the rest is for rows that are decoded and written."""
_Answered = tuple[dict[str, Any], bytes]


class Answerer:
    """Answers questions, one after the other."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._kinds: dict[str, Callable[[dict[str, Any]], _Answered]] = {
            "query": self._query,
            "trace": self._trace,
            "snapshot": self._snapshot,
        }

    def answer(self, question: dict[str, Any]) -> _Answered:
        """A document and a body; what went wrong is in the document."""
        try:
            return self._kinds[question["kind"]](question)
        except ImportError as error:
            return {"failed": "missing", "message": _missing(error)}, b""
        except (QueryTooLarge, QueryTooSlow) as error:
            return {"failed": "limit", "message": str(error)}, b""
        except InvalidArgument as error:
            return {"failed": "invalid", "message": str(error)}, b""
        except AnswerIncomplete as error:
            text = f'{error}; "partial": true answers without it'
            return {"failed": "incomplete", "message": text}, b""
        except (PenstockError, OSError) as error:
            return {"failed": "unavailable", "message": str(error)}, b""
        except Exception:  # noqa: BLE001 - the next question is to be answered all the same
            _LOG.exception("a query failed")
            return {
                "failed": "broken",
                "message": "the query failed; the server's log says how",
            }, b""

    def _query(self, question: dict[str, Any]) -> _Answered:
        from penstock.server.querying.json_rows import columns_of, json_rows

        answer, elapsed_ms = self._ask(question["sql"], question)
        if question.get("format") == ARROW:
            return {}, _arrow(answer, elapsed_ms)
        document = {
            "columns": columns_of(answer.rows),
            "rows": json_rows(answer.rows),
            "row_count": answer.rows.num_rows,
            "elapsed_ms": elapsed_ms,
            "warnings": answer.warnings,
            "partial": answer.partial,
        }
        return {}, self._bounded(document)

    def _trace(self, question: dict[str, Any]) -> _Answered:
        from penstock.server.querying.json_rows import json_objects

        trace_id = question["trace_id"]
        assert trace_id.isalnum(), "the caller has seen to it"
        sql = f"SELECT * FROM spans WHERE trace_id = '{trace_id}' ORDER BY time, span_id"  # noqa: S608 - hex digits
        answer, elapsed_ms = self._ask(sql, question)
        document = {
            "trace_id": trace_id,
            "spans": json_objects(answer.rows),
            "span_count": answer.rows.num_rows,
            "elapsed_ms": elapsed_ms,
            "warnings": answer.warnings,
            "partial": answer.partial,
        }
        return {"found": answer.rows.num_rows}, self._bounded(document)

    def _snapshot(self, question: dict[str, Any]) -> _Answered:
        from penstock.server.querying.snapshot import take_snapshot

        where = self._config.data_dir.absolute(), self._config.lake_settings()
        taken = take_snapshot(*where, partial=question["partial"])
        return {}, json.dumps(taken).encode()

    def _ask(self, sql: str, question: dict[str, Any]) -> tuple[Answer, float]:
        from penstock.query.engine import QueryLimits, ask
        from penstock.tiers.cut import Tier

        allowed = self._config.query
        limits = QueryLimits(
            rows=allowed.rows,
            bytes=allowed.bytes,
            seconds=question["seconds"],
            memory_bytes=int(allowed.memory * _DUCKDB_SHARE),
            spill_bytes=allowed.temporary,
        )
        seen = question["namespaces"]
        started = time.perf_counter()
        answer = ask(
            self._config.data_dir.absolute(),
            self._config.lake_settings(),
            sql,
            tiers={Tier(name) for name in question["tiers"]},
            limits=limits,
            namespaces=None if seen is None else frozenset(seen),
            partial=question["partial"],
        )
        return answer, round((time.perf_counter() - started) * 1000, 3)

    def _bounded(self, document: dict[str, Any]) -> bytes:
        """As JSON, which may be longer than the rows are in memory."""
        text = json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        most = self._config.query.bytes
        if len(text) > most:
            raise QueryTooLarge(f"the answer has more than {most} bytes; add a LIMIT")
        return text


def _arrow(answer: Answer, elapsed_ms: float) -> bytes:
    """A stream of Arrow IPC; what else there is to say stands in its schema's metadata."""
    import pyarrow as pa

    said = {"penstock.warnings": json.dumps(answer.warnings)}
    said["penstock.partial"] = json.dumps(answer.partial)
    said["penstock.elapsed_ms"] = str(elapsed_ms)
    rows = answer.rows.replace_schema_metadata(said)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    text: bytes = sink.getvalue().to_pybytes()
    return text


def _missing(error: ImportError) -> str:
    return f"{error.name} is missing on the server: pip install 'penstock[query]'"


def _warm_up() -> None:
    """Imports what the first question would wait for."""
    try:
        import penstock.query.engine  # noqa: F401
    except ImportError:
        return  # each question is answered with what is missing


def main() -> None:
    parent = begin(niceness=NICENESS, dies_with_starter=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    questions = parent.documents()
    config = configuration.taken(next(questions))
    set_up_logging(config.logging)
    answerer = Answerer(config)
    _warm_up()
    parent.say({"ready": True})
    for question in questions:
        parent.say(*answerer.answer(question))


if __name__ == "__main__":
    main()
