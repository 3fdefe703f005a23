"""The durable, replayable log of one topic partition."""

from penstock.log.cache import Batch
from penstock.log.commit import Append, Commit
from penstock.log.inventory import LogFile, Lost
from penstock.log.log import Log
from penstock.log.pool import CommitPool
from penstock.log.reader import Message, Reader

__all__ = ["Append", "Batch", "Commit", "CommitPool", "Log", "LogFile", "Lost", "Message", "Reader"]
