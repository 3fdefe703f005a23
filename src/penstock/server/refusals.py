"""Why a request is not stored, in the words of gRPC and of HTTP. Nothing of it was stored."""

from __future__ import annotations

import enum
import logging
import math
from typing import TYPE_CHECKING, Any, Final

from penstock.model.errors import (
    InvalidArgument,
    InvalidSetting,
    PenstockError,
    Retryable,
    TooManyFiles,
)

if TYPE_CHECKING:
    from google.rpc.status_pb2 import Status


_LOG = logging.getLogger(__name__)
MESSAGE_CHARACTERS: Final = 1000
"""Longer texts do not fit into what gRPC clients take as trailers."""


class Cause(enum.Enum):
    """(gRPC code, HTTP status). The numbers of gRPC are those of google.rpc.Code."""

    INVALID = (3, 400)
    """The client must not send it again as it is."""
    TOO_LARGE = (3, 413)
    UNAUTHENTICATED = (16, 401)
    FORBIDDEN = (7, 403)
    NOT_FOUND = (12, 404)
    WRONG_METHOD = (12, 405)
    TOO_SLOW = (4, 408)
    NO_LENGTH = (3, 411)
    """A body may come, and nobody could tell whether all of it came."""
    UNSUPPORTED = (12, 415)
    MISDIRECTED = (7, 421)
    """It came by a name that is not the server's."""
    OVER_LIMIT = (3, 422)
    """Well formed, and more than it may ask for."""
    BUSY = (8, 429)
    """The client is to send it again, after a while."""
    UNAVAILABLE = (14, 503)
    """The same, for reasons that are the server's."""
    FAILED = (13, 500)
    NOT_INSTALLED = (12, 501)
    """A part that the server was installed without."""

    @property
    def grpc_code(self) -> int:
        """What a gRPC client sees."""
        return self.value[0]

    @property
    def http_status(self) -> int:
        """What an HTTP client sees."""
        return self.value[1]


class Refusal(Exception):
    """Raised wherever a request cannot go on."""

    def __init__(self, cause: Cause, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.retry_after_s = retry_after_s

    @property
    def retry_after_header(self) -> str | None:
        """Whole seconds, as HTTP wants them."""
        return None if self.retry_after_s is None else str(max(1, math.ceil(self.retry_after_s)))

    def status(self) -> Status:
        """`google.rpc.Status`, with RetryInfo where trying again may help."""
        from google.protobuf.duration_pb2 import Duration
        from google.rpc.error_details_pb2 import RetryInfo
        from google.rpc.status_pb2 import Status

        text = self.message[:MESSAGE_CHARACTERS]
        status = Status(code=self.cause.grpc_code, message=text)
        if self.retry_after_s is not None:
            delay = Duration()
            delay.FromMilliseconds(max(1, int(self.retry_after_s * 1000)))
            status.details.add().Pack(RetryInfo(retry_delay=delay))
        return status


def refusal_of(error: PenstockError) -> Refusal:
    """What a client is told of an error of the store.

    Only what is wrong with the request itself is for good. Another server has the topic, what the
    store needs is away, a file is damaged: all that may be mended, and exporters throw away what
    is answered otherwise.
    """
    if isinstance(error, InvalidArgument) and not isinstance(error, InvalidSetting):
        return Refusal(Cause.INVALID, str(error))
    # Another worker, or another server, may have descriptors.
    if isinstance(error, Retryable) and not isinstance(error, TooManyFiles):
        return Refusal(Cause.BUSY, str(error), retry_after_s=error.retry_after_s)
    return unavailable(error)


def unavailable(error: Exception) -> Refusal:
    """It is not the request's fault: the client is to send it again."""
    return Refusal(Cause.UNAVAILABLE, str(error), retry_after_s=5.0)


def refusal_for(error: Exception) -> Refusal:
    """What a client is told, within an `except`. What nobody thought of is logged, not told."""
    if isinstance(error, Refusal):
        # The caller keeps it, it the frames, and these the request: not until a collection.
        error.__traceback__ = error.__cause__ = error.__context__ = None
        return error
    _LOG.error("a request failed", exc_info=error)
    # No more files or memory, a failing disk: another worker may do better.
    if isinstance(error, OSError | MemoryError):
        return Refusal(Cause.UNAVAILABLE, "the server cannot at present", retry_after_s=5.0)
    return Refusal(Cause.FAILED, "the server failed; its log says how")


def as_json(status: Status) -> dict[str, Any]:
    """The status for a client that speaks JSON."""
    from google.protobuf.json_format import MessageToDict

    found: dict[str, Any] = MessageToDict(status)
    return found
