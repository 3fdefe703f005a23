"""A process that appends until it is killed, and says what was acknowledged.

    python -m tests.simulation.crash_writer FOLDER [--durability sync] [--seed 0] [--messages N]

Prints `open END_OFFSET`, then `ack OFFSET DIGEST` after each acknowledgement, at last `done` or
`poisoned`; `full` wherever it tries again because the disk was. With `--messages` one thread
appends that many, without it several threads and tasks append for ever.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import threading
import time
from random import Random
from typing import TYPE_CHECKING

from penstock.log import Log
from penstock.model.errors import DiskFull, LogPoisoned
from penstock.model.settings import KIB, Durability, LogSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

DIGEST_BYTES = 8
SIZES = [0, 1, 100, 500, 1000, 3000, 9000]


def settings(durability: Durability) -> LogSettings:
    """Small files and no cache, so that much happens to files."""
    return LogSettings(durability=durability, rotate_bytes=64 * KIB, cache_bytes=0)


def make_message(random: Random) -> bytes:
    """A message that says whether it is whole."""
    body = random.randbytes(random.choice(SIZES))
    return _digest(body) + body


def is_whole(message: bytes) -> bool:
    """Whether it is as it was made."""
    return message[:DIGEST_BYTES] == _digest(message[DIGEST_BYTES:])


def digest_of(message: bytes) -> str:
    """What an `ack` line says of it."""
    return message[:DIGEST_BYTES].hex()


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:DIGEST_BYTES]


def say(*words: object) -> None:
    """One write, which a pipe takes whole or, when the process is dead, not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def acknowledge(offset: int, messages: Sequence[bytes]) -> None:
    """Says what the parent may rely on."""
    for at, message in enumerate(messages, offset):
        say("ack", at, digest_of(message))


def append_in_thread(log: Log, random: Random) -> None:
    """Appends in each of the blocking ways, for ever."""
    while True:
        messages = [make_message(random) for _ in range(random.randint(1, 4))]
        if len(messages) == 1:
            acknowledge(log.append_durable(messages[0]), messages)
        else:
            append = log.append_many(messages)
            append.durable.wait()
            acknowledge(append.offset, messages)


async def append_in_task(log: Log, random: Random) -> None:
    """Appends in the async way, for ever."""
    while True:
        message = make_message(random)
        append = await log.append_async(message)
        await append.durable
        acknowledge(append.offset, [message])


async def append_in_tasks(log: Log, seed: int) -> None:
    """Several tasks on one loop."""
    await asyncio.gather(*(append_in_task(log, Random(seed + task)) for task in range(3)))


def append_for_ever(log: Log, seed: int) -> None:
    """Two threads and a loop."""
    for number in range(2):
        random = Random(seed + 100 + number)
        threading.Thread(target=append_in_thread, args=(log, random), daemon=True).start()
    asyncio.run(append_in_tasks(log, seed))


def append_some(log: Log, seed: int, count: int) -> None:
    """One thread, one message after the other; a full disk is tried again."""
    random = Random(seed)
    for _ in range(count):
        message = make_message(random)
        while True:
            try:
                acknowledge(log.append_durable(message), [message])
                break
            except DiskFull:
                say("full")
                time.sleep(0.001)


def main() -> None:
    """Runs until done, poisoned or killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--durability", type=Durability, default=Durability.SYNC)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--messages", type=int)
    arguments = parser.parse_args()
    log = Log.open(arguments.folder, settings(arguments.durability))
    say("open", log.end_offset)
    if arguments.messages is None:
        append_for_ever(log, arguments.seed)
    try:
        append_some(log, arguments.seed, arguments.messages)
    except LogPoisoned:
        log.close()
        say("poisoned")
    else:
        log.close()
        say("done")


if __name__ == "__main__":
    main()
