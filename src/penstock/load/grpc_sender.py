"""OTLP over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from penstock.load.sender import Answer, Outcome, acknowledged, retry_delay_s
from penstock.otel.signals import Signal

if TYPE_CHECKING:
    from penstock.load.plan import Endpoint, Plan

_RETRYABLE: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


class GrpcSender:
    """One channel."""

    def __init__(self, plan: Plan, endpoint: Endpoint) -> None:
        target = endpoint.authority
        if endpoint.tls:
            secrets = grpc.ssl_channel_credentials()
            self._channel = grpc.aio.secure_channel(target, secrets, _OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(target, _OPTIONS)
        self._calls = {signal: self._channel.unary_unary(signal.grpc_method) for signal in Signal}
        self._timeout_s = plan.timeout_s
        self._metadata = []
        if plan.namespace is not None:
            self._metadata.append(("x-penstock-namespace", plan.namespace))
        if plan.token is not None:
            self._metadata.append(("authorization", f"Bearer {plan.token}"))

    async def send(self, signal: Signal, data: bytes) -> Answer:
        """One `Export`."""
        try:
            response = await self._calls[signal](
                data, timeout=self._timeout_s, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            return _answer(error)
        return acknowledged(signal, response)

    async def close(self) -> None:
        """Ends the channel."""
        await self._channel.close()


def _answer(error: grpc.aio.AioRpcError) -> Answer:
    code = error.code()
    message = f"{code.name}: {error.details()}"
    status = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    delay_s = None if status is None else retry_delay_s(status)
    # "Too much" may be for ever; it is not where the server says when to come again.
    again = code in _RETRYABLE or (
        code is grpc.StatusCode.RESOURCE_EXHAUSTED and delay_s is not None
    )
    return Answer(Outcome.RETRY if again else Outcome.REFUSED, message, delay_s)
