"""Every route, method, action and call, for every role, namespace and stranger.

What there is to ask is taken from the server; who may is written down here. A route, a method, an
action or a Flight call that is not in the table fails the first tests.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as pf
import pytest

from penstock.otel import Signal
from penstock.server.auth import Role
from penstock.server.configuration.config import Config
from penstock.server.querying.queries import Queries
from penstock.server.receiving.grpc import METHODS as ANSWERED
from penstock.server.receiving.http import PATHS
from penstock.server.supervisor import web_application
from tests.server.running import PROTOBUF, Server, serving, until
from tests.server.samples import sample

OK, UNKNOWN, FORBIDDEN = "ok", "who are you", "not that"
ROLES = tuple(role.value for role in Role)
HERE, THERE = "shop", "elsewhere"
LINES = {
    **{f"{role}@{where}": f"{role}={where}" for role in ROLES for where in (HERE, THERE)},
    "old@shop": HERE,
    "old@elsewhere": THERE,
    "all": "*",
    "admin@*": "admin=*",
}
"""What each token may, by how the table calls it."""
WITHDRAWN = {f"withdrawn {name}": right for name, right in LINES.items()}
STRANGERS = ("none", "wrong", *WITHDRAWN)


def token_of(caller: str) -> str:
    """Long enough, and of no other."""
    return f"token-of-{caller.replace(' ', '-').replace('@', '-at-')}"


def having(*roles: str) -> set[str]:
    """Who has one of the roles in the shop."""
    found = {f"{role}@{HERE}" for role in roles} | {"all"}
    found |= {"old@shop"} if set(roles) - {"admin"} else set()
    return found | ({"admin@*"} if "admin" in roles else set())


EVERYBODY = {*LINES, *STRANGERS}
OVERSEERS = {"all", "admin@*"}
LOOKING = having("query", "subscribe", "admin")
WEB: dict[tuple[str, str], set[str]] = {
    ("GET", "/healthz"): EVERYBODY,
    ("GET", "/readyz"): EVERYBODY,
    ("GET", "/metrics"): OVERSEERS,
    ("POST", "/api/v1/flush"): OVERSEERS,
    ("GET", "/api/v1/status"): having(*ROLES),
    ("GET", "/api/v1/openapi.json"): having(*ROLES),
    ("GET", "/api/v1/topics"): LOOKING,
    ("GET", "/api/v1/subscribers"): LOOKING,
    ("POST", "/api/v1/query"): having("query"),
    ("GET", "/api/v1/traces/{trace_id}"): having("query"),
    ("POST", "/api/v1/hot-snapshot"): {"all"},
}
OTLP: dict[str, set[str]] = {path: having("ingest") for path in PATHS}
METHODS: dict[str, set[str]] = {signal.grpc_method: having("ingest") for signal in Signal}
ACTIONS: dict[str, set[str]] = {
    "register": having("subscribe", "admin"),
    "unregister": having("subscribe", "admin"),
    "ack": having("subscribe"),
    "nack": having("subscribe"),
    "reject": having("subscribe"),
}
CALLS: dict[str, set[str]] = {
    "do_get table": having("query"),
    "do_get subscribe": having("subscribe"),
    "list_actions": set(LINES),
    "do_exchange": set(),
    "do_put": set(),
    "get_flight_info": set(),
    "get_schema": set(),
    "list_flights": set(),
}
"""The last are not there: nobody gets an answer, and a stranger does not learn even that."""
_OF_ITS_LIFE = {"port", "run", "serve", "shutdown", "wait"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with all tokens, those that are withdrawn taken out after they were good."""
    folder = tmp_path_factory.mktemp("matrix")
    tokens = folder / "tokens"
    tokens.write_text(_text({**LINES, **WITHDRAWN}))
    config = {"auth": {"tokens_file": str(tokens)}}
    with serving(folder / "data", config=config) as started:
        for signal in Signal:
            assert over_http(started, signal.http_path, "withdrawn all") == OK
        for name in WITHDRAWN:
            assert over_web(started, "GET", "/api/v1/openapi.json", name) in (OK, FORBIDDEN)
        other = folder / "new"
        other.write_text(_text(LINES))
        other.replace(tokens)
        until(lambda: over_web(started, "GET", "/api/v1/status", "withdrawn all") == UNKNOWN)
        yield started


