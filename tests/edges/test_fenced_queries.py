"""A token of one namespace learns nothing of another, whatever it asks of the ports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.flight as pf
import pyarrow.parquet as pq
import pytest

from penstock.model import Topic
from tests.pipeline.flush.helpers import Plain, lake_files, without_spark
from tests.pipeline.helpers import HOUR_NS, MORNING_NS, Data, spans
from tests.query.helpers import cold, warm
from tests.server.running import Answer, Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

MINE, OTHER = Topic("mine", "traces"), Topic("hidden-tenant", "traces")
TOKEN, EVERYWHERE = "a-token-of-mine", "a-token-of-everything"
SECRET = 77_077
"""The other tenant's first span is `span 77077`, of the service `hidden-service`."""
WORDS = ("77077", "hidden-tenant", "hidden-service")

UNCHECKED = [
    "SELECT json_serialize_plan('FROM read_parquet(''{file}'')', optimize := true)",
    "SELECT json_serialize_plan('SELECT min(name) FROM read_parquet(''{file}'')')",
    "SELECT json_serialize_plan('SELECT nothing FROM read_csv(''{metadata}'')')",
    "SELECT system.main.json_serialize_plan('FROM read_text(''{metadata}'')')",
    "SELECT 'FROM ''{file}'''.json_serialize_plan()",
    "SELECT list_transform(['FROM ''{file}'''], lambda t: json_serialize_plan(t))",
    "SELECT json_serialize_sql('FROM ''{file}''')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM ''{file}'''))",
    "PRAGMA json_execute_serialized_sql('x')",
    "FROM query('FROM ''{file}''')",
    "FROM query_table('{file}')",
    "FROM histogram('{file}', 'name')",
    "FROM histogram_values('{file}', 'name')",
    "FROM summary((FROM '{file}'))",
    "SELECT getvariable('x')",
    "SELECT $1",
    "SELECT COLUMNS(lambda c: json_serialize_plan(c) IS NULL) FROM spans",
    "SELECT stats(name) FROM spans",
    "SELECT current_setting('allowed_paths')",
    "SELECT pg_get_viewdef('spans')",
    "SELECT nextval('s')",
    "FROM '{file}'",
    'FROM "{metadata}"',
    "SUMMARIZE '{file}'",
    "DESCRIBE '{file}'",
    "FROM glob('{folder}/**')",
    "FROM parquet_metadata('{file}')",
    "FROM parquet_full_metadata('{file}')",
    "FROM duckdb_views()",
    "FROM duckdb_external_file_cache()",
    "FROM duckdb_temporary_files()",
    "CREATE MACRO f() AS TABLE FROM '{file}'",
    "PREPARE p AS FROM '{file}'",
    "COPY (SELECT 1) TO '{file}'",
    "ATTACH '{folder}/catalog.db'",
    "SELECT sleep_ms(1)",
    "SELECT pg_sleep(1)",
]


def others(number: int) -> bytes:
    """A span of the other tenant, of the same day as the caller's."""
    at = MORNING_NS - number * HOUR_NS
    return spans(number, service="hidden-service", start_ns=at)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Data]]:
    """A server over both tenants' rows: files of the lake and segments of each."""
    folder = tmp_path_factory.mktemp("fenced")
    tokens = folder / "tokens"
    tokens.write_text(f"{TOKEN} mine\n{EVERYWHERE} *\n")
    tokens.chmod(0o600)
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(folder / "data")
        cold(data, spans(1), topic=MINE)
        cold(data, others(SECRET), topic=OTHER)
        warm(data, spans(2), topic=MINE)
        warm(data, others(SECRET + 1), topic=OTHER)
        Plain(data).run()
        warm(data, spans(3), topic=MINE)
        warm(data, others(SECRET + 2), topic=OTHER)
    config = {"auth": {"tokens_file": str(tokens)}}
    with serving(data.root, config=config) as server:
        yield server, data


def ask(server: Server, sql: str, token: str = TOKEN) -> Answer:
    """A question over HTTP."""
    heads = {"authorization": f"Bearer {token}"}
    body = json.dumps({"sql": sql}).encode()
    return server.ask("POST", "/api/v1/query", body, port="web", headers=heads)


def rows(server: Server, sql: str, token: str = TOKEN) -> Any:
    """The rows of an answer."""
    answer = ask(server, sql, token)
    assert answer.status == 200, answer.body
    return answer.json["rows"]


