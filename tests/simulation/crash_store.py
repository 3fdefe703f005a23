"""A process that appends to a store and receives from it until it is killed, and says what it did.

    python -m tests.simulation.crash_store FOLDER [--durability sync] [--drop-oldest] [--seed 0]
                                                  [--messages N]

Prints `problem TEXT` for each problem of opening, then `open END_OFFSET`, and from then on

    ack OFFSET DIGEST                 the message is durable
    data OFFSET DIGEST …              what is in a bundle that arrived
    got NAME SEQ INDEX OFFSET COUNT   it arrived, and holds COUNT messages from OFFSET on
    settles NAME SEQ INDEX            it is about to be acked or rejected
    settled NAME SEQ INDEX            that is durable
    stopped WHY                       the store takes or delivers no more
    unclosed WHY                      it did, and could not note its last answers

Without `--messages` it goes on for ever: bundles are acked, rejected, nacked, held and let go. With
`--messages` it appends that many, settles everything, and at last prints
`status NAME ACKED REJECTED DROPPED LOST` for each subscriber and `done`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import os
import threading
import time
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.model.bundle import Bundle
from penstock.model.errors import DiskFull, LogUnavailable, PenstockError, StoreUnavailable
from penstock.model.settings import (
    KIB,
    Durability,
    LogSettings,
    SegmentSettings,
    SizePolicy,
    StoreSettings,
)
from penstock.model.slots import LOG_ATTRS, LOGS, RAW_LOGS
from penstock.store import Store, filling, maintenance
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.log import Commit
    from penstock.store import Delivery

NAMES = ("left", "right")
"""The two subscribers."""
DIGEST_BYTES = 8
SIZES = [0, 1, 100, 500, 1000, 3000, 9000]
DIGESTS_A_LINE = 100
DRAINED_S = PATIENCE_S


def settings(durability: Durability, *, drop_oldest: bool = False) -> StoreSettings:
    """Everything is small, so that much happens to files."""
    return StoreSettings(
        log=LogSettings(
            durability=durability, rotate_bytes=64 * KIB, cache_bytes=0, retention_bytes=0
        ),
        segment=SegmentSettings(target_bytes=64 * KIB, max_open_s=0.02),
        ack_log_bytes=64 * KIB,
        retry_first_s=0.002,
        retry_most_s=0.02,
        budget_bytes=256 * KIB if drop_oldest else None,
        size_policy=SizePolicy.DROP_OLDEST if drop_oldest else SizePolicy.BACKPRESSURE,
    )


# --- what is appended ----------------------------------------------------------------------------


def make_item(random: Random, *, raw: bool, size: int | None = None) -> tuple[Bundle | bytes, str]:
    """Something to append that says whether it is whole, and its digest."""
    body = random.randbytes(random.choice(SIZES) if size is None else size)
    digest = _digest(body)
    item = digest + body if raw else _bundle(digest, body, random)
    return item, digest.hex()


def digests_of(bundle: Bundle) -> Iterator[str]:
    """The digests of the messages in a bundle, verified."""
    if RAW_LOGS in bundle:
        for value in bundle[RAW_LOGS].column("data").to_pylist():
            yield _verified(value[:DIGEST_BYTES], value[DIGEST_BYTES:])
    else:
        row = bundle[LOGS].to_pylist()[0]
        bodies = bundle[LOG_ATTRS].column("part").to_pylist() if LOG_ATTRS in bundle else []
        yield _verified(row["digest"], row["body"] + b"".join(bodies))


def _bundle(digest: bytes, body: bytes, random: Random) -> Bundle:
    """With one slot or two, and columns that come and go."""
    cut = random.choice([0, len(body) // 2, len(body)])
    columns = {"digest": pa.array([digest]), "body": pa.array([body[:cut]])}
    if random.random() < 0.3:
        columns["number"] = pa.array([cut])
    slots = {LOGS: pa.RecordBatch.from_pydict(columns)}
    if cut < len(body):
        middle = (cut + len(body)) // 2
        parts = pa.array([body[cut:middle], body[middle:]])
        slots[LOG_ATTRS] = pa.RecordBatch.from_pydict({"part": parts})
    return Bundle(slots)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:DIGEST_BYTES]


def _verified(digest: bytes, body: bytes) -> str:
    return digest.hex() if digest == _digest(body) else "damaged"


def say(*words: object) -> None:
    """One write: a line is there as a whole, or not at all."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


# --- the two sides of the store ------------------------------------------------------------------


