"""Calls between services, with the attributes of the semantic conventions for each kind."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.load.services import STOREFRONT, Service, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from random import Random

Draw: TypeAlias = "Value | Callable[[Random], Value]"
"""A value, or how to draw one."""


class Kind(enum.IntEnum):
    """What OTLP calls a span's kind."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One span of a trace, and what is called while it lasts."""

    service: Service
    name: str
    kind: Kind
    scope: str
    work_ms: float
    """The median of its own time, without that of the calls."""
    attributes: Mapping[str, Draw] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()
    fails: float = 0.0
    """How often it fails by itself."""
    error: tuple[str, str] = ("Error", "unknown")
    """The type and the message of that failure."""
    on_error: Mapping[str, Value] = field(default_factory=dict)
    """The attributes that say so."""
    tolerant: bool = False
    """Whether it goes on when one of its calls has failed."""


AGENTS: Final = (
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/138.0",
)


def number(bound: int) -> Callable[[Random], Value]:
    """Draws a whole number under the bound."""
    return lambda random: random.randrange(bound)


def text(form: str, bound: int) -> Callable[[Random], Value]:
    """Draws a text with such a number in it."""
    return lambda random: form.format(random.randrange(bound))


def one_of(*values: Value) -> Callable[[Random], Value]:
    """Draws one of the values."""
    return lambda random: random.choice(values)


def page(method: str, route: str, path: Draw, *calls: Call, tolerant: bool = False) -> Call:
    """What a browser asks the storefront for: the root of a trace."""
    return Call(
        service=STOREFRONT,
        name=f"{method} {route}",
        kind=Kind.SERVER,
        scope="http",
        work_ms=4,
        attributes={
            "http.request.method": method,
            "http.route": route,
            "url.path": path,
            "url.scheme": "https",
            "server.address": "shop.example.com",
            "client.address": text("203.0.113.{}", 256),
            "user_agent.original": one_of(*AGENTS),
            "network.protocol.version": "2",
            "http.response.status_code": 200,
            "session.id": lambda random: f"{random.getrandbits(64):016x}",
        },
        calls=calls,
        on_error={"http.response.status_code": 500, "error.type": "500"},
        tolerant=tolerant,
    )


def http(
    caller: Service,
    callee: Service,
    method: str,
    route: str,
    path: Draw,
    *calls: Call,
    work_ms: float = 3,
    fails: float = 0.002,
) -> Call:
    """A request from one service to another: a client's span and a server's."""
    address = f"{callee.name}.shop.svc.cluster.local"
    common: dict[str, Draw] = {
        "http.request.method": method,
        "http.response.status_code": 200,
        "network.protocol.version": "1.1",
        "server.address": address,
        "server.port": 8080,
    }
    on_error: dict[str, Value] = {"http.response.status_code": 503, "error.type": "503"}
    server = Call(
        service=callee,
        name=f"{method} {route}",
        kind=Kind.SERVER,
        scope="http",
        work_ms=work_ms,
        attributes={
            **common,
            "http.route": route,
            "url.path": path,
            "url.scheme": "http",
            "client.address": text("10.0.7.{}", 256),
            "user_agent.original": f"{caller.name}/{caller.version}",
        },
        calls=calls,
        fails=fails,
        error=("OverloadedError", f"{callee.name} has too many requests in its queue"),
        on_error=on_error,
    )
    return Call(
        service=caller,
        name=method,
        kind=Kind.CLIENT,
        scope="http",
        work_ms=0.6,
        attributes={**common, "url.full": f"http://{address}:8080{route}"},
        calls=(server,),
        fails=0.0005,
        error=("ConnectTimeout", f"no connection to {address}:8080 within 1000 ms"),
        on_error=on_error,
    )


