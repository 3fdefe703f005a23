"""Subscribers: who gets what, when it comes again, and what the answers do."""

from __future__ import annotations

import asyncio
import errno
import gc
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.model.errors import InvalidArgument, StoreClosed, SubscriberUnknown
from penstock.storage.files import LocalFiles
from penstock.store import Delivery, Store, Subscription
from tests.simulation.calls import Call
from tests.simulation.faults import FaultyFiles
from tests.simulation.manual_pool import ManualClock
from tests.store.helpers import (
    WAIT_S,
    changed,
    counts,
    drain,
    fill,
    number_of,
    numbers,
    open_store,
    segment_files,
    seqs,
    status,
    take,
    take_all,
    wait_until,
)


@pytest.fixture
def clock() -> ManualClock:
    """Time that passes when the test says so."""
    return ManualClock()


# --- registering ---------------------------------------------------------------------------------


def test_a_new_subscriber_starts_where_it_says(tmp_path: Path) -> None:
    """With the oldest segment, with what is sealed from now on, or with a segment_seq."""
    with open_store(tmp_path) as store:
        fill(store, [0], [1], [2])
        starts: dict[str, Any] = {"a": "earliest", "b": "latest", "c": 1, "d": 0, "e": 99}
        subscriptions = {name: store.subscribe(name, start) for name, start in starts.items()}
        fill(store, [3])
        found = {name: drain(each) for name, each in subscriptions.items()}
        assert found == {"a": [0, 1, 2, 3], "b": [3], "c": [1, 2, 3], "d": [0, 1, 2, 3], "e": [3]}


def test_earliest_is_the_oldest_segment_that_is_there(tmp_path: Path) -> None:
    """Not the first one that ever was."""
    with open_store(tmp_path) as store:
        early = store.subscribe("early")
        fill(store, [0], [1])
        take(early, 1)[0].ack()
        wait_until(lambda: seqs(store) == [1])
        late = store.subscribe("late")
        assert status(store, "late").segment_seq == 1
        assert drain(late) == [1]


@pytest.mark.parametrize("start", ["newest", -1, 1.5, None, True, b"earliest"])
def test_a_start_that_means_nothing_is_refused(tmp_path: Path, start: Any) -> None:
    """And registers nobody."""
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidArgument):
            store.register("s", start)
        assert store.subscribers() == []


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128, None, 7, b"bytes"])
def test_a_name_has_1_to_255_bytes(tmp_path: Path, name: Any) -> None:
    """Anything else is refused."""
    with open_store(tmp_path) as store:
        with pytest.raises(InvalidArgument):
            store.register(name)
        assert store.subscribers() == []


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, "a/b ☃"])
def test_any_other_name_survives_a_restart(tmp_path: Path, name: str) -> None:
    """Names are text, not file names."""
    with open_store(tmp_path) as store:
        assert store.register(name)
    with open_store(tmp_path) as store:
        assert [each.name for each in store.subscribers()] == [name]


def test_a_known_name_is_registered_once_and_goes_on_where_it_was(tmp_path: Path) -> None:
    """`start` is for new ones alone."""
    with open_store(tmp_path) as store:
        assert store.register("s") is True
        assert store.register("s", "latest") is False
        fill(store, [0], [1])
        take(store.subscribe("s"), 1)[0].ack()
        assert drain(store.subscribe("s", "latest")) == [1]
        assert len(store.subscribers()) == 1


def test_a_registration_is_durable_when_it_returns(tmp_path: Path) -> None:
    """In two files, either of which may be lost."""
    with open_store(tmp_path) as store:
        store.register("s")
        for name in ("ack.log", "ack.ckpt"):
            assert b'"name":' in (tmp_path / name).read_bytes().replace(b'"name" :', b'"name":')
            assert b'"s"' in (tmp_path / name).read_bytes()