def places(data: Data) -> dict[str, Path | str]:
    """The other tenant's file, the lake, and a file of its metadata."""
    table = data.root / "lake"
    metadata = next(iter(sorted(table.rglob("*.metadata.json"))))
    file, *_ = (each for each in lake_files(data, "spans") if is_of_other(each))
    return {"file": file, "folder": table, "metadata": metadata}


def is_of_other(file: Any) -> bool:
    """Whether all rows of a file are the other tenant's."""
    return set(pq.read_table(file, columns=["namespace"])["namespace"].to_pylist()) == {
        OTHER.namespace
    }


def test_statement_that_nobody_could_look_through_is_refused(
    asked: tuple[Server, Data],
) -> None:
    """By HTTP, with a token of one namespace and with one of all; nothing is told of the rest."""
    server, data = asked
    where = places(data)
    for sql in UNCHECKED:
        for token in (TOKEN, EVERYWHERE):
            answer = ask(server, sql.format(**where), token)
            assert answer.status == 400, (sql, answer.body)
            assert not any(word in answer.body.decode() for word in WORDS), sql


def test_run_plan_is_for_who_sees_everything(asked: tuple[Server, Data]) -> None:
    """It names files and their folders; the plan alone does not."""
    server, _ = asked
    for sql in ("EXPLAIN ANALYZE FROM spans", "explain (analyze) FROM spans"):
        answer = ask(server, sql)
        assert answer.status == 400
        assert "names files" in answer.json["message"]
        assert rows(server, sql, EVERYWHERE)
    plan = json.dumps(rows(server, "EXPLAIN SELECT count(*), max(name) FROM spans"))
    assert ".parquet" not in plan


def test_errors_and_plans_name_what_the_caller_may_see(asked: tuple[Server, Data]) -> None:
    """Candidates for a name that is not there, plans, and errors of a file are the caller's own."""
    server, _ = asked
    for sql in (
        "SELECT nothing FROM spans",
        "SELECT hidden FROM otel_traces",
        "FROM spann",
        "EXPLAIN ANALYZE SELECT min(name), max(name), count(*) FROM spans",
        "EXPLAIN SELECT * FROM spans WHERE name = 'x'",
        "SELECT error(name) FROM spans WHERE name NOT LIKE 'span _'",
        "SUMMARIZE spans",
    ):
        text = ask(server, sql).body.decode()
        assert not any(word in text for word in WORDS), (sql, text)


def test_caller_sees_its_own_rows_by_every_port(asked: tuple[Server, Data]) -> None:
    """All of them, and no other; a token of all namespaces sees everything."""
    server, _ = asked
    count = "SELECT count(*) FROM spans"
    assert rows(server, "SELECT name FROM spans ORDER BY 1") == [["span 1"], ["span 2"], ["span 3"]]
    assert rows(server, "SELECT DISTINCT namespace FROM spans") == [["mine"]]
    assert rows(server, count, EVERYWHERE) == [[6]]
    with pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}") as client:
        options = pf.FlightCallOptions(headers=[(b"authorization", f"Bearer {TOKEN}".encode())])
        ticket = pf.Ticket(json.dumps({"table": "spans", "tiers": ["hot", "warm"]}).encode())
        found = client.do_get(ticket, options).read_all()
        assert found["name"].to_pylist() == ["span 3"]
        for wrong in ({"table": "'x'"}, {"table": "spans", "tiers": ["cold"]}, {"sql": "SELECT 1"}):
            with pytest.raises(pf.FlightError) as raised:
                client.do_get(pf.Ticket(json.dumps(wrong).encode()), options).read_all()
            assert not any(word in str(raised.value) for word in WORDS)


def test_lake_that_another_tenant_misses_is_no_concern_of_the_caller(
    asked: tuple[Server, Data],
) -> None:
    """A file of the other tenant that is gone is neither looked for nor named."""
    server, data = asked
    file = places(data)["file"]
    aside = f"{file}.aside"
    Path(file).rename(aside)
    try:
        assert rows(server, "SELECT count(*) FROM spans") == [[3]]
        assert ask(server, "SELECT count(name) FROM spans", EVERYWHERE).status == 500
    finally:
        Path(aside).rename(file)
