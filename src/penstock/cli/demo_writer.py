"""The process that `penstock demo` kills: appends for ever, and says what was acknowledged.

For each durable batch it prints the offset behind it, after the fdatasync and not before. Every
message says its own offset, so that a reader can check content against position.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from penstock.log import Log
from penstock.model import LogSettings

PRODUCERS = 64
TEXT = "span checkout/pay duration=12ms status=ok"


def message_for(number: int) -> bytes:
    """A message that is checked by its number."""
    return f"{number:012d} {TEXT} {'.' * (number % 700)}".encode()


async def write(folder: Path, sent_file: Path) -> None:
    """Appends from many producers until it is killed."""
    log = Log.open(folder, LogSettings(rotate_bytes=4 * 1024 * 1024))
    sent = os.open(sent_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def produce() -> None:
        while True:
            append = log.append(message_for(log.next_offset))
            os.write(sent, b".")
            await append.durable
            sys.stdout.write(f"{append.offset}\n")
            sys.stdout.flush()

    await asyncio.gather(*(produce() for _ in range(PRODUCERS)))


def main() -> None:
    """Takes the log's folder and the file that counts what was sent."""
    asyncio.run(write(Path(sys.argv[1]), Path(sys.argv[2])))
