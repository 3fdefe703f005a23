"""The shop at work: traces with errors and latency tails, and what its services log meanwhile.

Times are nanoseconds from the beginning of a window that ends when the request is sent, ids end
with the mark that `stamps` replaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.load.calls import Call, Kind
from penstock.load.flows import FLOWS
from penstock.load.stamps import ID_MARK, WINDOW_NS

if TYPE_CHECKING:
    from random import Random

    from penstock.load.services import Attributes, Service

MS: Final = 1_000_000
_SPREAD: Final = 0.55
_SLOW: Final = 0.01
"""How often a call takes far longer than usual: a pause, a lock, a lost packet."""
_SLOW_FACTOR: Final = 25.0
_QUEUE_MS: Final = 30.0
"""How long a message waits for its consumer, on average."""
_LONGEST_NS: Final = 3_000 * MS
_AGE_NS: Final = 1_000 * MS
"""The oldest trace of a request has ended so long before it is sent."""
_FLOWS: Final = [flow for flow, _ in FLOWS]
_WEIGHTS: Final = [weight for _, weight in FLOWS]
_TRACE_BYTES: Final = 16 - len(ID_MARK)
_SPAN_BYTES: Final = 8 - len(ID_MARK)


@dataclass(slots=True)
class Span:
    """One operation."""

    call: Call
    trace_id: bytes
    span_id: bytes
    parent: Span | None
    start_ns: int
    end_ns: int
    attributes: Attributes
    failed: bool = False
    thrown: bool = False
    """Whether the failure began here."""

    @property
    def service(self) -> Service:
        """Whose it is."""
        return self.call.service


class Shop:
    """Makes traces; the same ones for the same random numbers."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._taken: set[bytes] = set()

    def spans(self, count: int) -> list[Span]:
        """So many spans: whole traces, of which the last may have fewer calls than it would."""
        self._taken.clear()
        found: list[Span] = []
        while len(found) < count:
            found += self.trace(count - len(found))
        return found

    def trace(self, most: int) -> list[Span]:
        """What one request to the shop causes; its first spans where that is too much."""
        [flow] = self._random.choices(_FLOWS, _WEIGHTS)
        made: list[Span] = []
        self._make(made, flow, None, self._id(_TRACE_BYTES), 0)
        made = made[:most]  # a parent stands before its children, so what is left is a tree
        self._move(made)
        return made

    def _make(
        self, made: list[Span], call: Call, parent: Span | None, trace_id: bytes, start_ns: int
    ) -> Span:
        attributes = {
            key: value(self._random) if callable(value) else value
            for key, value in call.attributes.items()
        }
        thread = self._random.randrange(1, 33)
        attributes |= {"thread.id": thread, "thread.name": f"{call.service.name}-worker-{thread}"}
        if call.kind is Kind.CONSUMER:
            start_ns += int(self._random.expovariate(1 / _QUEUE_MS) * MS)
        span = Span(call, trace_id, self._id(_SPAN_BYTES), parent, start_ns, 0, attributes)
        made.append(span)
        work_ns = self._work_ns(call)
        now_ns = start_ns + work_ns // 3
        span.failed = span.thrown = self._random.random() < call.fails
        for inner in () if span.failed else call.calls:
            child = self._make(made, inner, span, trace_id, now_ns)
            if inner.kind is not Kind.CONSUMER:  # nobody waits for that
                now_ns = child.end_ns
                span.failed = child.failed and not call.tolerant
            if span.failed:
                break
        span.end_ns = now_ns + work_ns - work_ns // 3
        if span.failed:
            attributes |= call.on_error
        return span

    def _work_ns(self, call: Call) -> int:
        factor = self._random.lognormvariate(0, _SPREAD)
        if self._random.random() < _SLOW:
            factor *= _SLOW_FACTOR
        return int(call.work_ms * factor * MS)

    def _move(self, made: list[Span]) -> None:
        """Has the trace end within the last part of the window."""
        took_ns = max(span.end_ns for span in made)
        shrink = min(1.0, _LONGEST_NS / took_ns)
        start_ns = WINDOW_NS - self._random.randrange(_AGE_NS) - int(took_ns * shrink)
        for span in made:
            span.start_ns = start_ns + int(span.start_ns * shrink)
            span.end_ns = start_ns + int(span.end_ns * shrink)

    def _id(self, size: int) -> bytes:
        """Bytes that no other id of the request begins with, and none of a mark's."""
        while True:
            found = self._random.randbytes(size).replace(b"\xff", b"\x7f")
            if found not in self._taken:
                self._taken.add(found)
                return found + ID_MARK
