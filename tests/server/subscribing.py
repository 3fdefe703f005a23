"""What tests of remote subscribers do with a server: make segments, and look into bundles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.otel import Signal, encode_bundle
from tests.server.samples import traces

if TYPE_CHECKING:
    from penstock.client import RemoteDelivery
    from tests.server.running import Server


def location(server: Server) -> str:
    """Of the Flight port."""
    return f"grpc://127.0.0.1:{server.ready['flight']}"


def seal(server: Server, *names: str, namespace: str = "default") -> None:
    """A segment of one bundle, with a span for each name."""
    answer = server.post(Signal.TRACES, traces(*names), x_penstock_namespace=namespace)
    assert answer.status == 200
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200


def names_of(delivery: RemoteDelivery) -> list[str]:
    """The names of the spans in a bundle."""
    request = Signal.TRACES.request_class.FromString(encode_bundle(Signal.TRACES, delivery.bundle))
    scopes = (scope for resource in request.resource_spans for scope in resource.scope_spans)
    return [span.name for scope in scopes for span in scope.spans]
