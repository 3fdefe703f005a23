"""Producers and consumers as processes of their own, to be killed or stopped.

A producer prints each name once it is durable; a consumer obeys what it reads from stdin.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from penstock.model.errors import PenstockError
from penstock.queue import Consumer, ConsumerSettings, Producer, ProducerSettings
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def start(role: str, url: str, options: dict[str, str], name: str = "") -> subprocess.Popen[str]:
    """A process with this role on the queue at `url`."""
    command = [sys.executable, "-m", "tests.queue.processes", role, url, json.dumps(options), name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, bufsize=1, **pipes)


def produce(url: str, options: dict[str, str], name: str) -> None:
    """Names in threes, until it is killed; those of a call once they are durable."""
    settings = ProducerSettings(flush_interval_s=0.005, tail_bytes=2000)
    with Producer.open(url, settings, options=options) as producer:
        waiting = []
        for number in range(100_000):
            names = [f"{name}-{number}-{part}" for part in "abc"]
            handle = producer.produce([each.encode() for each in names], name.encode())
            waiting.append((handle, names))
            if len(waiting) == 4:  # several batches under way when it dies
                handle, names = waiting.pop(0)
                handle.watcher.wait(PATIENCE_S)
                _say(" ".join(names))


def consume(url: str, options: dict[str, str], _: str) -> None:
    """One line of JSON for each command."""
    settings = ConsumerSettings(gc_interval_s=None, acks_per_dequeue=1)
    consumer = Consumer.open(url, settings, options=options)
    for line in sys.stdin:
        verb, *arguments = line.split()
        try:
            answer = getattr(consumer, verb)(*map(int, arguments))
            entries = None if answer is None else [each.decode() for each in answer.entries]
            _say(json.dumps({"entries": entries}))
        except PenstockError as error:
            _say(json.dumps({"error": type(error).__name__}))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def tell(process: subprocess.Popen[str], command: str) -> dict[str, object]:
    """What a consumer answers."""
    say(process, command)
    return hear(process)


def say(process: subprocess.Popen[str], command: str) -> None:
    """A command whose answer is to be heard later."""
    assert process.stdin is not None
    process.stdin.write(f"{command}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> dict[str, object]:
    """The answer to the oldest command."""
    assert process.stdout is not None
    answer: dict[str, object] = json.loads(process.stdout.readline())
    return answer


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[sys.argv[1]](
        sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
    )
