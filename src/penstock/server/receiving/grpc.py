"""OTLP over gRPC: raw bytes in, raw bytes out; nothing is parsed before it is bounded."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from penstock.model.settings import KIB, MIB
from penstock.otel.signals import Signal
from penstock.server.auth import NAMESPACE_HEADER
from penstock.server.places import Bounds, Client, Places
from penstock.server.receiving.checking import Arrived
from penstock.server.receiving.compression import unpacking_of
from penstock.server.receiving.newcomers import SETTLED_S, Newcomers
from penstock.server.refusals import MESSAGE_CHARACTERS, Cause, Refusal, refusal_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from penstock.server.configuration.config import Limits
    from penstock.server.receiving.ingest import Intake

_LOG = logging.getLogger(__name__)
_STATUS_DETAILS: Final = "grpc-status-details-bin"
WINDOW_BYTES: Final = 64 * KIB - 1
"""What HTTP/2 begins with; most requests are not larger, and have come when they are read."""
TURN_S: Final = 1.0
"""How long a message may take to come while others wait for their turn."""
METADATA: Final = 2000
"""Entries of a call; more than there can be, where the client has acknowledged their bound."""
METHODS: Final = {signal.grpc_method: signal for signal in Signal}
Metadata = tuple[tuple[str, str | bytes], ...]
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class OtlpGrpc:
    """The `Export` methods of the three services."""

    def __init__(self, intake: Intake, newcomers: Newcomers | None = None) -> None:
        self._intake = intake
        self._newcomers = newcomers or Newcomers(0, intake.limits, tls=False)
        self._limits = intake.limits
        self._reading = _reading(intake.limits)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """One for all of them, and for what nobody answers."""
        return [_Calls(self._export, self._newcomers)]

    async def _export(
        self, signal: Signal, metadata: Metadata, _: AsyncIterator[bytes], context: Any
    ) -> bytes:
        try:
            return await self._answer(signal, metadata, context)
        except Exception as error:
            refusal = refusal_for(error)
            details = ((_STATUS_DETAILS, refusal.status().SerializeToString()),)
            code = _CODES[refusal.cause.grpc_code]
            # Its error keeps this frame for a while, which therefore must not hold the request.
            await context.abort(code, refusal.message[:MESSAGE_CHARACTERS], details)
            raise  # abort does not return

    async def _answer(self, signal: Signal, metadata: Metadata, context: Any) -> bytes:
        peer: str = context.peer()
        self._newcomers.moved(peer)
        if len(metadata) > METADATA:
            raise Refusal(Cause.TOO_LARGE, f"the call has more than {METADATA} entries of metadata")
        headers = dict(metadata)
        admitted = self._intake.gate.admit(
            _text(headers.get("authorization")), _text(headers.get(NAMESPACE_HEADER))
        )
        client = Client.of(admitted.caller.identity, peer)
        self._intake.admission.check()
        with self._newcomers.reading(peer):
            data = await self._receive(client, context)
        with self._intake.admission.hold(len(data), who=client.who) as grow:
            arrived = Arrived(signal, data, unpacking_of(data))
            checked = await self._intake.take(arrived, admitted, client, grow)
        return signal.response(checked.rejected, checked.text)

    async def _receive(self, client: Client, context: Any) -> bytes:
        """The one message of the call, in time and within its bound.

        Not from the iterator, which would hold the message until a collection.
        """
        try:
            async with (
                asyncio.timeout(self._limits.timeout) as time,
                self._reading.hold(client) as place,
            ):
                place.time = time
                data: bytes = await context.read()
        except TimeoutError:
            raise Refusal(Cause.TOO_SLOW, "the request did not arrive in time") from None
        if data is grpc.aio.EOF:
            raise Refusal(Cause.INVALID, "the call ended without a request")
        if len(data) > self._limits.request:
            text = f"a request of {len(data)} bytes; the most is {self._limits.request}"
            raise Refusal(Cause.TOO_LARGE, text)
        return data


class _Calls(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Which method answers; it is given the metadata that the library has made anyway."""

    def __init__(self, export: Callable[..., Any], newcomers: Newcomers) -> None:
        self._export = export
        self._newcomers = newcomers

    def service(self, details: Any) -> grpc.RpcMethodHandler:
        """As a stream of one message, also where the method is called with one.

        The same on the wire as unary, but the handler begins before the message is there: who may
        not come in, or does not come to an end, holds no memory.
        """
        signal = METHODS.get(details.method)
        if signal is None:
            return grpc.stream_unary_rpc_method_handler(self._unknown)
        metadata = details.invocation_metadata or ()
        return grpc.stream_unary_rpc_method_handler(
            functools.partial(self._export, signal, metadata)
        )

    async def _unknown(self, _: AsyncIterator[bytes], context: Any) -> bytes:
        self._newcomers.moved(context.peer())
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        raise AssertionError  # abort does not return


def _reading(limits: Limits) -> Places:
    """Messages that are read at once, by bytes.

    Invariant: the transport holds no more than `WINDOW_BYTES` of a message that nobody reads, and
    all of one that somebody does. It does not say how much has come; so each that is read counts as
    the largest, and they have as many bytes as `limits.in_flight` in all. One that has come already
    is read in no time. One that comes slowly is left when others wait.
    """
    count = max(2, limits.in_flight // limits.request)
    quarter = max(1, count // 4)
    waiting = max(1, limits.in_flight // WINDOW_BYTES // 4)
    return Places(
        Bounds(
            count,
            of_client=count - quarter,
            of_connection=quarter,
            waiting=4 * waiting,
            waiting_of_client=waiting,
            turn_s=min(TURN_S, limits.timeout),
        )
    )


def options(
    limits: Limits, *, message_bytes: int | None = None, answer_bytes: int = 4 * MIB
) -> list[tuple[str, int]]:
    """Bounds of the transport. Decompression is not left to it: it knows no bound.

    `message_bytes`: of what is sent to it, without them those of a request. -1 is no bound.
    """
    return [
        ("grpc.max_receive_message_length", message_bytes or limits.request + 1024),
        ("grpc.max_send_message_length", answer_bytes),
        ("grpc.per_message_decompression", 0),
        ("grpc.so_reuseport", 1),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_connection_idle_ms", int(limits.idle * 1000)),
        ("grpc.server_handshake_timeout_ms", int(limits.timeout * 1000)),
        ("grpc.max_concurrent_streams", 256),
        # Of a message that nobody reads. By itself it would let a stream have 4 MiB and more.
        ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        # Both: by itself the second would be larger. They hold for who has acknowledged them.
        ("grpc.max_metadata_size", 64 * KIB),
        ("grpc.absolute_max_metadata_size", 64 * KIB),
        ("grpc.http2.settings_timeout", int(SETTLED_S * 1000)),
    ]


def _text(value: str | bytes | None) -> str | None:
    return value.decode("latin-1") if isinstance(value, bytes) else value