class Work:
    """Threads on one store, until it stops."""

    def __init__(self, store: Store, *, raw: bool) -> None:
        self.store = store
        self.raw = raw
        self.over = threading.Event()
        self.stopped = threading.Event()

    def start(self, task: Callable[[Random], None], random: Random) -> threading.Thread:
        """A thread that ends when the store does."""
        thread = threading.Thread(target=self.run, args=(task, random), daemon=True)
        thread.start()
        return thread

    def run(self, task: Callable[[Random], None], random: Random) -> None:
        """Goes on as the owner of a store would; says why it cannot."""
        while not self.stopped.is_set():
            try:
                task(random)
                return
            except (StoreUnavailable, LogUnavailable) as error:
                self.stopped.set()
                say("stopped", type(error).__name__, str(error).replace("\n", " "))
            except (PenstockError, OSError) as error:
                say("again", type(error).__name__, str(error).replace("\n", " "))
                time.sleep(0.01)

    # --- appending ---

    def append_singly(self, random: Random) -> None:
        """One message after the other."""
        while True:
            item, digest = make_item(random, raw=self.raw and random.random() < 0.5)
            say("ack", self.store.append_durable(item), digest)

    def append_in_bursts(self, random: Random) -> None:
        """Several at a time."""
        while True:
            items = [make_item(random, raw=self.raw) for _ in range(random.randint(1, 9))]
            appends = [(self.store.append(item), digest) for item, digest in items]
            for append, digest in appends:
                append.durable.wait()
                say("ack", append.offset, digest)

    def append_some(self, random: Random, count: int) -> None:
        """A number of messages, each as often as it takes."""
        for _ in range(count):
            item, digest = make_item(random, raw=self.raw and random.random() < 0.5)
            while not self.stopped.is_set():
                with contextlib.suppress(DiskFull):
                    say("ack", self.store.append_durable(item), digest)
                    break
                time.sleep(0.01)

    # --- receiving ---

    def receive(self, name: str, random: Random, *, willing: bool) -> None:
        """Everything there is, answered in every way, or acked if `willing`."""
        held: list[Delivery] = []
        answers: list[tuple[Commit, Delivery]] = []
        subscription = self.store.subscribe(name)
        while not self.over.is_set():
            delivery = subscription.next_bundle(timeout=0.01)
            if delivery is None or len(answers) > random.randrange(30):
                wait_for(name, answers)
                if len(held) > 4:
                    held.clear()  # those come again
            if delivery is None:
                continue
            announce(name, delivery)
            fate = 1.0 if willing else random.random()
            if fate < 0.1:
                delivery.nack(random.choice([None, 0.0, 0.01]))
            elif fate < 0.2:
                held.append(delivery)
                if random.random() < 0.3:
                    delivery = held.pop(0)
                    answers.append((answer(name, delivery, reject=False), delivery))
            elif fate < 0.21:
                subscription.close()
                subscription = self.store.subscribe(name)
            else:
                answers.append((answer(name, delivery, reject=fate < 0.3), delivery))
            if not willing and random.random() < 0.05:
                time.sleep(random.random() * 0.02)
        wait_for(name, answers)


def announce(name: str, delivery: Delivery) -> None:
    """Says what arrived, before anything is done with it."""
    digests = list(digests_of(delivery.bundle))
    first = delivery.first_offset
    for at in range(0, len(digests), DIGESTS_A_LINE):
        say("data", first + at, *digests[at : at + DIGESTS_A_LINE])
    assert len(digests) == delivery.messages
    say("got", name, delivery.segment_seq, delivery.bundle_index, first, delivery.messages)


def answer(name: str, delivery: Delivery, *, reject: bool) -> Commit:
    """Settles a bundle, and says so first."""
    say("settles", name, delivery.segment_seq, delivery.bundle_index)
    return delivery.reject() if reject else delivery.ack()


def wait_for(name: str, answers: list[tuple[Commit, Delivery]]) -> None:
    """Says which answers are durable; a full disk leaves them unsaid."""
    while answers:
        commit, delivery = answers.pop()
        with contextlib.suppress(DiskFull):
            commit.wait()
            say("settled", name, delivery.segment_seq, delivery.bundle_index)


# --- the process ---------------------------------------------------------------------------------


def go_on_for_ever(work: Work, seed: int) -> None:
    """Until it is killed."""
    for number, name in enumerate(NAMES):
        task = lambda random, name=name: work.receive(name, random, willing=False)  # noqa: E731
        work.start(task, Random(seed + number))
    work.start(work.append_singly, Random(seed + 100))
    work.start(work.append_in_bursts, Random(seed + 101)).join()


def append_and_settle(work: Work, seed: int, count: int) -> None:
    """Until everything is settled and gone, or the store has stopped."""
    threads = [
        work.start(lambda random, name=name: work.receive(name, random, willing=True), Random(seed))
        for name in NAMES
    ]
    work.run(lambda random: work.append_some(random, count), Random(seed))
    until = time.monotonic() + DRAINED_S
    work.run(lambda _: work.store.flush(timeout=DRAINED_S), Random(seed))
    while work.store.segments and not work.stopped.is_set() and time.monotonic() < until:
        time.sleep(0.002)
    work.over.set()
    for thread in threads:
        thread.join()


def main() -> None:
    """Runs until done, stopped or killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--durability", type=Durability, default=Durability.SYNC)
    parser.add_argument("--drop-oldest", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--messages", type=int)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    filling.RETRY_S = maintenance.TICK_S = 0.05  # type: ignore[misc] - what failed is due at once
    small = settings(arguments.durability, drop_oldest=arguments.drop_oldest)
    try:
        store = Store.open(arguments.folder, small)
    except (PenstockError, OSError) as error:
        say("stopped", type(error).__name__, str(error).replace("\n", " "))
    else:
        live(store, arguments)
    say("done")


def live(store: Store, arguments: argparse.Namespace) -> None:
    """Uses it and closes it, whatever happens."""
    try:
        use(store, arguments)
    except (PenstockError, OSError) as error:
        say("stopped", type(error).__name__, str(error).replace("\n", " "))
    close(store)


def close(store: Store) -> None:
    """What a full disk keeps from the disk in the last moment, closing tells."""
    try:
        store.close()
    except (PenstockError, OSError) as error:
        say("unclosed", type(error).__name__, str(error).replace("\n", " "))


def use(store: Store, arguments: argparse.Namespace) -> None:
    """Does what the command says."""
    for problem in store.problems:
        say("problem", problem)
    for name in NAMES:
        store.register(name)
    say("open", store.log.end_offset)
    work = Work(store, raw=not arguments.drop_oldest)  # a bundle a message can be counted
    if arguments.messages is None:
        go_on_for_ever(work, arguments.seed)
    else:
        append_and_settle(work, arguments.seed, arguments.messages)
    for each in store.subscribers():
        say("status", each.name, each.acked, each.rejected, each.dropped, each.lost)


if __name__ == "__main__":
    main()