def test_a_registration_that_fails_registers_nobody(tmp_path: Path) -> None:
    """The call raised, so nothing may be kept for it; a second call may succeed."""
    files = FaultyFiles(LocalFiles())
    with open_store(tmp_path, files=files) as store:
        for operation in ("create", "pwrite"):
            files.fail(operation, errno.ENOSPC, name="ack.log*", times=None)
        with pytest.raises(Exception, match="no space"):
            store.register("s")
        assert store.subscribers() == []
        files.heal()
        assert store.register("s") is True


def test_an_unregistered_subscriber_is_forgotten_and_what_it_lacked_goes(tmp_path: Path) -> None:
    """What was kept for it alone is deleted; others lose nothing; the name is free again."""
    with open_store(tmp_path) as store:
        gone, left = store.subscribe("gone"), store.subscribe("left")
        fill(store, [0], [1])
        take(left, 1)[0].ack()
        (held,) = take(gone, 1)
        store.unregister("gone")
        wait_until(lambda: seqs(store) == [1])
        with pytest.raises(SubscriberUnknown):
            gone.next_bundle(0)
        with pytest.raises(SubscriberUnknown):
            held.ack()
        assert drain(left) == [1]
        fill(store, [2])
        assert drain(store.subscribe("gone")) == [2]


@pytest.mark.parametrize("verb", ["unregister", "activate", "deactivate", "reset"])
def test_a_name_that_nobody_has_is_unknown(tmp_path: Path, verb: str) -> None:
    """Nothing is made up."""
    with open_store(tmp_path) as store:
        with pytest.raises(SubscriberUnknown):
            getattr(store, verb)("nobody")
        assert store.subscribers() == []


def test_a_deactivated_subscriber_gets_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """What it held is taken back; everything is kept, over a restart too."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        held = take(subscription, 1)
        store.deactivate("s")
        assert status(store, "s").in_flight == 0
        with pytest.raises(SubscriberUnknown):
            subscription.next_bundle(0)
        fill(store, [2])
        assert numbers(held) == [0]
    with open_store(tmp_path) as store:
        assert status(store, "s").active is False
        assert seqs(store) == [0, 1]
        store.activate("s")
        store.activate("s")
        assert drain(store.subscribe("s")) == [0, 1, 2]


def test_subscribing_activates(tmp_path: Path) -> None:
    """Who asks for bundles wants them."""
    with open_store(tmp_path) as store:
        store.register("s")
        store.deactivate("s")
        store.deactivate("s")
        fill(store, [0])
        assert drain(store.subscribe("s")) == [0]


def test_what_the_only_subscriber_does_not_want_goes(tmp_path: Path) -> None:
    """It starts behind it: nobody else has to seal or answer anything first."""
    with open_store(tmp_path) as store:
        fill(store, [0], [1])
        store.register("s", "latest")
        wait_until(lambda: segment_files(tmp_path) == [])
        fill(store, [2])
        store.reset("s", "latest")
        wait_until(lambda: segment_files(tmp_path) == [])


def test_a_reset_begins_anew_with_what_is_there(tmp_path: Path) -> None:
    """From the oldest segment, or from where it says; counts begin at zero."""
    with open_store(tmp_path) as store:
        store.register("other")
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        assert drain(subscription) == [0, 1]
        store.reset("s")
        assert counts(store, "s") == {}
        assert drain(store.subscribe("s")) == [0, 1]
        store.reset("s", 1)
        assert drain(store.subscribe("s")) == [1]
        with pytest.raises(SubscriberUnknown):
            subscription.next_bundle(0)


def test_a_reset_that_means_nothing_forgets_nothing(tmp_path: Path) -> None:
    """A wrong start must not cost the subscriber its registration."""
    with open_store(tmp_path) as store:
        store.register("s")
        with pytest.raises(InvalidArgument):
            store.reset("s", "newest")  # type: ignore[arg-type]
        assert [each.name for each in store.subscribers()] == ["s"]


# --- answering -----------------------------------------------------------------------------------


def test_acknowledged_bundles_do_not_come_again(tmp_path: Path) -> None:
    """Neither now nor after a restart; the mark is where the first missing one is."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1, 2], [3, 4])
        deliveries = take(subscription, 5)
        for number in (0, 1, 4):
            deliveries[number].ack()
        found = status(store, "s")
        assert (found.segment_seq, found.bundle_index, found.gap_set_size) == (0, 2, 1)
        assert (found.in_flight, found.lag_bundles) == (2, 2)
    with open_store(tmp_path) as store:
        assert drain(store.subscribe("s")) == [2, 3]


