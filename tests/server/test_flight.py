"""The Flight port of a real server: rows, remote subscribers, tokens and TLS."""

from __future__ import annotations

import json
import os
import signal as signals
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as pf
import pytest

from penstock.client import RemoteSubscriber
from penstock.client.workers import worker_client
from penstock.otel import Signal
from tests.server.certificates import OPENSSL, make_authority, make_certificate
from tests.server.running import Server, children_of, serving, stored_names, until
from tests.server.samples import logs, metrics, traces
from tests.server.subscribing import location, names_of, seal

ALL, ONE = "a-token-for-all", "a-token-for-one"


def get(client: pf.FlightClient, token: str | None = None, **asked: Any) -> Any:
    """All rows of a ticket."""
    heads = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    ticket = pf.Ticket(json.dumps(asked).encode())
    return client.do_get(ticket, pf.FlightCallOptions(headers=heads)).read_all()


@pytest.fixture(scope="module")
def lazy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that seals when it is told to; each test has a namespace of its own."""
    config = {"segment": {"max_open_duration": "1h"}}
    with serving(tmp_path_factory.mktemp("lazy") / "data", config=config) as started:
        yield started


def test_what_is_not_offered_is_told_in_a_sentence(lazy: Server) -> None:
    """And not as where our code failed."""
    described = pf.FlightDescriptor.for_path("spans")
    with pf.connect(location(lazy)) as client:
        for ask in (
            lambda: list(client.list_flights()),
            lambda: client.get_flight_info(described),
            lambda: client.get_schema(described),
        ):
            with pytest.raises(NotImplementedError, match="this server has no") as refused:
                ask()
            assert "Traceback" not in str(refused.value)


def subscribed(server: Server, namespace: str, name: str = "remote") -> RemoteSubscriber:
    """A subscriber to the spans of a namespace."""
    return RemoteSubscriber(location(server), f"/{namespace}/traces", name)


def progress(server: Server, namespace: str) -> list[Any]:
    """Of the remote subscribers of a namespace; every store has a lake besides."""
    heads = {"x_penstock_namespace": namespace}
    found: list[Any] = server.get("/api/v1/subscribers", **heads).json["subscribers"]
    assert [each["subscriber"] for each in found].count("lake") == 1
    return [each for each in found if each["subscriber"] != "lake"]


# --- rows --------------------------------------------------------------------------------------


def test_rows_of_fresh_tiers_are_streamed(lazy: Server) -> None:
    """Hot ones at once after their acknowledgement, warm ones where they are asked for."""
    seal(lazy, "fresh warm")
    lazy.post(Signal.TRACES, traces("fresh hot"))
    lazy.post(Signal.LOGS, logs("fresh line"))

    def fresh(rows: Any, column: str = "name") -> list[str]:
        """Those of this test; every test of the server is in its tables."""
        return sorted(each for each in rows[column].to_pylist() if each.startswith("fresh"))

    with pf.connect(location(lazy)) as client:
        assert fresh(get(client, table="spans")) == ["fresh hot"]
        both = get(client, table="spans", tiers=["hot", "warm"])
        assert fresh(both) == ["fresh hot", "fresh warm"]
        assert json.loads(both.schema.metadata[b"penstock.warnings"]) == []
        assert fresh(get(client, table="logs"), "body") == ["fresh line"]
        assert fresh(get(client, table="metrics")) == []


@pytest.mark.parametrize(
    "ticket",
    [
        b"",
        b"\xff",
        b"[" * 100_000,
        b"{}",
        b'{"table": "spans; DROP"}',
        b'{"table": "spans", "tiers": ["cold"]}',
        b'{"table": ["spans"]}',
        b'{"subscribe": "/default/traces"}',
        b'{"subscribe": 1, "subscriber": "x"}',
        b'{"subscribe": "/../..", "subscriber": "x", "partition": 0}',
        b'{"subscribe": "/default/traces", "subscriber": "x", "partition": -1}',
        b'{"subscribe": "/default/traces", "subscriber": "x", "partition": 1e300}',
        b'{"subscribe": "/default/nothing", "subscriber": "x", "partition": 0}',
    ],
    ids=lambda ticket: ticket[:40].decode("latin-1"),
)
def test_hostile_ticket_is_refused(server: Server, ticket: bytes) -> None:
    """With a sentence, and the next is answered."""
    with pf.connect(location(server)) as client:
        with pytest.raises((pf.FlightServerError, pf.FlightInternalError)) as refused:
            client.do_get(pf.Ticket(ticket)).read_all()
        assert "Traceback" not in str(refused.value)
        assert get(client, table="metrics").num_rows == 0


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("report", b"{}"),
        ("shutdown", b""),
        ("register", b""),
        ("register", b'{"topic": "/default/traces"}'),
        ("eat", b'{"topic": "/default/traces", "subscriber": "x", "bundles": [[0, 0]]}'),
        ("ack", b'{"topic": "/default/traces", "subscriber": "x", "bundles": [[0, 0]]}'),
        ("nack", b'{"topic": "/default/traces", "subscriber": "x"}'),
        ("register", b'{"topic": "/default/traces", "subscriber": "x", "start": {}}'),
    ],
)
def test_hostile_action_is_refused(server: Server, kind: str, body: bytes) -> None:
    """Also what the workers answer to the owner of the data directory alone."""
    server.post(Signal.TRACES, traces("there"))
    with pf.connect(location(server)) as client:
        with pytest.raises(pf.FlightError):
            list(client.do_action(pf.Action(kind, body)))
        assert get(client, table="metrics").num_rows == 0


# --- subscribers -------------------------------------------------------------------------------


def test_bundles_come_until_they_are_acked(lazy: Server) -> None:
    """What was nacked comes again, what was acked or rejected does not."""
    seal(lazy, "first", namespace="acked")
    with subscribed(lazy, "acked") as subscriber:
        assert subscriber.register()
        assert not subscriber.register()
        seal(lazy, "second", namespace="acked")
        seal(lazy, "third", namespace="acked")
        stream = subscriber.bundles()
        first, second, third = (next(stream) for _ in range(3))
        assert [names_of(d) for d in (first, second, third)] == [["first"], ["second"], ["third"]]
        first.ack()
        third.reject()
        second.nack(0.0)
        again = next(stream)
        assert (names_of(again), again.attempt) == (["second"], 2)
        again.ack()
        stream.close()
    [found] = progress(lazy, "acked")
    outcomes = (found["acked"], found["nacked"], found["rejected"], found["lag_bundles"])
    assert outcomes == (2, 1, 1, 0)


def test_unanswered_bundle_comes_again_when_its_stream_ends(lazy: Server) -> None:
    """Its holder can answer it no more."""
    seal(lazy, "held", namespace="unanswered")
    with subscribed(lazy, "unanswered") as subscriber:
        held = next(stream := subscriber.bundles())
        stream.close()
        again = next(stream := subscriber.bundles())
        assert names_of(again) == ["held"]
        again.ack()
        with pytest.raises(pf.FlightServerError, match="its stream has ended"):
            held.ack()
        stream.close()


def test_stream_can_end_by_itself(lazy: Server) -> None:
    """When there was nothing for so long; several bundles are answered at once."""
    seal(lazy, "one", namespace="ending")
    seal(lazy, "two", namespace="ending")
    with subscribed(lazy, "ending") as subscriber:
        assert len(list(subscriber.bundles(wait_s=0))) == 2
        stream = subscriber.bundles(wait_s=0)
        subscriber.answer("ack", next(stream), next(stream))
        assert list(stream) == []
        assert list(subscriber.bundles(wait_s=0)) == []
        subscriber.unregister()
    assert progress(lazy, "ending") == []


def test_two_streams_share_the_work(lazy: Server) -> None:
    """No bundle is with both."""
    with subscribed(lazy, "shared") as subscriber:
        for number in range(3):
            seal(lazy, str(number), namespace="shared")
        streams = [subscriber.bundles(most=1), subscriber.bundles(most=1)]
        held = [next(stream) for stream in streams]
        held[1].ack()
        got = [names_of(each) for each in (*held, next(streams[1]))]
        assert sorted(name for names in got for name in names) == ["0", "1", "2"]
        for stream in streams:
            stream.close()


def test_server_stops_though_a_stream_is_open(tmp_path: Path) -> None:
    """And what the stream held is delivered after the next start."""
    with serving(tmp_path / "data") as server:
        seal(server, "held")
        where = location(server), "/default/traces", "remote"
        with RemoteSubscriber(*where, patience_s=0) as subscriber:
            next(stream := subscriber.bundles(wait_s=3600))
            assert server.stop() == 0
            with pytest.raises(pf.FlightError):
                next(stream)
    with serving(tmp_path / "data") as server, subscribed(server, "default") as subscriber:
        assert [names_of(each) for each in subscriber.bundles(wait_s=0)] == [["held"]]


def test_server_stops_though_a_client_takes_nothing(tmp_path: Path) -> None:
    """What is open is sealed all the same."""
    data = tmp_path / "data"
    with serving(data) as server:
        for number in range(4):
            names = (f"{number} {span}" for span in range(2000))
            server.post(Signal.TRACES, traces(*names, padding=2000))
        server.ask("POST", "/api/v1/flush", port="web")
        asked = {"subscribe": "/default/traces", "partition": 0, "subscriber": "stuck"}
        with worker_client(data, 0) as client:
            stream = client.do_get(pf.Ticket(json.dumps(asked).encode()))
            stream.read_chunk()
            server.post(Signal.TRACES, traces("last"))
            assert server.stop() == 0
            stream.cancel()
    assert "last" in stored_names(data, Signal.TRACES)


def test_flight_process_that_dies_is_started_again(lazy: Server) -> None:
    """Receiving does not notice."""
    [pid] = [
        each
        for each in children_of(lazy.process.pid)
        if b"server.flight.process" in Path(f"/proc/{each}/cmdline").read_bytes()
    ]
    os.kill(pid, signals.SIGKILL)
    assert lazy.post(Signal.METRICS, metrics("x")).status == 200
    assert until(lambda: _is_found(lazy))


def _is_found(server: Server) -> bool:
    try:
        with pf.connect(location(server)) as client:
            return bool(get(client, table="metrics")["name"].to_pylist() == ["x"])
    except pf.FlightUnavailableError:
        return False


# --- tokens and TLS ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with tokens, and a span of each of two namespaces."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens"
    tokens.write_text(f"{ALL} *\n{ONE} one\n")
    with serving(folder / "data", config={"auth": {"tokens_file": str(tokens)}}) as server:
        for name in ("one", "two"):
            heads = {"authorization": f"Bearer {ALL}", "x_penstock_namespace": name}
            assert server.post(Signal.TRACES, traces(name), **heads).status == 200
        yield server


def test_no_token_no_flight(guarded: Server) -> None:
    """Nor with one that is not known; neither for rows nor for actions."""
    with pf.connect(location(guarded)) as client:
        for token in (None, "not-a-token-of-ours"):
            with pytest.raises(pf.FlightUnauthenticatedError):
                get(client, token, table="spans")
        with pytest.raises(pf.FlightUnauthenticatedError):
            list(client.list_actions())


def test_token_gets_the_rows_of_its_namespaces(guarded: Server) -> None:
    """And no others."""
    with pf.connect(location(guarded)) as client:
        tiers = ["hot", "warm"]
        assert get(client, ONE, table="spans", tiers=tiers)["name"].to_pylist() == ["one"]
        found = get(client, ALL, table="spans", tiers=tiers)["name"].to_pylist()
        assert sorted(found) == ["one", "two"]


def test_token_cannot_subscribe_to_another_namespace(guarded: Server) -> None:
    """Neither register nor read."""
    with RemoteSubscriber(location(guarded), "/two/traces", "spy", token=ONE) as spy:
        with pytest.raises(pf.FlightUnauthorizedError):
            spy.register()
        with pytest.raises(pf.FlightUnauthorizedError):
            next(spy.bundles())
    with RemoteSubscriber(location(guarded), "/one/traces", "own", token=ONE) as own:
        assert own.register()
        own.unregister()


@pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to make certificates with")
def test_port_is_encrypted_and_wants_certificates(tmp_path: Path) -> None:
    """As every other; who shows none, or does not encrypt, is not let in."""
    ours = make_authority(tmp_path, "ours")
    server_pair, client_pair = (make_certificate(tmp_path, n, ours) for n in ("server", "client"))
    tls = {
        "certificate": str(server_pair.certificate),
        "key": str(server_pair.key),
        "client_ca": str(ours.certificate),
    }
    roots = {"tls_root_certs": ours.certificate.read_bytes()}
    shown = {
        "cert_chain": client_pair.certificate.read_bytes(),
        "private_key": client_pair.key.read_bytes(),
    }
    with serving(tmp_path / "data", config={"tls": tls}) as server:
        address = f"grpc+tls://localhost:{server.ready['flight']}"
        with pf.FlightClient(address, **roots, **shown) as client:
            assert get(client, table="spans").num_rows == 0
        for refused in (pf.FlightClient(address, **roots), pf.FlightClient(location(server))):
            with refused, pytest.raises(pf.FlightError):
                get(refused, table="spans")
