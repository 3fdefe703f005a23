"""Many producers and one follower in an event loop; appends that wait together share a sync."""

import asyncio
import tempfile

from penstock import Log
from penstock.log import Environment
from penstock.metrics import Metrics, names

PRODUCERS, EACH = 100, 20


async def produce(log: Log, producer: int) -> None:
    """Appends one message after the other, each after the one before it is durable."""
    for number in range(EACH):
        append = await log.append_async(f"producer {producer} message {number}".encode())
        await append.durable


async def follow(log: Log) -> int:
    """Reads messages as they become durable, and returns how many there were."""
    async for message in log.read("earliest", follow=True):
        if message.offset + 1 == PRODUCERS * EACH:
            break
    return message.offset + 1


async def main() -> None:
    """Runs them together and says how many commits it took."""
    metrics = Metrics()
    with tempfile.TemporaryDirectory() as folder:
        log = Log.open(folder, name="example", env=Environment(metrics=metrics))
        seen, *_ = await asyncio.gather(follow(log), *(produce(log, n) for n in range(PRODUCERS)))
        await log.close_async()
    print(f"{seen} messages in {metrics.value(names.LOG_COMMITS, 'example')} commits")


if __name__ == "__main__":
    asyncio.run(main())
