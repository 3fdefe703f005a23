"""What an answer of a remote store means, for each kind of call: the one place that decides it.

The table with what the providers' documents list is in docs/object-storage.md. An error is

- **missing**: there is no such object;
- **exists**, **changed**: the condition does not hold and nothing was written; look, then decide;
- **unavailable**: not now, and after a write nobody knows: read back before doing it again;
- **invalid**: the call can never succeed.

A conflict (409) says that another change of the same object is under way and that nothing was
written. It is no reason to stop: a swap reads again, everything else is tried again.
"""

from __future__ import annotations

import contextlib
import enum
from typing import TYPE_CHECKING

from obstore import exceptions as refused

from penstock.model.errors import (
    InvalidArgument,
    ObjectChanged,
    ObjectExists,
    ObjectMissing,
    ObjectsUnavailable,
    PenstockError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


class Call(enum.Enum):
    """What was asked for."""

    READ = "of one object"
    LIST = "of many"
    WRITE = "without a condition"
    CREATE = "where there is none"
    REPLACE = "if it is still that version"


class Conflicting(ObjectsUnavailable):
    """Another change of the object was under way (409); nothing was written. Try again."""


@contextlib.contextmanager
def translated(key: str, call: Call) -> Iterator[None]:
    """Penstock's errors for those of `obstore`, with the first line of what the server said."""
    try:
        yield
    except (refused.BaseError, OSError) as error:
        raise meaning(error, key, call) from error


def meaning(error: Exception, key: str, call: Call) -> PenstockError:
    """The error of Penstock that says what the caller has to do."""
    said = f"{key}: {str(error).partition(chr(10))[0]}"
    match error:
        case refused.AlreadyExistsError() if call is Call.CREATE:  # 409, 412 or 304
            return ObjectExists(f"{key} exists")
        case refused.AlreadyExistsError() if call is Call.REPLACE:  # 409
            return ObjectChanged(f"{key} is being changed by another")
        case refused.AlreadyExistsError():  # 409 where there was no condition
            return Conflicting(said)
        case refused.PreconditionError() | refused.NotModifiedError() if call is Call.REPLACE:
            return ObjectChanged(f"{key} is not the version that was expected")
        case FileNotFoundError() if call is Call.REPLACE:
            return ObjectChanged(f"{key} is gone")
        case FileNotFoundError() if call is Call.READ:
            return ObjectMissing(f"{key} does not exist")
        case refused.InvalidPathError() | refused.NotSupportedError():
            return InvalidArgument(said)
        case _:  # 401, 403, 404 of a bucket, 408, 429, 5xx, no answer at all
            return ObjectsUnavailable(said)
