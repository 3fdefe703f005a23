"""The benchmark of object storage: the queue, then the archive, each on every store."""

from __future__ import annotations

import harness
from objects_archive import first_message, upload
from objects_queue import backlog, conflicts, latency, throughput

CASES = [throughput, conflicts, backlog, latency, upload, first_message]

if __name__ == "__main__":
    harness.main("objects", CASES)
