"""The names of all metrics, and nothing else.

| name | type | labels | meaning |
|---|---|---|---|
| `penstock_log_messages_total` | counter | topic | messages committed |
| `penstock_log_bytes_total` | counter | topic | bytes of frames committed |
| `penstock_log_commits_total` | counter | topic | group commits |
| `penstock_log_commit_seconds` | histogram | | time to write and sync one group commit |
| `penstock_log_rotations_total` | counter | topic | files finished |
| `penstock_log_removed_files_total` | counter | topic | files that retention removed |
| `penstock_log_lost_messages_total` | counter | topic | messages found unreadable by recovery |
| `penstock_log_torn_bytes_total` | counter | topic | bytes of interrupted writes dropped |
| `penstock_log_disk_full_total` | counter | topic | commits refused for want of space |
| `penstock_log_poisoned_total` | counter | topic | logs stopped by a failed write or fsync |
| `penstock_log_checkpoint_failures_total` | counter | topic | checkpoints not written |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG_MESSAGES: Final = "penstock_log_messages_total"
LOG_BYTES: Final = "penstock_log_bytes_total"
LOG_COMMITS: Final = "penstock_log_commits_total"
LOG_COMMIT_SECONDS: Final = "penstock_log_commit_seconds"
LOG_ROTATIONS: Final = "penstock_log_rotations_total"
LOG_REMOVED_FILES: Final = "penstock_log_removed_files_total"
LOG_LOST_MESSAGES: Final = "penstock_log_lost_messages_total"
LOG_TORN_BYTES: Final = "penstock_log_torn_bytes_total"
LOG_DISK_FULL: Final = "penstock_log_disk_full_total"
LOG_POISONED: Final = "penstock_log_poisoned_total"
LOG_CHECKPOINT_FAILURES: Final = "penstock_log_checkpoint_failures_total"

LOG_COUNTERS: Final[Mapping[str, str]] = {
    LOG_MESSAGES: "messages committed",
    LOG_BYTES: "bytes of frames committed",
    LOG_COMMITS: "group commits",
    LOG_ROTATIONS: "files finished",
    LOG_REMOVED_FILES: "files that retention removed",
    LOG_LOST_MESSAGES: "messages found unreadable by recovery",
    LOG_TORN_BYTES: "bytes of interrupted writes dropped by recovery",
    LOG_DISK_FULL: "commits refused for want of space",
    LOG_POISONED: "logs stopped by a failed write or fsync",
    LOG_CHECKPOINT_FAILURES: "checkpoints that could not be written",
}
LOG_HISTOGRAMS: Final[Mapping[str, str]] = {
    LOG_COMMIT_SECONDS: "time to write and sync one group commit",
}
