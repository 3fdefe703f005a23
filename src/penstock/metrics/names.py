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
| `penstock_store_sealed_segments_total` | counter | topic | segments sealed |
| `penstock_store_sealed_bytes_total` | counter | topic | bytes of segments sealed |
| `penstock_store_seal_seconds` | histogram | | time to write and sync one segment |
| `penstock_store_seal_failures_total` | counter | topic | seals that failed and were tried again |
| `penstock_store_set_aside_total` | counter | topic | messages that could not be decoded |
| `penstock_store_evictions_total` | counter | topic, reason | segments removed |
| `penstock_store_dropped_segments_total` | counter | topic | segments removed before all had them |
| `penstock_store_throttled_total` | counter | topic | times that an append found no room |
| `penstock_store_size_emergencies_total` | counter | topic | looks that found no room left |
| `penstock_store_bytes` | gauge | topic | bytes of log and segments |
| `penstock_store_budget_ratio` | gauge | topic | the same, as a part of what it may use |
| `penstock_store_open_bytes` | gauge | topic | bytes of the open segment, in memory |
| `penstock_store_segments` | gauge | topic | sealed segments on disk |
| `penstock_ack_log_events` | gauge | topic | events that a restart would replay |
| `penstock_ack_log_bytes` | gauge | topic | bytes of ack.log |
| `penstock_subscriber_bundles_total` | counter | topic, subscriber, outcome | bundles answered |
| `penstock_subscriber_in_flight` | gauge | topic, subscriber | bundles handed out |
| `penstock_subscriber_lag_segments` | gauge | topic, subscriber | segments from its mark on |
| `penstock_subscriber_gap_set_size` | gauge | topic, subscriber | bundles settled beyond its mark |
| `penstock_subscriber_oldest_unacked_seconds` | gauge | topic, subscriber | age of the oldest |
| `penstock_pipeline_batches_total` | counter | | batches committed to the lake |
| `penstock_pipeline_segments_total` | counter | | segments in them |
| `penstock_pipeline_rows_total` | counter | | rows written to the lake |
| `penstock_pipeline_files_total` | counter | | files written to the lake |
| `penstock_pipeline_bytes_total` | counter | | bytes of those files |
| `penstock_pipeline_repeated_rows_total` | counter | | rows that the lake had already |
| `penstock_pipeline_far_off_rows_total` | counter | namespace | rows in no file of their day |
| `penstock_pipeline_faults_total` | counter | | segments or bundles that could not be read |
| `penstock_pipeline_batch_seconds` | gauge | | how long the last batch took |
| `penstock_pipeline_lag_seconds` | gauge | | from sealing to commit, of its oldest segment |
| `penstock_pipeline_last_batch_timestamp_seconds` | gauge | | when it was committed |
| `penstock_archive_objects_total` | counter | topic | objects uploaded |
| `penstock_archive_messages_total` | counter | topic | messages in them |
| `penstock_archive_bytes_total` | counter | topic | bytes of them as stored |
| `penstock_archive_failures_total` | counter | topic | uploads that failed and are tried again |
| `penstock_archive_lag_messages` | gauge | topic | messages of the log that are not archived yet |
| `penstock_queue_appends_total` | counter | queue | swaps of the manifest that enqueued batches |
| `penstock_queue_conflicts_total` | counter | queue | swaps for which another came first |
| `penstock_queue_enqueued_batches_total` | counter | queue | batches enqueued |
| `penstock_queue_enqueued_bytes_total` | counter | queue | bytes of those batches as stored |
| `penstock_queue_repeated_uploads_total` | counter | queue | batches stored again, renamed |
| `penstock_queue_failed_batches_total` | counter | queue | batches given up; callers were told |
| `penstock_queue_consumed_batches_total` | counter | queue | batches handed to the consumer |
| `penstock_queue_skipped_batches_total` | counter | queue | unreadable batches skipped on demand |
| `penstock_queue_collected_total` | counter | queue | objects that the garbage collector deleted |
| `penstock_queue_append_seconds` | histogram | | time of one successful append |
| `penstock_queue_length` | gauge | queue | batches enqueued and not dequeued |
| `penstock_queue_waiting_bytes` | gauge | queue | bytes of those batches |
| `penstock_queue_oldest_seconds` | gauge | queue | age of the oldest of them |
| `penstock_child_restarts_total` | counter | child | processes of the server that were replaced |
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

