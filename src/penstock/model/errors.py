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
    │   ├── TooManyFiles
    │   ├── StoreFull
    │   ├── CommitContended
    │   ├── DataMoved
    │   ├── QueueUnreachable
    │   └── LeaseHeld
    ├── LogUnavailable           this log object takes no more messages
    │   ├── LogClosed
    │   ├── LogPoisoned
    │   └── LogLocked
    ├── StoreUnavailable         this store object takes and delivers no more
    │   ├── StoreClosed
    │   └── StoreStopped
    ├── ServerUnreachable        a server that should be there does not answer
    ├── ConnectionClosed         this client calls nobody any more
    ├── AnswerIncomplete         rows that should be in an answer cannot be read
    ├── CommitConflict           a table of the lake is not as expected; nothing was committed
    │   ├── Fenced
    │   ├── FilesReplaced
    │   └── ForeignPosition
    ├── NotHonoured              another engine did to a table what cannot be honoured here
    ├── ObjectConflict           an object is not as the call expects it; nothing was written
    │   ├── ObjectExists
    │   ├── ObjectChanged
    │   └── ObjectMissing
    ├── ObjectsUnavailable       the object store did not answer; nobody knows what was written
    ├── MetadataChanged          a key is not as the call expects it; nothing was written
    ├── MetadataUnavailable      the metadata store did not answer; nobody knows what was written
    ├── OutcomeUnknown           entries may be in the queue or not
    ├── QueueClosed              this producer or consumer takes and delivers no more
    ├── ArchiveConflict          the log and its archive do not belong together
    ├── OffsetUnavailable        a reader asked for what is not there
    │   └── ArchiveUnavailable
    └── FormatError              bytes on disk are not what they should be
        ├── Damaged
        ├── UnsupportedVersion
        ├── ManifestLost
        └── BatchUnreadable      one batch of a queue; skip it, or bring it back
            ├── BatchMissing
            └── BatchDamaged

Operating system errors that are none of these (permission denied, …) pass through unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class PenstockError(Exception):
    """The root: catches everything that Penstock raises on purpose."""


class InvalidArgument(PenstockError, ValueError):
    """The call can never succeed as it is; correct it."""


class InvalidTopic(InvalidArgument):
    """A topic name that cannot be stored without ambiguity; choose another."""


class InvalidSetting(InvalidArgument):
    """A setting outside its range, or one that contradicts another.

    `{}` in the text stands for the fields that it speaks of, in this order. Who has read them from
    a file tells their keys instead: that is all that its author knows.
    """

    def __init__(self, text: str, *fields: str) -> None:
        super().__init__(text, *fields)

    def __str__(self) -> str:
        return self.told(str)

    def told(self, names: Callable[[str], str]) -> str:
        """The sentence, with these names for its fields."""
        text, *fields = self.args
        return str(text.format(*map(names, fields)) if fields else text)


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
    """What waits to be stored is at its bound and the caller chose not to wait."""


class DiskFull(Retryable):
    """No space left for the message. The log goes on by itself when there is space again."""


class TooManyFiles(Retryable):
    """No descriptor left for the next file. The log goes on by itself when there is one again."""


class StoreFull(Retryable):
    """The disk budget is used up; it frees itself as subscribers acknowledge."""


class CommitContended(Retryable):
    """Others committed to the table of the lake each time; the same commit may succeed later."""


class DataMoved(Retryable):
    """What a question had planned to read was moved or replaced each time; ask again."""


class QueueUnreachable(Retryable):
    """The object store did not answer in time, or others came first each time.

    The entries are not in the queue and will not be: produce them again.
    """


class LeaseHeld(Retryable):
    """Another owner has the topic (`owner`, `epoch`) and has not been silent for long enough."""

    def __init__(
        self, message: str, *, owner: str = "", epoch: int = 0, retry_after_s: float = 1.0
    ) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.owner = owner
        self.epoch = epoch


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