def test_an_answer_is_durable_when_its_commit_says_so(tmp_path: Path) -> None:
    """`wait` and `await` alike."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        first, second = take(subscription, 2)
        first.ack().wait(WAIT_S)

        async def main() -> None:
            await second.ack()

        asyncio.run(main())
        assert counts(store, "s") == {"acked": 2}


def test_a_rejected_bundle_does_not_come_again_and_is_counted_apart(tmp_path: Path) -> None:
    """Its segment may go."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        first, second = take(subscription, 2)
        first.reject().wait(WAIT_S)
        second.ack()
        wait_until(lambda: seqs(store) == [])
        assert counts(store, "s") == {"acked": 1, "rejected": 1}
        assert take_all(subscription) == []


@pytest.mark.parametrize("answer", ["ack", "nack", "reject"])
def test_the_same_answer_twice_is_one_and_another_one_is_refused(
    tmp_path: Path, answer: str
) -> None:
    """The first one stands."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        delivery = take(subscription, 1)[0]
        first = getattr(delivery, answer)()
        assert getattr(delivery, answer)() is first
        for other in {"ack", "nack", "reject"} - {answer}:
            with pytest.raises(InvalidArgument, match=answer):
                getattr(delivery, other)()
        assert counts(store, "s") == {f"{answer}ed": 1}


@pytest.mark.parametrize("pause", [-0.1, float("inf"), float("nan")])
def test_a_nack_with_an_impossible_pause_is_refused(tmp_path: Path, pause: float) -> None:
    """And answers nothing: the bundle can still be acked."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        (delivery,) = take(subscription, 1)
        with pytest.raises(InvalidArgument):
            delivery.nack(pause)
        delivery.ack()
        assert counts(store, "s") == {"acked": 1}