STORE_SEALED_SEGMENTS: Final = "penstock_store_sealed_segments_total"
STORE_SEALED_BYTES: Final = "penstock_store_sealed_bytes_total"
STORE_SEAL_SECONDS: Final = "penstock_store_seal_seconds"
STORE_SEAL_FAILURES: Final = "penstock_store_seal_failures_total"
STORE_SET_ASIDE: Final = "penstock_store_set_aside_total"
STORE_EVICTIONS: Final = "penstock_store_evictions_total"
STORE_DROPPED_SEGMENTS: Final = "penstock_store_dropped_segments_total"
STORE_THROTTLED: Final = "penstock_store_throttled_total"
STORE_SIZE_EMERGENCIES: Final = "penstock_store_size_emergencies_total"
STORE_BYTES: Final = "penstock_store_bytes"
STORE_BUDGET_RATIO: Final = "penstock_store_budget_ratio"
STORE_OPEN_BYTES: Final = "penstock_store_open_bytes"
STORE_SEGMENTS: Final = "penstock_store_segments"
ACK_LOG_EVENTS: Final = "penstock_ack_log_events"
ACK_LOG_BYTES: Final = "penstock_ack_log_bytes"
SUBSCRIBER_BUNDLES: Final = "penstock_subscriber_bundles_total"
SUBSCRIBER_IN_FLIGHT: Final = "penstock_subscriber_in_flight"
SUBSCRIBER_LAG_SEGMENTS: Final = "penstock_subscriber_lag_segments"
SUBSCRIBER_GAP_SET_SIZE: Final = "penstock_subscriber_gap_set_size"
SUBSCRIBER_OLDEST_UNACKED_SECONDS: Final = "penstock_subscriber_oldest_unacked_seconds"

STORE_COUNTERS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    STORE_SEALED_SEGMENTS: ("segments sealed", ()),
    STORE_SEALED_BYTES: ("bytes of segments sealed", ()),
    STORE_SEAL_FAILURES: ("seals that failed and were tried again", ()),
    STORE_SET_ASIDE: ("messages that could not be decoded", ()),
    STORE_EVICTIONS: ("segments removed", ("reason",)),
    STORE_DROPPED_SEGMENTS: ("segments removed before all had them", ()),
    STORE_THROTTLED: ("times that an append found no room", ()),
    STORE_SIZE_EMERGENCIES: ("looks that found no room left", ()),
    SUBSCRIBER_BUNDLES: ("bundles answered", ("subscriber", "outcome")),
}
"""Meaning, and labels beside `topic`."""
STORE_GAUGES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    STORE_BYTES: ("bytes of log and segments", ()),
    STORE_BUDGET_RATIO: ("bytes of log and segments, as a part of what it may use", ()),
    STORE_OPEN_BYTES: ("bytes of the open segment, in memory", ()),
    STORE_SEGMENTS: ("sealed segments on disk", ()),
    ACK_LOG_EVENTS: ("events that a restart would replay", ()),
    ACK_LOG_BYTES: ("bytes of ack.log", ()),
    SUBSCRIBER_IN_FLIGHT: ("bundles handed out", ("subscriber",)),
    SUBSCRIBER_LAG_SEGMENTS: ("segments from its mark on", ("subscriber",)),
    SUBSCRIBER_GAP_SET_SIZE: ("bundles settled beyond its mark", ("subscriber",)),
    SUBSCRIBER_OLDEST_UNACKED_SECONDS: ("age of the oldest bundle it lacks", ("subscriber",)),
}
STORE_HISTOGRAMS: Final[Mapping[str, str]] = {
    STORE_SEAL_SECONDS: "time to write and sync one segment",
}

PIPELINE_BATCHES: Final = "penstock_pipeline_batches_total"
PIPELINE_SEGMENTS: Final = "penstock_pipeline_segments_total"
PIPELINE_ROWS: Final = "penstock_pipeline_rows_total"
PIPELINE_FILES: Final = "penstock_pipeline_files_total"
PIPELINE_BYTES: Final = "penstock_pipeline_bytes_total"
PIPELINE_REPEATED_ROWS: Final = "penstock_pipeline_repeated_rows_total"
PIPELINE_FAR_OFF_ROWS: Final = "penstock_pipeline_far_off_rows_total"
PIPELINE_FAULTS: Final = "penstock_pipeline_faults_total"
PIPELINE_BATCH_SECONDS: Final = "penstock_pipeline_batch_seconds"
PIPELINE_LAG_SECONDS: Final = "penstock_pipeline_lag_seconds"
PIPELINE_LAST_BATCH: Final = "penstock_pipeline_last_batch_timestamp_seconds"

