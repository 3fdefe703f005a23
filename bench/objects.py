"""The benchmark of object storage. The queue's cases stand as in the table."""

from __future__ import annotations

import harness
from objects_queue import backlog, conflicts, latency, throughput

CASES = [throughput, conflicts, backlog, latency]

if __name__ == "__main__":
    harness.main("objects", CASES)
