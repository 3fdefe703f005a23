"""Every error that Penstock raises on purpose.

    PenstockError
    ├── InvalidArgument          the call can never succeed as it is
    │   ├── InvalidTopic
    │   ├── InvalidSetting
    │   ├── InvalidBundle
    │   ├── MessageTooLarge
    │   ├── QueryTooLarge
    │   ├── QueryTooSlow
    │   └── SubscriberUnknown
    ├── Retryable                nothing was stored; the same call may succeed later
    │   ├── QueueFull
    │   ├── DiskFull
    │   ├── StoreFull
    │   └── CommitContended
    ├── LogUnavailable           this log object takes no more messages
    │   ├── LogClosed
    │   ├── LogPoisoned
    │   └── LogLocked
    ├── StoreUnavailable         this store object takes and delivers no more
    │   ├── StoreClosed
    │   └── StoreStopped
    ├── CommitConflict           a table of the lake is not as expected; nothing was committed
    │   ├── Fenced
    │   └── FilesReplaced
    ├── OffsetUnavailable        a reader asked for what is not there
    └── FormatError              bytes on disk are not what they should be
        ├── Damaged
        └── UnsupportedVersion

Operating system errors that are none of these (permission denied, …) pass through unchanged.
"""

from __future__ import annotations


class PenstockError(Exception):
    """The root: catches everything that Penstock raises on purpose."""


class InvalidArgument(PenstockError, ValueError):
    """The call can never succeed as it is; correct it."""


class InvalidTopic(InvalidArgument):
    """A topic name that cannot be stored without ambiguity; choose another."""


class InvalidSetting(InvalidArgument):
    """A setting outside its range, or one that contradicts another."""


class InvalidBundle(InvalidArgument):
    """A bundle that no segment can hold: a slot out of range, two columns of one name, …."""


class SubscriberUnknown(InvalidArgument):
    """No subscriber of that name is registered, or it is not active; register or activate it."""


class MessageTooLarge(InvalidArgument):
    """A message over `LogSettings.max_message_bytes`; split it."""


class QueryTooLarge(InvalidArgument):
    """A query whose answer, or whose work, is more than it may be; ask for less."""


class QueryTooSlow(InvalidArgument):
    """A query that was stopped when its time was over; ask for less, or allow more time."""


class Retryable(PenstockError):
    """Nothing was stored. The same call may succeed after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class QueueFull(Retryable):
    """The bytes waiting for the disk are at their bound and the caller chose not to wait."""


class DiskFull(Retryable):
    """No space left for the message. The log goes on by itself when there is space again."""


class StoreFull(Retryable):
    """The disk budget is used up; it frees itself as subscribers acknowledge."""


class CommitContended(Retryable):
    """Others committed to the table of the lake each time; the same commit may succeed later."""


class LogUnavailable(PenstockError):
    """The log object takes no more messages; `Log.open` a new one."""


class LogClosed(LogUnavailable):
    """The log was closed by its owner."""


class LogPoisoned(LogUnavailable):
    """A write or an fsync failed, so nobody knows what the file holds.

    Messages that were waiting may or may not be in the log. Close it and open it again:
    recovery copies what is readable into a new file.
    """


class LogLocked(LogUnavailable):
    """Another process (`pid`) or another object in this one has the log open for writing."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class StoreUnavailable(PenstockError):
    """The store object takes and delivers nothing more; `Store.open` a new one."""


class StoreClosed(StoreUnavailable):
    """The store was closed by its owner."""


class StoreStopped(StoreUnavailable):
    """Sealing or the acknowledgement log failed for good; nothing acknowledged was lost.

    Close it and open it again: what is not in a segment is replayed from the log.
    """


class CommitConflict(PenstockError):
    """The table of the lake is not as the commit expects it; nothing was committed."""


class Fenced(CommitConflict):
    """Another writer has claimed the table, or has moved its positions; stop, or claim it again."""


class FilesReplaced(CommitConflict):
    """Files that were to be replaced are not in the table any more; plan the work again."""


class OffsetUnavailable(PenstockError):
    """The offset was removed by retention or was not written yet; `earliest` and `end` are."""

    def __init__(self, message: str, *, earliest: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.earliest = earliest
        self.end = end


class FormatError(PenstockError):
    """Bytes on disk are not what they should be; `penstock fsck` says more."""


class Damaged(FormatError):
    """A checksum or a structure is wrong."""


class UnsupportedVersion(FormatError):
    """Written by a newer Penstock; open it with that one."""