def test_a_nacked_bundle_comes_again_after_its_pause(tmp_path: Path, clock: ManualClock) -> None:
    """Others come meanwhile; `attempt` counts."""
    with open_store(tmp_path, clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        take(subscription, 1)[0].nack(10.0)
        second = take_all(subscription)
        assert numbers(second) == [1]
        clock.advance(9.9)
        assert take_all(subscription) == []
        clock.advance(0.2)
        (again,) = take_all(subscription)
        assert (number_of(again), again.attempt) == (0, 2)
        assert second[0].attempt == 1
        again.nack(0.0)
        (again,) = take_all(subscription)
        assert again.attempt == 3
        assert counts(store, "s") == {"nacked": 2}


def test_pauses_double_with_jitter_up_to_the_longest(tmp_path: Path, clock: ManualClock) -> None:
    """Exactly as the settings and the random numbers say."""
    settings = changed(retry_first_s=1.0, retry_most_s=20.0)
    with open_store(tmp_path, settings, clock=clock, jitter=Random(7)) as store:
        subscription, dice = store.subscribe("s"), Random(7)
        fill(store, [0])
        (delivery,) = take_all(subscription)
        for most in (1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0):
            pause = most * dice.uniform(0.5, 1.0)
            delivery.nack()
            clock.advance(pause - 1e-6)
            assert subscription.next_bundle(0) is None
            clock.advance(2e-6)
            (delivery,) = take_all(subscription)


def test_the_number_of_attempts_survives_a_restart_but_the_pause_does_not(tmp_path: Path) -> None:
    """Clocks of different processes do not compare; the next pause is as long as it would be."""
    clock = ManualClock()
    settings = changed(retry_first_s=1.0)
    with open_store(tmp_path, settings, clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        for _ in range(3):
            take_all(subscription)[0].nack(0.0)
        take_all(subscription)[0].nack(1000.0)
    with open_store(tmp_path, settings, clock=clock, jitter=Random(1)) as store:
        subscription = store.subscribe("s")
        (delivery,) = take_all(subscription)
        assert delivery.attempt == 5
        delivery.nack()
        clock.advance(16.0 * Random(1).uniform(0.5, 1.0) - 1e-6)
        assert take_all(subscription) == []
        clock.advance(2e-6)
        assert len(take_all(subscription)) == 1


def test_an_acknowledged_retry_forgets_its_attempts(tmp_path: Path, clock: ManualClock) -> None:
    """A nack pins a segment only until the bundle is answered."""
    with open_store(tmp_path, clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        take_all(subscription)[0].nack(1.0)
        assert seqs(store) == [0]
        clock.advance(1.0)
        assert drain(subscription) == [0]
        wait_until(lambda: seqs(store) == [])
        assert counts(store, "s") == {"acked": 1, "nacked": 1}


# --- what is held --------------------------------------------------------------------------------


def test_no_more_than_max_in_flight_are_handed_out(tmp_path: Path) -> None:
    """Any answer makes room for one."""
    with open_store(tmp_path, changed(max_in_flight=3)) as store:
        subscription = store.subscribe("s")
        fill(store, range(7))
        held = take_all(subscription)
        assert numbers(held) == [0, 1, 2]
        held[0].ack()
        held[1].nack(1000.0)
        held[2].reject()
        held = take_all(subscription)
        assert numbers(held) == [3, 4, 5]
        assert status(store, "s").in_flight == 3


def test_a_full_hand_waits_and_wakes_with_an_answer(tmp_path: Path) -> None:
    """`next_bundle` waits beyond the bound."""
    with open_store(tmp_path, changed(max_in_flight=1)) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        (held,) = take(subscription, 1)
        waiter = Call(lambda: take(subscription, 1))
        held.ack()
        assert numbers(waiter.end()) == [1]


def test_a_claim_that_was_held_too_long_is_delivered_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Each from its own time on; it counts as no nack."""
    with open_store(tmp_path, changed(claim_s=30.0), clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        held = take(subscription, 1)
        clock.advance(20.0)
        held += take(subscription, 1)
        clock.advance(9.9)
        assert take_all(subscription) == []
        clock.advance(0.2)
        (again,) = take_all(subscription)
        assert (number_of(again), again.attempt) == (0, 1)
        clock.advance(20.0)
        assert numbers(take_all(subscription)) == [1]
        assert counts(store, "s") == {}
        assert numbers(held) == [0, 1]


def test_claims_that_never_expire_stay_with_their_holder(
    tmp_path: Path, clock: ManualClock
) -> None:
    """With `claim_s` None only its end takes a bundle back."""
    with open_store(tmp_path, changed(claim_s=None), clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        held = take(subscription, 1)
        clock.advance(1e9)
        assert take_all(subscription) == []
        del held
        gc.collect()
        wait_until(lambda: numbers(take_all(subscription)) == [0])


def test_expired_claims_make_room_in_a_full_hand(tmp_path: Path, clock: ManualClock) -> None:
    """A holder that hangs must not end its subscriber."""
    settings = changed(claim_s=30.0, max_in_flight=2)
    with open_store(tmp_path, settings, clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1, 2])
        held = take_all(subscription)
        clock.advance(30.0)
        assert numbers(take_all(subscription)) == [0, 1]
        assert len(held) == 2


@pytest.mark.parametrize("redelivered", [False, True])
def test_a_late_ack_of_an_expired_claim_counts_once(
    tmp_path: Path, clock: ManualClock, redelivered: bool
) -> None:
    """The work was done; whoever has the bundle now may answer as well."""
    with open_store(tmp_path, changed(claim_s=30.0), clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        late, _other = take(subscription, 2)
        clock.advance(30.0)
        second = take_all(subscription) if redelivered else []
        late.ack()
        assert numbers(take_all(subscription)) == ([] if redelivered else [1])
        for delivery in second:
            delivery.ack()
        assert counts(store, "s") == {"acked": 2 if redelivered else 1}


def test_a_late_nack_of_an_expired_claim_takes_nothing_from_its_new_holder(
    tmp_path: Path, clock: ManualClock
) -> None:
    """It is not delivered a third time while somebody holds it."""
    with open_store(tmp_path, changed(claim_s=30.0), clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        (late,) = take(subscription, 1)
        clock.advance(30.0)
        (second,) = take_all(subscription)
        late.nack(0.0)
        assert take_all(subscription) == []
        second.ack()
        wait_until(lambda: seqs(store) == [])


def test_a_late_answer_for_a_segment_that_is_gone_counts_nothing(
    tmp_path: Path, clock: ManualClock
) -> None:
    """Counts are exact although an older bundle still holds the mark."""
    with open_store(tmp_path, changed(claim_s=30.0), clock=clock) as store:
        subscription = store.subscribe("s")
        fill(store, [0], [1])
        (stuck, late) = take(subscription, 2)
        clock.advance(30.0)
        second = take_all(subscription)
        second[1].ack()
        wait_until(lambda: seqs(store) == [0])
        late.ack()
        found = status(store, "s")
        assert (found.acked, found.gap_set_size, found.segment_seq) == (1, 0, 0)
        stuck.ack()
        assert counts(store, "s") == {"acked": 2}


def test_a_delivery_that_nobody_holds_any_more_comes_again(tmp_path: Path) -> None:
    """Dropped without an answer, at once."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0])
        delivery: Delivery | None = take(subscription, 1)[0]
        assert take_all(subscription) == []
        assert delivery is not None
        waiter = Call(lambda: take(subscription, 1))
        delivery = None
        gc.collect()
        assert numbers(waiter.end()) == [0]


def test_an_answered_delivery_that_is_dropped_does_not_come_again(tmp_path: Path) -> None:
    """Whatever the answer was."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1, 2])
        for delivery in take(subscription, 3):
            (delivery.ack, delivery.reject, lambda d=delivery: d.nack(1000.0))[
                delivery.bundle_index
            ]()
        del delivery
        gc.collect()
        fill(store, [3])
        assert numbers(take(subscription, 1)) == [3]
        assert take_all(subscription) == []


def test_a_closed_subscription_gives_back_what_it_held_and_no_more(tmp_path: Path) -> None:
    """At once, to whoever shares the work."""
    with open_store(tmp_path) as store:
        other = store.subscribe("s")
        fill(store, [0, 1, 2])
        with store.subscribe("s") as subscription:
            held = take(subscription, 2)
            held[0].ack()
            kept = take(other, 1)
        assert numbers(take_all(other)) == [1]
        assert numbers(kept) == [2]


def test_two_holders_of_one_name_share_the_work(tmp_path: Path) -> None:
    """Each bundle goes to one of them, none to both."""
    with open_store(tmp_path, changed(max_in_flight=8)) as store:
        store.register("s")
        got: list[list[int]] = [[], []]

        def work(number: int) -> None:
            with store.subscribe("s") as subscription:
                while len(got[0]) + len(got[1]) < 200:
                    if (delivery := subscription.next_bundle(0.01)) is not None:
                        got[number].append(number_of(delivery))
                        delivery.ack()

        workers = [Call(lambda n=n: work(n)) for n in range(2)]
        for start in range(0, 200, 20):
            fill(store, range(start, start + 20))
        for worker in workers:
            worker.end()
            assert worker.error is None
        assert sorted(got[0] + got[1]) == list(range(200))
        assert counts(store, "s") == {"acked": 200}


def test_a_bundle_that_could_not_be_read_for_now_is_not_lost_to_its_subscriber(
    tmp_path: Path,
) -> None:
    """The system had no file handles left: the call fails, the next one delivers."""
    files = FaultyFiles(LocalFiles())
    with open_store(tmp_path, changed(claim_s=None), files=files) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1])
        files.fail("map", errno.EMFILE, name="*.seg")
        with pytest.raises(OSError, match="Too many open files"):
            subscription.next_bundle(0)
        assert status(store, "s").in_flight == 0
        assert drain(subscription) == [0, 1]


# --- waiting -------------------------------------------------------------------------------------


def test_next_bundle_does_not_wait_with_0_and_ends_with_its_timeout(tmp_path: Path) -> None:
    """None says that there was nothing."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        assert subscription.next_bundle(0) is None
        assert subscription.next_bundle(0.01) is None
        assert asyncio.run(subscription.next_bundle_async(0)) is None
        assert asyncio.run(subscription.next_bundle_async(0.01)) is None


def forms(subscription: Subscription) -> list[Callable[[], Any]]:
    """`next_bundle` for threads, and for coroutines."""
    return [
        subscription.next_bundle,
        lambda: asyncio.run(subscription.next_bundle_async()),
    ]


@pytest.mark.parametrize("form", [0, 1])
def test_who_waits_wakes_when_a_segment_is_sealed(tmp_path: Path, form: int) -> None:
    """A thread and a task alike."""
    with open_store(tmp_path) as store:
        waiter = Call(forms(store.subscribe("s"))[form])
        fill(store, [7])
        assert number_of(waiter.end()) == 7


@pytest.mark.parametrize("form", [0, 1])
def test_who_waits_wakes_when_a_retry_is_due(tmp_path: Path, form: int) -> None:
    """Nobody else has to do anything."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [7])
        take(subscription, 1)[0].nack(0.02)
        assert number_of(Call(forms(subscription)[form]).end()) == 7


@pytest.mark.parametrize("form", [0, 1])
def test_who_waits_wakes_when_a_claim_expires(tmp_path: Path, form: int) -> None:
    """Also with a full hand."""
    with open_store(tmp_path, changed(claim_s=0.05, max_in_flight=1)) as store:
        subscription = store.subscribe("s")
        fill(store, [7])
        held = take(subscription, 1)
        assert number_of(Call(forms(subscription)[form]).end()) == 7
        assert numbers(held) == [7]


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(
    ("end", "error"),
    [
        (Store.close, StoreClosed),
        (lambda store: store.unregister("s"), SubscriberUnknown),
        (lambda store: store.deactivate("s"), SubscriberUnknown),
    ],
)
def test_who_waits_hears_that_nothing_will_come(
    tmp_path: Path, form: int, end: Callable[[Store], None], error: type[Exception]
) -> None:
    """Closing, unregistering and deactivating end the wait."""
    with open_store(tmp_path) as store:
        waiter = Call(forms(store.subscribe("s"))[form])
        end(store)
        waiter.end()
        assert isinstance(waiter.error, error)


def test_a_subscription_can_be_walked(tmp_path: Path) -> None:
    """With `for` and `async for`, on and on."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1], [2, 3])
        found = []
        for delivery in subscription:
            found.append(number_of(delivery))
            delivery.ack()
            if len(found) == 2:
                break

        async def main() -> None:
            async for delivery in subscription:
                found.append(number_of(delivery))
                await delivery.ack()
                if len(found) == 4:
                    break

        asyncio.run(main())
        assert found == [0, 1, 2, 3]


def test_a_cancelled_wait_has_taken_nothing(tmp_path: Path) -> None:
    """Whoever comes next gets the bundle."""
    with open_store(tmp_path, changed(claim_s=None)) as store:
        subscription = store.subscribe("s")

        async def main() -> None:
            for _ in range(3):
                task = asyncio.create_task(subscription.next_bundle_async())
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            task = asyncio.create_task(subscription.next_bundle_async())
            await asyncio.sleep(0)
            await asyncio.to_thread(fill, store, [0])
            delivery = await asyncio.wait_for(task, WAIT_S)
            assert delivery is not None
            await delivery.ack()

        asyncio.run(main())
        assert status(store, "s").in_flight == 0
        assert counts(store, "s") == {"acked": 1}


@pytest.mark.parametrize("ticks", range(6))
def test_a_cancellation_is_never_swallowed(tmp_path: Path, ticks: int) -> None:
    """Not even when something happened in the same moment."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")

        async def main() -> None:
            task = asyncio.create_task(subscription.next_bundle_async(WAIT_S))
            await asyncio.sleep(0.01)
            store._hub.wake_all()
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task}, timeout=WAIT_S / 2)
            assert task.cancelled()

        asyncio.run(main())


def test_many_tasks_share_one_subscription(tmp_path: Path) -> None:
    """Each bundle wakes somebody; none is delivered twice."""
    with open_store(tmp_path) as store:
        subscription, found = store.subscribe("s"), list[int]()

        async def work() -> None:
            while len(found) < 40:
                if (delivery := await subscription.next_bundle_async(0.01)) is not None:
                    found.append(number_of(delivery))
                    await delivery.ack()

        async def main() -> None:
            tasks = [asyncio.create_task(work()) for _ in range(5)]
            await asyncio.to_thread(fill, store, range(20), range(20, 40))
            await asyncio.gather(*tasks)

        asyncio.run(main())
        assert sorted(found) == list(range(40))


def consume(
    subscription: Subscription, answer: Callable[[Delivery], object] = Delivery.ack
) -> list[int]:
    """Answers each bundle as it comes, until none is due."""
    found = []
    while (delivery := subscription.next_bundle(0)) is not None:
        found.append(number_of(delivery))
        answer(delivery)
    return found


# --- several subscribers -------------------------------------------------------------------------


def test_a_stuck_subscriber_delays_nobody(tmp_path: Path) -> None:
    """It holds as much as it may, never answers, and the other one gets everything."""
    with open_store(tmp_path, changed(max_in_flight=2)) as store:
        stuck, quick = store.subscribe("stuck"), store.subscribe("quick")
        fill(store, range(3))
        held = take_all(stuck)
        for start in range(3, 30, 3):
            fill(store, range(start, start + 3))
        assert consume(quick) == list(range(30))
        assert status(store, "stuck").lag_bundles == 30
        assert len(held) == 2


def test_one_stuck_bundle_keeps_its_own_segment_alone(tmp_path: Path) -> None:
    """Other complete segments are deleted, older and younger ones."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [0, 1], [2, 3], [4, 5], [6, 7])
        for delivery in take(subscription, 8):
            if number_of(delivery) == 3:
                delivery.nack(3600.0)
            else:
                delivery.ack()
        wait_until(lambda: segment_files(tmp_path) == ["00000000000000000001.seg"])
        found = status(store, "s")
        assert (found.segment_seq, found.bundle_index) == (1, 1)


def test_without_subscribers_nothing_is_deleted(tmp_path: Path) -> None:
    """Before the first one comes, and after the last one has gone."""
    with open_store(tmp_path) as store:
        fill(store, [0], [1])
        assert seqs(store) == [0, 1]
        store.subscribe("s")
        store.unregister("s")
        fill(store, [2])
        store._maintenance.ask()
        assert store._maintenance._job._idle.wait(WAIT_S)
        assert seqs(store) == [0, 1, 2]
        assert drain(store.subscribe("t")) == [0, 1, 2]


def test_after_an_outage_everything_is_delivered_and_counted(
    tmp_path: Path, clock: ManualClock
) -> None:
    """One subscriber nacks for a while, over a restart; the other one never notices."""
    settings = changed(max_in_flight=10)
    refused = 0
    for start in (0, 20, 40):
        with open_store(tmp_path, settings, clock=clock) as store:
            down, up = store.subscribe("down"), store.subscribe("up")
            fill(store, range(start, start + 20))
            assert consume(up) == list(range(start, start + 20))
            refused += len(consume(down, lambda delivery: delivery.nack(3600.0)))
            assert len(store.segments) == start // 20 + 1
    with open_store(tmp_path, settings, clock=clock) as store:
        assert sorted(consume(store.subscribe("down"))) == list(range(60))
        wait_until(lambda: seqs(store) == [])
        assert counts(store, "down") == {"acked": 60, "nacked": refused}
        assert counts(store, "up") == {"acked": 60}
        assert refused == 20 + 40 + 60


def test_mixed_answers_are_counted_exactly(tmp_path: Path, clock: ManualClock) -> None:
    """Acks, nacks, rejects and silence, by dice, until every bundle has an answer for good."""
    dice, answers = Random(11), Counter[str]()
    with open_store(tmp_path, changed(max_in_flight=7, claim_s=60.0), clock=clock) as store:
        subscription, final = store.subscribe("s"), dict[int, str]()
        for start in range(0, 100, 10):
            fill(store, range(start, start + 10))
        held = []
        while len(final) < 100:
            delivery = subscription.next_bundle(0)
            if delivery is None:
                clock.advance(70.0)
                continue
            answer = dice.choice(["ack", "nack", "reject", "silence"])
            if answer == "silence":
                held.append(delivery)
                continue
            assert number_of(delivery) not in final
            getattr(delivery, answer)()
            answers[answer] += 1
            if answer != "nack":
                final[number_of(delivery)] = answer
        expected = {f"{answer}ed": number for answer, number in answers.items()}
        assert counts(store, "s") == expected
        assert answers["ack"] + answers["reject"] == 100
        wait_until(lambda: seqs(store) == [])


def test_subscribers_come_and_go_while_data_flow(tmp_path: Path) -> None:
    """The one that stays gets everything once; each visitor everything from its start on."""
    with open_store(tmp_path) as store:
        steady, found = store.subscribe("steady"), list[int]()
        stop = threading.Event()

        def consume() -> None:
            while len(found) < 300:
                delivery = steady.next_bundle(WAIT_S)
                assert delivery is not None
                found.append(number_of(delivery))
                delivery.ack()

        def visit(name: str) -> None:
            while not stop.is_set():
                visitor = store.subscribe(name, "latest")
                got = []
                while len(got) < 5 and not stop.is_set():
                    if (delivery := visitor.next_bundle(0.02)) is not None:
                        got.append(number_of(delivery))
                        delivery.ack()
                assert got == list(range(got[0], got[0] + len(got))) if got else True
                store.unregister(name)

        threads = [Call(consume), Call(lambda: visit("a")), Call(lambda: visit("b"))]
        for start in range(0, 300, 10):
            fill(store, range(start, start + 10))
        threads[0].end()
        stop.set()
        for thread in threads:
            thread.end()
            assert thread.error is None
        assert found == list(range(300))
        wait_until(lambda: seqs(store) == [])
        assert counts(store, "steady") == {"acked": 300}
        assert [each.name for each in store.subscribers()] == ["steady"]


def test_a_bundle_stays_readable_when_its_segment_is_deleted(tmp_path: Path) -> None:
    """Memory of the file outlives its name."""
    with open_store(tmp_path) as store:
        subscription = store.subscribe("s")
        fill(store, [5])
        (delivery,) = take(subscription, 1)
        delivery.ack()
        wait_until(lambda: segment_files(tmp_path) == [])
        assert number_of(delivery) == 5
