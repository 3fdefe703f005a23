"""Bundles of OTAP tables become OTLP requests again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.model.slots import REMAINDER
from penstock.otel.descriptors import writing_handler
from penstock.otel.logs import log_messages
from penstock.otel.metrics import metric_messages
from penstock.otel.nesting import nest
from penstock.otel.remainder import Kept
from penstock.otel.signals import Signal
from penstock.otel.traces import span_messages

if TYPE_CHECKING:
    from penstock.model.bundle import Bundle

_MESSAGES: Final = {
    Signal.TRACES: span_messages,
    Signal.LOGS: log_messages,
    Signal.METRICS: metric_messages,
}


def encode_bundle(signal: Signal, bundle: Bundle) -> bytes:
    """The request that a bundle was made of; several are one, with their resources in order."""
    kept = Kept(bundle.get(REMAINDER))
    encoded = b""
    if signal.root_slot in bundle and bundle[signal.root_slot].num_rows:
        handler = writing_handler(signal)
        resource = handler.schema().field(0).type.value_type
        scope = resource.field(1).type.value_type
        records = _MESSAGES[signal](bundle, scope.field(1).type.value_type, kept)
        request = nest(signal, bundle, records, kept)
        encoded = handler.record_batch_to_array(request)[0].as_py()
    return kept.with_empty(signal, encoded)