class ServerUnreachable(PenstockError):
    """A server does not answer; what is in its data directory can be read without it."""


class ConnectionClosed(PenstockError):
    """The client was closed, maybe by another thread; nothing more is sent."""


class AnswerIncomplete(PenstockError):
    """Rows that belong to an answer cannot be read: what the message names. Nothing is answered.

    Bring it back, set it aside (`penstock fsck --repair`), or ask for a partial answer.
    """


class CommitConflict(PenstockError):
    """The table of the lake is not as the commit expects it; nothing was committed."""


class Fenced(CommitConflict):
    """Another writer has claimed the table or moved its positions, or another consumer the queue.

    Stop, or claim it again.
    """


class FilesReplaced(CommitConflict):
    """Files that were to be replaced are not in the table any more; plan the work again."""


class ForeignPosition(CommitConflict):
    """What the lake says of a data directory cannot be true of this one; nothing was changed.

    The lake is further than its log, or has positions of 0.1 that may or may not be its own. Going
    on would pass over what was acknowledged; whoever runs it has to say which directory it is.
    """


class NotHonoured(PenstockError):
    """A table has what Penstock cannot read or keep as another engine left it; nothing was changed.

    The message names the table or the file, and what it has.
    """


class ObjectConflict(PenstockError):
    """An object is not as the call expects it; nothing was written. Look at it, then decide."""


class ObjectExists(ObjectConflict):
    """An object of that key was to be created and is there already; it was left alone."""


class ObjectChanged(ObjectConflict):
    """The object has another version than the one to be replaced, or is gone; read it again."""


class ObjectMissing(ObjectConflict):
    """There is no object of that key."""


class ObjectsUnavailable(PenstockError):
    """The object store did not answer, or refused for now; the same call may succeed later.

    After a write nobody knows whether it was done: read back before doing it again.
    """


class OutcomeUnknown(PenstockError):
    """The object store went silent in the middle of an append: the entries may be in the queue.

    Produce them again only where twice is better than never.
    """


class QueueClosed(PenstockError):
    """The producer or consumer was closed by its owner; open a new one."""


class MetadataChanged(PenstockError):
    """A key has another revision than the call expects; nothing was written. Read it again."""


class MetadataUnavailable(PenstockError):
    """The metadata store did not answer; the same call may succeed later.

    After a write nobody knows whether it was done: read back before doing it again.
    """


class OffsetUnavailable(PenstockError):
    """The offset was removed by retention or was not written yet; `earliest` and `end` are."""

    def __init__(self, message: str, *, earliest: int = 0, end: int = 0) -> None:
        super().__init__(message)
        self.earliest = earliest
        self.end = end


class ArchiveUnavailable(OffsetUnavailable):
    """Offsets `earliest` to before `end` are in the archive, which does not answer; try later."""


class ArchiveConflict(PenstockError):
    """A log holds other messages than its archive for the same offsets; nothing was uploaded.

    Two owners wrote to one topic, or a folder was replaced. Put the log aside; none is deleted.
    """


class FormatError(PenstockError):
    """Bytes on disk are not what they should be; `penstock fsck` says more."""


class Damaged(FormatError):
    """A checksum or a structure is wrong."""


class UnsupportedVersion(FormatError):
    """Written by a newer Penstock; open it with that one."""


class ManifestLost(FormatError):
    """A queue's manifest is gone, or an older one is in its place; bring the newest one back.

    Nothing is started anew in its place: that would forget what was acknowledged.
    """


class BatchUnreadable(FormatError):
    """A batch that the queue's manifest names cannot be read: `sequence`, at `location`.

    Bring the object back and ask again, or `skip(sequence)` to go on without it.
    """

    def __init__(self, message: str, *, sequence: int = 0, location: str = "") -> None:
        super().__init__(message)
        self.sequence = sequence
        self.location = location


class BatchMissing(BatchUnreadable):
    """There is no such object."""


class BatchDamaged(BatchUnreadable):
    """The object is not what was written."""