def _text(rights: dict[str, str]) -> str:
    return "".join(f"{token_of(name)} {right}\n" for name, right in rights.items())


def heads_of(caller: str, namespace: str | None = HERE) -> dict[str, str]:
    """What a caller sends with a request."""
    heads = {} if caller == "none" else {"authorization": f"Bearer {token_of(caller)}"}
    return heads | ({} if namespace is None else {"x-penstock-namespace": namespace})


def over_web(server: Server, method: str, path: str, caller: str) -> str:
    """How a request on the web port ends; one that is let in may find nothing."""
    place = path.replace("{trace_id}", "0" * 32)
    body = b'{"sql": "SELECT 1"}' if place.endswith("/query") else b""
    namespace = None if path.endswith("snapshot") else HERE  # that is of all of them
    heads = heads_of(caller, namespace)
    answer = server.ask(method, place, body, port="web", headers=heads)
    return _word(answer.status)


def over_http(server: Server, path: str, caller: str) -> str:
    """The same on the OTLP/HTTP port."""
    [signal] = [each for each in Signal if each.http_path == path]
    heads = {**heads_of(caller), "content-type": PROTOBUF}
    return _word(server.ask("POST", path, sample(signal, "x"), headers=heads).status)


def _word(status: int) -> str:
    assert status in (200, 401, 403, 404), status
    return {401: UNKNOWN, 403: FORBIDDEN}.get(status, OK)


def over_grpc(channel: grpc.Channel, method: str, caller: str) -> str:
    """The same over gRPC."""
    words = {
        grpc.StatusCode.UNAUTHENTICATED: UNKNOWN,
        grpc.StatusCode.PERMISSION_DENIED: FORBIDDEN,
    }
    [signal] = [each for each in Signal if each.grpc_method == method]
    try:
        pairs = tuple(heads_of(caller).items())
        channel.unary_unary(method)(sample(signal, "x"), metadata=pairs)
    except grpc.RpcError as error:
        return words[error.code()]
    return OK


def over_flight(call: Callable[[Any], Any], caller: str) -> str:
    """The same over Flight; what was let in and makes no sense is an error of another kind."""
    pairs = [(name.encode(), value.encode()) for name, value in heads_of(caller).items()]
    try:
        call(pf.FlightCallOptions(headers=pairs))
    except pf.FlightUnauthenticatedError:
        return UNKNOWN
    except pf.FlightUnauthorizedError:
        return FORBIDDEN
    except pf.FlightServerError:
        return OK
    except (NotImplementedError, pa.ArrowNotImplementedError):
        return FORBIDDEN
    except OSError as error:  # `get_schema` has no kinds of its own
        return UNKNOWN if "Unauthenticated" in str(error) else str(error)
    return OK


def expected(allowed: set[str]) -> dict[str, str]:
    """For everybody."""
    return {
        caller: OK if caller in allowed else UNKNOWN if caller in STRANGERS else FORBIDDEN
        for caller in EVERYBODY
    }


# --- what there is -----------------------------------------------------------------------------


def test_every_route_is_in_the_table() -> None:
    """As the web port itself has them."""
    config = Config()
    routes = web_application(config, [], Queries(config)).routes
    assert {(route.method, route.path) for route in routes} == set(WEB)


def test_every_method_is_in_the_table() -> None:
    """As the gRPC port answers them; it has no others."""
    assert set(ANSWERED) == set(METHODS)


def test_every_action_is_in_the_table(server: Server) -> None:
    """As the Flight port lists them."""
    with flight(server) as client:
        pairs = [(b"authorization", f"Bearer {token_of('all')}".encode())]
        listed = client.list_actions(pf.FlightCallOptions(headers=pairs))
        assert {action.type for action in listed} == set(ACTIONS)


