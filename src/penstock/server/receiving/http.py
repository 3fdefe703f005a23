"""OTLP over HTTP: a small ASGI application without a framework, which would halve its speed."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from penstock.otel.signals import Signal
from penstock.server.auth import namespace_of
from penstock.server.http.answers import JSON, PROTOBUF, refuse, send_answer
from penstock.server.http.bodies import Body, ClientGone
from penstock.server.http.head import announces_body, headers_of, holds_body_back, kind_in
from penstock.server.places import Client
from penstock.server.receiving.checking import Arrived
from penstock.server.receiving.compression import unpacking
from penstock.server.refusals import Cause, Refusal, refusal_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.server.receiving.ingest import Intake

    Scope = dict[str, Any]
    Receive = Callable[[], Awaitable[dict[str, Any]]]
    Send = Callable[[dict[str, Any]], Awaitable[None]]

_LOG = logging.getLogger(__name__)
PATHS: Final = {signal.http_path: signal for signal in Signal}
"""All that is answered on the port."""


class OtlpHttp:
    """`POST /v1/traces`, `/v1/logs` and `/v1/metrics`."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._limits = intake.limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
            await send_answer(send, 200, kind, answer)

    async def _answer(self, scope: Scope, body: Body, headers: dict[str, str], kind: str) -> bytes:
        signal = PATHS.get(scope["path"])
        if signal is None:
            raise Refusal(Cause.NOT_FOUND, f"nothing is at {scope['path']}")
        if scope["method"] != "POST":
            raise Refusal(Cause.WRONG_METHOD, f"{scope['method']} is not POST")
        admitted = self._intake.gate.admit(headers.get("authorization"), namespace_of(headers))
        if kind not in (PROTOBUF, JSON):
            raise Refusal(Cause.UNSUPPORTED, f"{kind!r} is neither {PROTOBUF} nor {JSON}")
        if not announces_body(headers):
            raise Refusal(Cause.NO_LENGTH, "neither Content-Length nor chunks: where does it end?")
        unpack = unpacking(headers.get("content-encoding", ""))
        limits, client = self._limits, _client(scope, admitted.caller.identity)
        with self._intake.admission.hold(who=client.who) as grow:
            data = await body.within(headers, limits.request, limits.timeout, grow)
            arrived = Arrived(signal, data, unpack, is_json=kind == JSON)
            checked = await self._intake.take(arrived, admitted, client, grow)
        if kind == PROTOBUF:
            return signal.response(checked.rejected, checked.text)
        return _json_response(signal, checked.rejected, checked.text)


def _client(scope: Scope, identity: str) -> Client:
    host, port = scope.get("client") or ("", 0)
    return Client.of(identity, f"{host}:{port}")


def _json_response(signal: Signal, rejected: int, message: str) -> bytes:
    if not rejected and not message:
        return b"{}"
    from google.protobuf.json_format import MessageToDict

    response = signal.response_class.FromString(signal.response(rejected, message))
    return json.dumps(MessageToDict(response)).encode()