PIPELINE_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    PIPELINE_BATCHES: ("batches committed to the lake", "batches"),
    PIPELINE_SEGMENTS: ("segments in them", "segments"),
    PIPELINE_ROWS: ("rows written to the lake", "rows"),
    PIPELINE_FILES: ("files written to the lake", "files"),
    PIPELINE_BYTES: ("bytes of those files", "bytes"),
    PIPELINE_REPEATED_ROWS: ("rows that the lake had already", "repeated"),
    PIPELINE_FAULTS: ("segments or bundles that could not be read", "faults"),
}
"""What each counts, and what the pipeline's progress file calls it."""
PIPELINE_TENANT_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    PIPELINE_FAR_OFF_ROWS: ("rows in no file of their day, since it is far off", "far_off"),
}
"""The same, of each namespace."""
PIPELINE_GAUGES: Final[Mapping[str, tuple[str, str]]] = {
    PIPELINE_BATCH_SECONDS: ("how long the last batch took", "seconds"),
    PIPELINE_LAG_SECONDS: ("from sealing to commit, of its oldest segment", "lag_s"),
    PIPELINE_LAST_BATCH: ("when it was committed", "at"),
}
"""The same of its last batch."""

ARCHIVE_OBJECTS: Final = "penstock_archive_objects_total"
ARCHIVE_MESSAGES: Final = "penstock_archive_messages_total"
ARCHIVE_BYTES: Final = "penstock_archive_bytes_total"
ARCHIVE_FAILURES: Final = "penstock_archive_failures_total"
ARCHIVE_LAG: Final = "penstock_archive_lag_messages"

ARCHIVE_COUNTERS: Final[Mapping[str, str]] = {
    ARCHIVE_OBJECTS: "objects uploaded",
    ARCHIVE_MESSAGES: "messages in them",
    ARCHIVE_BYTES: "bytes of them as stored",
    ARCHIVE_FAILURES: "uploads that failed and are tried again",
}
ARCHIVE_GAUGES: Final[Mapping[str, str]] = {
    ARCHIVE_LAG: "messages of the log that are not archived yet",
}

QUEUE_APPENDS: Final = "penstock_queue_appends_total"
QUEUE_CONFLICTS: Final = "penstock_queue_conflicts_total"
QUEUE_ENQUEUED_BATCHES: Final = "penstock_queue_enqueued_batches_total"
QUEUE_ENQUEUED_BYTES: Final = "penstock_queue_enqueued_bytes_total"
QUEUE_REPEATED_UPLOADS: Final = "penstock_queue_repeated_uploads_total"
QUEUE_FAILED_BATCHES: Final = "penstock_queue_failed_batches_total"
QUEUE_CONSUMED_BATCHES: Final = "penstock_queue_consumed_batches_total"
QUEUE_SKIPPED_BATCHES: Final = "penstock_queue_skipped_batches_total"
QUEUE_COLLECTED: Final = "penstock_queue_collected_total"
QUEUE_APPEND_SECONDS: Final = "penstock_queue_append_seconds"
QUEUE_LENGTH: Final = "penstock_queue_length"
QUEUE_WAITING_BYTES: Final = "penstock_queue_waiting_bytes"
QUEUE_OLDEST_SECONDS: Final = "penstock_queue_oldest_seconds"

QUEUE_COUNTERS: Final[Mapping[str, str]] = {
    QUEUE_APPENDS: "swaps of the manifest that enqueued batches",
    QUEUE_CONFLICTS: "swaps of the manifest for which another came first",
    QUEUE_ENQUEUED_BATCHES: "batches enqueued",
    QUEUE_ENQUEUED_BYTES: "bytes of those batches as stored",
    QUEUE_REPEATED_UPLOADS: "batches stored again, with a new name",
    QUEUE_FAILED_BATCHES: "batches given up, and their callers told",
    QUEUE_CONSUMED_BATCHES: "batches handed to the consumer",
    QUEUE_SKIPPED_BATCHES: "unreadable batches skipped on demand",
    QUEUE_COLLECTED: "objects that the garbage collector deleted",
}
QUEUE_GAUGES: Final[Mapping[str, str]] = {
    QUEUE_LENGTH: "batches enqueued and not dequeued",
    QUEUE_WAITING_BYTES: "bytes of those batches",
    QUEUE_OLDEST_SECONDS: "age of the oldest of them",
}
QUEUE_HISTOGRAMS: Final[Mapping[str, str]] = {
    QUEUE_APPEND_SECONDS: "time of one successful append",
}

CHILD_RESTARTS: Final = "penstock_child_restarts_total"
SERVER_COUNTERS: Final[Mapping[str, tuple[str, str]]] = {
    CHILD_RESTARTS: ("processes of the server that died or hung, and were replaced", "child"),
}
"""What each counts, and its label."""