def test_every_call_is_in_the_table() -> None:
    """As the library lets a client make them."""
    functions = inspect.getmembers(pf.FlightServerBase, callable)
    names = {name for name, _ in functions if not name.startswith("_")} - _OF_ITS_LIFE
    assert {name.split()[0] for name in CALLS} | {"do_action"} == names


# --- who may -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), WEB)
def test_route_lets_in_who_may(server: Server, method: str, path: str) -> None:
    """And nobody else."""
    found = {caller: over_web(server, method, path, caller) for caller in EVERYBODY}
    assert found == expected(WEB[method, path])


def test_probe_tells_reasons_to_overseers_alone(server: Server) -> None:
    """To all others well or not well."""
    for caller in EVERYBODY:
        told = server.ask("GET", "/healthz", port="web", headers=heads_of(caller)).json
        assert ("problems" in told) == (caller in OVERSEERS)


@pytest.mark.parametrize("path", OTLP)
def test_telemetry_is_taken_from_who_may_send(server: Server, path: str) -> None:
    """Over HTTP."""
    found = {caller: over_http(server, path, caller) for caller in EVERYBODY}
    assert found == expected(OTLP[path])


@pytest.mark.parametrize("method", METHODS)
def test_method_lets_in_who_may(server: Server, method: str) -> None:
    """Over gRPC."""
    with server.channel() as channel:
        found = {caller: over_grpc(channel, method, caller) for caller in EVERYBODY}
    assert found == expected(METHODS[method])


@pytest.mark.parametrize("kind", ACTIONS)
def test_action_lets_in_who_may(server: Server, kind: str) -> None:
    """Over Flight."""
    asked = {"topic": f"/{HERE}/traces", "partition": 0, "subscriber": "me", "bundles": [[9, 9]]}
    action = pf.Action(kind, json.dumps(asked).encode())
    with flight(server) as client:
        found = {
            caller: over_flight(lambda options: list(client.do_action(action, options)), caller)
            for caller in sorted(EVERYBODY)
        }
    assert found == expected(ACTIONS[kind])


@pytest.mark.parametrize("name", CALLS)
def test_call_lets_in_who_may(server: Server, name: str) -> None:
    """Over Flight."""
    with flight(server) as client:
        call = calls(client)[name]
        found = {caller: over_flight(call, caller) for caller in sorted(EVERYBODY)}
    assert found == expected(CALLS[name])


def flight(server: Server) -> Any:
    """A client of the Flight port."""
    return pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}")


def calls(client: Any) -> dict[str, Callable[[Any], Any]]:
    """Each with the options that name the caller."""
    table = pf.Ticket(b'{"table": "spans"}')
    asked = {"subscribe": f"/{HERE}/traces", "partition": 0, "subscriber": "me", "wait_s": 0}
    subscribe = pf.Ticket(json.dumps(asked).encode())
    place = pf.FlightDescriptor.for_path("spans")
    schema = pa.schema([])
    return {
        "do_get table": lambda options: client.do_get(table, options).read_all(),
        "do_get subscribe": lambda options: client.do_get(subscribe, options).read_all(),
        "list_actions": lambda options: list(client.list_actions(options)),
        "list_flights": lambda options: list(client.list_flights(options=options)),
        "get_flight_info": lambda options: client.get_flight_info(place, options),
        "get_schema": lambda options: client.get_schema(place, options),
        "do_put": lambda options: _put(client, place, schema, options),
        "do_exchange": lambda options: _exchange(client, place, options),
    }


def _put(client: Any, place: Any, schema: pa.Schema, options: Any) -> None:
    writer, _ = client.do_put(place, schema, options)
    writer.close()


def _exchange(client: Any, place: Any, options: Any) -> None:
    writer, reader = client.do_exchange(place, options)
    writer.done_writing()
    reader.read_all()