def rpc(
    caller: Service,
    callee: Service,
    method: str,
    *calls: Call,
    attributes: Mapping[str, Draw] | None = None,
    work_ms: float = 2,
    fails: float = 0.002,
    error: tuple[str, str] = ("Unavailable", "the upstream does not answer"),
) -> Call:
    """The same over gRPC."""
    service = f"shop.{callee.name}.v1.{callee.name.capitalize()}Service"
    common: dict[str, Draw] = {
        "rpc.system": "grpc",
        "rpc.service": service,
        "rpc.method": method,
        "rpc.grpc.status_code": 0,
        "server.address": f"{callee.name}.shop.svc.cluster.local",
        "server.port": 9090,
    }
    on_error: dict[str, Value] = {"rpc.grpc.status_code": 14, "error.type": "UNAVAILABLE"}
    server = Call(
        service=callee,
        name=f"{service}/{method}",
        kind=Kind.SERVER,
        scope="grpc",
        work_ms=work_ms,
        attributes={**common, **(attributes or {}), "client.address": text("10.0.9.{}", 256)},
        calls=calls,
        fails=fails,
        error=error,
        on_error=on_error,
    )
    return Call(
        service=caller,
        name=f"{service}/{method}",
        kind=Kind.CLIENT,
        scope="grpc",
        work_ms=0.4,
        attributes=common,
        calls=(server,),
        on_error=on_error,
    )


def sql(service: Service, operation: str, table: str, query: str, work_ms: float = 2.5) -> Call:
    """A statement that its database answers."""
    return Call(
        service=service,
        name=f"{operation} shop.{table}",
        kind=Kind.CLIENT,
        scope="sql",
        work_ms=work_ms,
        attributes={
            "db.system.name": "postgresql",
            "db.namespace": "shop",
            "db.collection.name": table,
            "db.operation.name": operation,
            "db.query.text": query,
            "db.response.returned_rows": number(40),
            "server.address": f"{service.name}-db.shop.svc.cluster.local",
            "server.port": 5432,
        },
        fails=0.0015,
        error=("QueryCanceled", "canceling statement due to statement timeout"),
        on_error={"error.type": "57014", "db.response.status_code": "57014"},
    )


def redis(service: Service, operation: str, key: Draw) -> Call:
    """A look into a cache."""
    return Call(
        service=service,
        name=operation,
        kind=Kind.CLIENT,
        scope="redis",
        work_ms=0.4,
        attributes={
            "db.system.name": "redis",
            "db.operation.name": operation,
            "db.query.text": key,
            "shop.cache.hit": one_of(True, True, True, False),
            "server.address": f"{service.name}-cache.shop.svc.cluster.local",
            "server.port": 6379,
        },
        fails=0.0005,
        error=("TimeoutError", "Timeout reading from socket"),
        on_error={"error.type": "TimeoutError"},
    )


def kafka(producer: Service, topic: str, consumer: Service, *calls: Call) -> Call:
    """A message, and its processing later on, which is linked to it."""
    common: dict[str, Draw] = {
        "messaging.system": "kafka",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": text("{}", 12),
        "messaging.message.body.size": number(4000),
        "server.address": "kafka.shop.svc.cluster.local",
    }
    processing = Call(
        service=consumer,
        name=f"process {topic}",
        kind=Kind.CONSUMER,
        scope="kafka",
        work_ms=12,
        attributes={
            **common,
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": consumer.name,
            "messaging.kafka.offset": number(10**9),
        },
        calls=calls,
        fails=0.004,
        error=("SmtpError", "451 4.7.1 try again later"),
        on_error={"error.type": "SmtpError"},
    )
    return Call(
        service=producer,
        name=f"send {topic}",
        kind=Kind.PRODUCER,
        scope="kafka",
        work_ms=1.5,
        attributes={**common, "messaging.operation.type": "send"},
        calls=(processing,),
        tolerant=True,
    )


def step(service: Service, name: str, work_ms: float, *calls: Call, **attributes: Draw) -> Call:
    """A part of a service's own work."""
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return Call(
        service=service,
        name=name,
        kind=Kind.INTERNAL,
        scope="app",
        work_ms=work_ms,
        attributes={"code.function.name": f"{service.name}.{name}", **named},
        calls=calls,
    )
