"""The durable, replayable log of one topic partition.

In come messages, from any thread or coroutine; out come offsets, a `Commit` that resolves when a
message is durable, and readers from any offset. A durable append, read in six files: `log` (the
door) → `group_commit` (queue and turn) → `commit` (what the caller waits for) → `fileset` (which
file, frames, fdatasync) → `format` (the bytes) → `storage.files` (the system calls). Reading goes
`reader` → `cache`, or `scan` over files; `recovery` opens what a crash left; `follow`, `survey` and
`verify` look from outside. `environment` is what all of it takes from the machine.
"""

from penstock.log.cache import Batch
from penstock.log.commit import Append, Commit
from penstock.log.environment import Environment
from penstock.log.inventory import LogFile, Lost
from penstock.log.log import Log
from penstock.log.pool import CommitPool
from penstock.log.reader import Message, Reader

__all__ = [
    "Append",
    "Batch",
    "Commit",
    "CommitPool",
    "Environment",
    "Log",
    "LogFile",
    "Lost",
    "Message",
    "Reader",
]
