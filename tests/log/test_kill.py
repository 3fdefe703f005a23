"""`kill -9` of a real writer, again and again: what it acknowledged is there."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model.errors import LogLocked
from penstock.model.settings import Durability
from tests.simulation.crash_writer import digest_of, is_whole, make_message, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
Acks = dict[int, str]
"""Offset and digest of everything acknowledged."""


@contextlib.contextmanager
def writer(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A process that appends until this context ends, at the latest."""
    command = [sys.executable, "-m", "tests.simulation.crash_writer", str(folder), *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_until_killed(folder: Path, random: Random, durability: Durability) -> Acks:
    """Starts a writer, kills it at some moment, and returns what it acknowledged until then."""
    seed = str(random.randrange(2**32))
    with writer(folder, "--durability", durability.value, "--seed", seed) as process:
        assert process.stdout is not None
        patience = random.choice([0, 1, 3, 30, 100, 300])
        lines = list(itertools.islice(process.stdout, patience))
        time.sleep(random.random() * (0.02 if patience else 0.4))  # 0: dies while it starts
        process.kill()
        rest, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, errors
    lines += rest.splitlines()
    acks = [line.split() for line in lines if line.startswith("ack")]
    return {int(offset): digest for _, offset, digest in acks}


def check(folder: Path, acks: Acks, ended_at: int) -> int:
    """Opens what the dead left, compares it with what they said, and returns where it ends."""
    with Log.open(folder, settings(Durability.SYNC), env=Environment(metrics=Metrics())) as log:
        found = dict(log.read())
        assert {offset: digest_of(found[offset]) for offset in acks} == acks
        assert all(map(is_whole, found.values()))
        assert log.lost == ()
        assert found.keys() == set(range(log.end_offset))
        assert log.end_offset >= ended_at
        assert log.append_durable(make_message(Random(ended_at))) == len(found)
        return log.end_offset


def kill_again_and_again(folder: Path, rounds: int, seed: int) -> int:
    """Kills writers of the same log; returns how many messages were acknowledged."""
    random, acks, ended_at = Random(seed), Acks(), 0
    for _ in range(rounds):
        durability = random.choice([Durability.SYNC, Durability.INTERVAL])
        new = run_until_killed(folder, random, durability)
        assert all(offset >= ended_at for offset in new), "an offset was given out twice"
        acks |= new
        ended_at = check(folder, acks, ended_at)
    return len(acks)


def test_acknowledged_messages_survive_kills(tmp_path: Path) -> None:
    """Each is at its offset, whole; offsets go on; none counts as lost."""
    assert kill_again_and_again(tmp_path, rounds=20, seed=int.from_bytes(os.urandom(4))) > 0


@pytest.mark.soak
def test_acknowledged_messages_survive_many_kills(tmp_path: Path) -> None:
    """The same, several hundred times, in logs of thirty kills each."""
    for number in range(10):
        kill_again_and_again(tmp_path / str(number), rounds=30, seed=number)


def test_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    """LogLocked names the holder; the lock ends with the process that held it."""
    with writer(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("open")
        with pytest.raises(LogLocked) as raised:
            Log.open(tmp_path, env=Environment(metrics=Metrics()))
        assert raised.value.pid == process.pid
        process.kill()
        process.communicate()
        Log.open(tmp_path, env=Environment(metrics=Metrics())).close()
