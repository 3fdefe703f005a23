"""OTLP over HTTP: a small ASGI application without a framework, which would halve its speed."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.otel.signals import Signal
from penstock.server.auth import namespace_of
from penstock.server.places import Client
from penstock.server.receiving.bodies import Body, ClientGone
from penstock.server.receiving.checking import Arrived
from penstock.server.receiving.compression import unpacking
from penstock.server.receiving.heads import announces_body, headers_of, holds_body_back, kind_in
from penstock.server.refusals import Cause, Refusal, as_json, refusal_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.server.auth import Gate
    from penstock.server.configuration.config import Limits
    from penstock.server.receiving.admission import Admission
    from penstock.server.receiving.checking import Checks
    from penstock.server.receiving.ingest import WayIn

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_LOG = logging.getLogger(__name__)
PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
PATHS: Final = {signal.http_path: signal for signal in Signal}
"""All that is answered on the port."""


class OtlpHttp:
    """`POST /v1/traces`, `/v1/logs` and `/v1/metrics`."""

    def __init__(
        self, ingest: WayIn, gate: Gate, admission: Admission, checks: Checks, limits: Limits
    ) -> None:
        self._ingest = ingest
        self._checks = checks
        self._admission = admission
        self._gate = gate
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return
        kind, body = kind_in(scope), Body(receive, held_back=holds_body_back(scope))
        try:
            answer = await self._answer(scope, body, headers_of(scope), kind)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - whatever it was, the client must hear of it
            refusal = refusal_for(error)
            await body.settle(refusal, self._limits)
            if body.ended:
                await refuse(send, refusal, kind)
            else:
                await refuse(send, refusal, kind, lambda: body.linger(refusal, self._limits))
        else:
            # Everything that was announced has come, and is durable or was refused by name.
            await _send(send, 200, kind, answer)

    async def _answer(self, scope: Scope, body: Body, headers: dict[str, str], kind: str) -> bytes:
        signal = PATHS.get(scope["path"])
        if signal is None:
            raise Refusal(Cause.NOT_FOUND, f"nothing is at {scope['path']}")
        if scope["method"] != "POST":
            raise Refusal(Cause.WRONG_METHOD, f"{scope['method']} is not POST")
        admitted = self._gate.admit(headers.get("authorization"), namespace_of(headers))
        if kind not in (PROTOBUF, JSON):
            raise Refusal(Cause.UNSUPPORTED, f"{kind!r} is neither {PROTOBUF} nor {JSON}")
        if not announces_body(headers):
            raise Refusal(Cause.NO_LENGTH, "neither Content-Length nor chunks: where does it end?")
        unpack = unpacking(headers.get("content-encoding", ""))
        limits, client = self._limits, _client(scope, admitted.caller.identity)
        with self._admission.hold(who=client.who) as grow:
            data = await body.within(headers, limits.request, limits.timeout, grow)
            arrived = Arrived(signal, data, unpack, is_json=kind == JSON)
            checked = await self._checks.check(arrived, client, grow)
            admitted.check()  # the body may have taken long to come
            await self._ingest.take(signal, admitted.namespace, checked)
        if kind == PROTOBUF:
            return signal.response(checked.rejected, checked.text)
        return _json_response(signal, checked.rejected, checked.text)


def _client(scope: Scope, identity: str) -> Client:
    host, port = scope.get("client") or ("", 0)
    return Client.of(identity, f"{host}:{port}")


async def refuse(
    send: Send, refusal: Refusal, kind: str, linger: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Answers with the status, in protobuf where the request is.

    `linger`: the rest of the body has not come; the connection is closed, after this.
    """
    extra = []
    if refusal.retry_after_header is not None:
        extra.append((b"retry-after", refusal.retry_after_header.encode()))
    if refusal.cause is Cause.WRONG_METHOD:
        extra.append((b"allow", b"POST"))
    if refusal.cause is Cause.UNAUTHENTICATED:
        extra.append((b"www-authenticate", b"Bearer"))
    if linger is not None:
        extra.append((b"connection", b"close"))
    status = refusal.status()
    is_protobuf = kind == PROTOBUF
    body = status.SerializeToString() if is_protobuf else json.dumps(as_json(status)).encode()
    await _send(
        send, refusal.cause.http_status, PROTOBUF if is_protobuf else JSON, body, extra, linger
    )


async def _send(
    send: Send,
    status: int,
    kind: str,
    body: bytes,
    extra: list[tuple[bytes, bytes]] | None = None,
    linger: Callable[[], Awaitable[None]] | None = None,
) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        *(extra or []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if linger is not None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await linger()
        body = b""
    await send({"type": "http.response.body", "body": body})


def _json_response(signal: Signal, rejected: int, message: str) -> bytes:
    if not rejected and not message:
        return b"{}"
    from google.protobuf.json_format import MessageToDict

    response = signal.response_class.FromString(signal.response(rejected, message))
    return json.dumps(MessageToDict(response)).encode()
