"""Why a request is not stored, in the words of gRPC and of HTTP."""

from __future__ import annotations

import json

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from penstock.model import errors
from penstock.server.refusals import Cause, Refusal, as_json, refusal_of

GRPC_CODES = {code.value[0]: code for code in grpc.StatusCode}
GRPC_RETRYABLE = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE"}
HTTP_RETRYABLE = {429, 502, 503, 504}
"""As the OTLP specification says; RESOURCE_EXHAUSTED is one only with RetryInfo."""


@pytest.mark.parametrize("cause", Cause)
def test_each_cause_has_codes_that_exist(cause: Cause) -> None:
    """And they are those of errors."""
    assert GRPC_CODES[cause.grpc_code] is not grpc.StatusCode.OK
    assert 400 <= cause.http_status < 600


PERMANENT = [each for each in Cause if each not in (Cause.BUSY, Cause.UNAVAILABLE, Cause.TOO_SLOW)]


@pytest.mark.parametrize("cause", PERMANENT, ids=lambda cause: cause.name)
def test_permanent_cause_is_permanent_for_both(cause: Cause) -> None:
    """No exporter sends such a request again."""
    assert GRPC_CODES[cause.grpc_code].name not in GRPC_RETRYABLE
    assert cause.http_status not in HTTP_RETRYABLE


@pytest.mark.parametrize("cause", [Cause.BUSY, Cause.UNAVAILABLE])
def test_passing_cause_is_retryable_over_http(cause: Cause) -> None:
    """An exporter sends the request again."""
    assert cause.http_status in HTTP_RETRYABLE


def test_passing_causes_are_retryable_over_grpc() -> None:
    """RESOURCE_EXHAUSTED by its RetryInfo."""
    assert GRPC_CODES[Cause.UNAVAILABLE.grpc_code].name in GRPC_RETRYABLE
    assert GRPC_CODES[Cause.BUSY.grpc_code] is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert Refusal(Cause.BUSY, "", retry_after_s=1.0).status().details[0].Is(RetryInfo.DESCRIPTOR)


@pytest.mark.parametrize(
    ("seconds", "milliseconds"), [(1.5, 1500), (0.0001, 1), (0.0, 1), (60.0, 60_000)]
)
def test_retry_info_says_how_long(seconds: float, milliseconds: int) -> None:
    """In a detail of the status, never nothing at all."""
    info = RetryInfo()
    [detail] = Refusal(Cause.BUSY, "later", retry_after_s=seconds).status().details
    assert detail.Unpack(info)
    assert info.retry_delay.ToMilliseconds() == milliseconds


@pytest.mark.parametrize(("seconds", "header"), [(0.2, "1"), (1.0, "1"), (1.1, "2"), (60.0, "60")])
def test_retry_after_is_whole_seconds(seconds: float, header: str) -> None:
    """Rounded up, so that nobody comes too early."""
    assert Refusal(Cause.BUSY, "later", retry_after_s=seconds).retry_after_header == header


def test_permanent_refusal_says_nothing_of_trying_again() -> None:
    """Neither in the status nor in a header."""
    refused = Refusal(Cause.INVALID, "wrong")
    assert refused.retry_after_header is None
    assert refused.status() == Status(code=3, message="wrong")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errors.InvalidTopic("no"), Cause.INVALID),
        (errors.MessageTooLarge("no"), Cause.INVALID),
        (errors.DiskFull("full", retry_after_s=7.0), Cause.BUSY),
        (errors.StoreFull("full"), Cause.BUSY),
        (errors.QueueFull("full"), Cause.BUSY),
        (errors.LogPoisoned("poisoned"), Cause.UNAVAILABLE),
        (errors.LogLocked("locked"), Cause.UNAVAILABLE),
        (errors.StoreStopped("stopped"), Cause.UNAVAILABLE),
        (errors.Damaged("damaged"), Cause.UNAVAILABLE),
        (errors.ArchiveConflict("another's"), Cause.UNAVAILABLE),
        (errors.InvalidSetting("too small"), Cause.UNAVAILABLE),
    ],
)
def test_error_of_the_store_has_its_cause(error: errors.PenstockError, cause: Cause) -> None:
    """What may pass is retryable; what the client must correct is not."""
    refused = refusal_of(error)
    assert refused.cause is cause
    assert (refused.retry_after_s is not None) == (cause in (Cause.BUSY, Cause.UNAVAILABLE))


def test_store_says_when_to_come_again() -> None:
    """Its own time is passed on."""
    assert refusal_of(errors.DiskFull("full", retry_after_s=7.0)).retry_after_s == 7.0


def test_status_in_json_is_what_the_specification_says() -> None:
    """Code, message and details, with the type of each detail."""
    found = as_json(Refusal(Cause.BUSY, "later", retry_after_s=1.5).status())
    assert json.loads(json.dumps(found)) == {
        "code": 8,
        "message": "later",
        "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1.500s"}],
    }
