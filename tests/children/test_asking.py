"""A child that is asked: its answers, its death, its silence, its size."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.children.asking import Child, ChildDied, ChildSilent, ChildTooLarge
from tests.patience import PATIENCE_S
from tests.server.running import ROOT, is_alive, until

ECHO = "tests.children.echoing"


@pytest.fixture
def child() -> Iterator[Child]:
    """One that does what it is asked."""
    made = Child(ECHO)
    yield made
    made.end()


def test_answer_is_what_was_asked_whatever_its_size(child: Child) -> None:
    """Empty, small and large parts, more than a pipe holds; one question after the other."""
    for parts in ([b""], [b"a", b"", b"b" * 100_000], [b"x" * 5_000_000, b"y"], [b"z"] * 2000):
        found = child.ask([b"echo", *parts], PATIENCE_S)
        assert [bytes(part) for part in found] == parts
    assert child.answered == 4


def test_question_may_have_several_answers(child: Child) -> None:
    """Until there are no more; the next question has its own."""
    found = child.ask_all([b"count", b"1", b"2"], PATIENCE_S)
    assert [bytes(part) for [part] in found] == [b"1", b"2"]
    assert child.ask([b"echo", b"3"], PATIENCE_S) == [b"3"]


def test_child_whose_answers_nobody_takes_is_of_no_more_use(child: Child) -> None:
    """Its next answer would be taken for that of another question."""
    answers = child.ask_all([b"count", b"1", b"2"], PATIENCE_S)
    next(answers)
    answers.close()  # type: ignore[attr-defined]  # it is a generator
    with pytest.raises(ChildDied):
        child.ask([b"echo", b"3"], PATIENCE_S)


def test_what_a_library_prints_is_no_answer(child: Child) -> None:
    """The pipe is for answers alone."""
    assert child.ask([b"print", b"a"], PATIENCE_S) == [b"a"]


def test_child_that_dies_of_a_question_is_known(child: Child) -> None:
    """At once, and each time."""
    for _ in range(2):
        with pytest.raises(ChildDied):
            child.ask([b"die"], PATIENCE_S)
    until(lambda: child.exit_code == 7)


@pytest.mark.parametrize("parts", [[b"hang"], [b"hang", b"x" * 5_000_000]])
def test_child_that_does_not_answer_in_time_is_ended(child: Child, parts: list[bytes]) -> None:
    """Nor does one wait for ever that does not even read."""
    with pytest.raises(ChildSilent):
        child.ask(parts, 0.3)
    until(lambda: child.exit_code is not None)


def test_silence_is_seen_and_hurried(child: Child) -> None:
    """Whoever ends waits no longer than it wants to."""
    failed: list[BaseException] = []

    def ask() -> None:
        try:
            child.ask([b"hang"], 3600)
        except ChildSilent as error:
            failed.append(error)

    asking = threading.Thread(target=ask)
    assert child.silent_s == 0
    asking.start()
    until(lambda: child.silent_s > 0.1)
    child.hurry(0.1)
    asking.join(PATIENCE_S)
    assert failed
    assert child.silent_s == 0


def test_child_that_takes_too_much_memory_is_ended() -> None:
    """Before it takes that of others."""
    child = Child(ECHO, most_memory=200 << 20)
    with pytest.raises(ChildTooLarge):
        child.ask([b"grow"], PATIENCE_S)
    child.end()


def test_answer_over_its_bound_is_not_taken() -> None:
    """Nobody makes room for it."""
    child = Child(ECHO, most_bytes=1000)
    assert child.ask([b"echo", b"x" * 1000], PATIENCE_S)
    with pytest.raises(ChildDied, match="1001"):
        child.ask([b"echo", b"x" * 1001], PATIENCE_S)
    child.end()


def test_end_does_not_wait_for_an_answer(child: Child) -> None:
    """Whoever asked hears of it."""
    ending = threading.Timer(0.3, child.end)
    ending.start()
    with pytest.raises(ChildDied):
        child.ask([b"hang"], 3600)
    ending.join()


_PARENT = """
import sys, threading, time
from penstock.children.asking import Child
child = Child("tests.children.echoing")
child.ask([b"echo", b"1"], 60)
threading.Thread(target=child.ask, args=([b"hang"], 3600), daemon=True).start()
print(child.pid, flush=True)
time.sleep(3600)
"""


def test_child_ends_with_its_parent_whatever_it_is_at() -> None:
    """A parent that is killed leaves nobody behind."""
    command = [sys.executable, "-c", _PARENT]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    until(lambda: not is_alive(child))


def test_child_outlives_the_thread_that_started_it() -> None:
    """Not the thread is its parent: the process is."""
    started: list[Child] = []
    thread = threading.Thread(target=lambda: started.append(Child(ECHO)))
    thread.start()
    thread.join()
    [child] = started
    assert child.ask([b"echo", b"1"], PATIENCE_S) == [b"1"]
    child.end()
