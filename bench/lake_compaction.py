"""TBD."""
from __future__ import annotations
def compaction(run):
    yield from ()
