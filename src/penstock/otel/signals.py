"""The three kinds of telemetry, and what OTLP and OTAP call their parts.

The classes of the messages are imported with their first use.
"""

from __future__ import annotations

import enum
import importlib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.model import slots

if TYPE_CHECKING:
    from google.protobuf.message import Message


class Signal(enum.Enum):
    """What an OTLP request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"

    @property
    def service(self) -> str:
        """The full name of the gRPC service; its one method is `Export`."""
        return f"{self._package}.{self._stem}Service"

    @property
    def grpc_method(self) -> str:
        """What a gRPC client calls."""
        return f"/{self.service}/Export"

    @property
    def http_path(self) -> str:
        """Where an HTTP client posts to."""
        return f"/v1/{self.value}"

    @property
    def raw_slot(self) -> int:
        """The slot for requests that are kept as they came."""
        return _RAW_SLOTS[self]

    @property
    def root_slot(self) -> int:
        """The slot of the spans, log records or metrics."""
        return _ROOT_SLOTS[self]

    @property
    def records(self) -> str:
        """What users count: what OTLP calls the things that a server may reject one by one."""
        return _RECORDS[self]

    @cached_property
    def field_names(self) -> tuple[str, str, str]:
        """What the fields are called that hold resources, scopes and records in each other."""
        outer: Any = self.request_class.DESCRIPTOR.fields[0]
        inner = outer.message_type.fields_by_number[2]
        return outer.name, inner.name, inner.message_type.fields_by_number[2].name

    @cached_property
    def request_class(self) -> type[Message]:
        """`Export…ServiceRequest`."""
        return self._class("Request")

    @cached_property
    def response_class(self) -> type[Message]:
        """`Export…ServiceResponse`."""
        return self._class("Response")

    def response(self, rejected: int = 0, message: str = "") -> bytes:
        """The answer to a request of which all but `rejected` records are stored."""
        response = self.response_class()
        if rejected or message:
            # all three classes have it, their common one does not
            partial = response.partial_success  # type: ignore[attr-defined]
            setattr(partial, f"rejected_{self.records.replace(' ', '_')}", rejected)
            partial.error_message = message
        return response.SerializeToString()

    @property
    def _package(self) -> str:
        return f"opentelemetry.proto.collector.{self._stem.lower()}.v1"

    @property
    def _stem(self) -> str:
        return "Trace" if self is Signal.TRACES else self.value.capitalize()

    def _class(self, kind: str) -> type[Message]:
        module = importlib.import_module(f"{self._package}.{self._stem.lower()}_service_pb2")
        found: type[Message] = getattr(module, f"Export{self._stem}Service{kind}")
        return found


_RAW_SLOTS = {
    Signal.TRACES: slots.RAW_TRACES,
    Signal.LOGS: slots.RAW_LOGS,
    Signal.METRICS: slots.RAW_METRICS,
}
_ROOT_SLOTS = {
    Signal.TRACES: slots.SPANS,
    Signal.LOGS: slots.LOGS,
    Signal.METRICS: slots.UNIVARIATE_METRICS,
}
_RECORDS = {
    Signal.TRACES: "spans",
    Signal.LOGS: "log records",
    Signal.METRICS: "data points",
}
