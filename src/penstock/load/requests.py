"""Spans of the shop, and what was logged in them, as OTLP requests with marks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.load.calls import Kind
from penstock.load.services import SCHEMA_URL, SERVICES
from penstock.load.shop import MS
from penstock.load.stamps import marked_time
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from penstock.load.services import Attributes, Service, Value
    from penstock.load.shop import Span

Resources = dict[str, "Attributes"]
"""What each service says of itself, by its name."""

_SAMPLED: Final = 0x101
_REMOTE: Final = 0x300
"""The parent is in another process."""
_INFO, _WARN, _ERROR = 9, 13, 17
_SEVERITIES: Final = {_INFO: "INFO", _WARN: "WARN", _ERROR: "ERROR"}
_CHATTY: Final = 0.6
"""How often a server logs that it has answered."""
_SLOW_NS: Final = 500 * MS


def resources(random: Random, instance: int) -> Resources:
    """One running instance of each service."""
    return {service.name: service.resource(instance, random) for service in SERVICES}


def trace_request(spans: Sequence[Span], described: Resources) -> bytes:
    """The spans, by service and scope."""
    request = Grouped(Signal.TRACES, described)
    for span in spans:
        _write_span(request.records(span.service, span.call.scope).add(), span)
    return request.encoded()


def log_request(spans: Sequence[Span], described: Resources, random: Random) -> tuple[bytes, int]:
    """What was logged in the spans, and how many records that are."""
    request = Grouped(Signal.LOGS, described)
    count = 0
    for span in spans:
        for severity in _logged(span, random):
            record = request.records(span.service, "app").add()
            _write_log(record, span, severity, random)
            count += 1
    return request.encoded(), count


class Grouped:
    """A request in which records find their resource and scope."""

    def __init__(self, signal: Signal, described: Resources) -> None:
        self._request: Any = signal.request_class()
        self._described = described
        self._names = signal.field_names
        self._outer: dict[str, Any] = {}
        self._inner: dict[tuple[str, str], Any] = {}

    def records(self, service: Service, scope: str) -> Any:
        """Where the records of a scope go."""
        outer, inner, records = self._names
        held = self._outer.get(service.name)
        if held is None:
            held = self._outer[service.name] = getattr(self._request, outer).add()
            held.schema_url = SCHEMA_URL
            set_attributes(held.resource.attributes, self._described[service.name])
        found = self._inner.get((service.name, scope))
        if found is None:
            found = self._inner[service.name, scope] = getattr(held, inner).add()
            found.scope.name, found.scope.version = service.libraries + scope, service.version
        return getattr(found, records)

    def encoded(self) -> bytes:
        """The request."""
        data: bytes = self._request.SerializeToString()
        return data


def set_attributes(pairs: Any, values: Mapping[str, Value]) -> None:
    """Adds attributes to a list of `KeyValue`."""
    for key, value in values.items():
        _set_value(pairs.add(key=key).value, value)


def _set_value(target: Any, value: Value) -> None:
    match value:
        case bool():
            target.bool_value = value
        case int():
            target.int_value = value
        case float():
            target.double_value = value
        case str():
            target.string_value = value
        case bytes():
            target.bytes_value = value
        case list():
            target.array_value.SetInParent()
            for item in value:
                _set_value(target.array_value.values.add(), item)
        case dict():
            target.kvlist_value.SetInParent()
            set_attributes(target.kvlist_value.values, value)


def _write_span(target: Any, span: Span) -> None:
    target.trace_id, target.span_id = span.trace_id, span.span_id
    target.name, target.kind = span.call.name, span.call.kind.value
    target.start_time_unix_nano = marked_time(span.start_ns)
    target.end_time_unix_nano = marked_time(span.end_ns)
    target.flags = _SAMPLED
    set_attributes(target.attributes, span.attributes)
    if span.parent is not None:
        target.parent_span_id = span.parent.span_id
        if span.parent.service is not span.service:
            target.flags |= _REMOTE
    if span.call.kind is Kind.CONSUMER and span.parent is not None:
        link = target.links.add(trace_id=span.trace_id, span_id=span.parent.span_id)
        link.flags = _SAMPLED | _REMOTE
        set_attributes(link.attributes, {"messaging.operation.type": "send"})
    if span.failed:
        target.status.code = 2
        target.status.message = span.call.error[1] if span.thrown else ""
    if span.thrown:
        event = target.events.add(name="exception", time_unix_nano=marked_time(span.end_ns))
        set_attributes(event.attributes, _exception(span))


def _exception(span: Span) -> Attributes:
    kind, message = span.call.error
    frames = [f"  at {span.service.name}.{part}" for part in ("handle", "serve", "main")]
    return {
        "exception.type": kind,
        "exception.message": message,
        "exception.stacktrace": "\n".join([f"{kind}: {message}", *frames]),
    }


def _logged(span: Span, random: Random) -> list[int]:
    severities = []
    if span.thrown:
        severities.append(_ERROR)
    elif span.end_ns - span.start_ns > _SLOW_NS:
        severities.append(_WARN)
    if span.call.kind in (Kind.SERVER, Kind.CONSUMER) and random.random() < _CHATTY:
        severities.append(_INFO)
    return severities


def _write_log(target: Any, span: Span, severity: int, random: Random) -> None:
    target.trace_id, target.span_id, target.flags = span.trace_id, span.span_id, 1
    target.time_unix_nano = marked_time(span.end_ns)
    target.observed_time_unix_nano = marked_time(span.end_ns + random.randrange(MS))
    target.severity_number, target.severity_text = severity, _SEVERITIES[severity]
    took_ms = round((span.end_ns - span.start_ns) / MS, 3)
    attributes: Attributes = {
        "thread.id": random.randrange(1, 64),
        "log.logger": f"{span.service.name}.{span.call.scope}",
    }
    if severity == _ERROR:
        target.body.string_value = f"{span.call.name} failed: {span.call.error[1]}"
        attributes |= _exception(span)
    elif severity == _WARN:
        target.body.string_value = f"{span.call.name} took {took_ms} ms"
    elif "shop.order.id" in span.attributes:
        target.event_name = "shop.order.placed"
        order = {
            "order": span.attributes["shop.order.id"],
            "skus": span.attributes["shop.order.skus"],
        }
        _set_value(target.body, order)
    else:
        target.body.string_value = f"answered {span.call.name} in {took_ms} ms"
        attributes["http.response.body.size"] = random.randrange(20_000)
    set_attributes(target.attributes, attributes)
