"""A worker's Arrow Flight service, on a socket in the data directory that its owner may open.

Handlers run in threads of their own; they refer to what a store has and never wait for ingest.
What is asked is described in `client.workers` and `client.subscriber`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pyarrow.flight as pf

from penstock.client.server_file import SOCKETS
from penstock.client.subscriber import DELIVERIES
from penstock.client.workers import END, NOT_OPEN, SCHEMA, socket_name
from penstock.model.errors import (
    InvalidArgument,
    PenstockError,
    Retryable,
    ServerUnreachable,
    SubscriberUnknown,
)
from penstock.model.topics import Topic
from penstock.server.flight.deliveries import ANSWERS, MOST_HELD, Deliveries
from penstock.server.flight.hot_stream import HotStream
from penstock.server.flight.registrations import MAY_REGISTER, TOO_MANY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock.server.keeping.stores import Stores
    from penstock.store import Store

_LOG = logging.getLogger(__name__)
_STOP_S: Final = 3.0
ACTIONS: Final = {
    "register": "Everything is kept for the subscriber from now on",
    "unregister": "The subscriber is forgotten for good",
    "ack": "The subscriber has the bundles",
    "nack": "The bundles are to come again",
    "reject": "The bundles are never to come again",
}


Handler = TypeVar("Handler", bound="Callable[..., Any]")


def told(handler: Handler) -> Handler:
    """What goes wrong is told in a sentence; what nobody thought of is logged, not told."""

    @functools.wraps(handler)
    def answer(*arguments: Any) -> Any:
        try:
            return handler(*arguments)
        except pf.FlightError:
            raise
        except ImportError as error:
            text = f"{error.name} is missing on the server: pip install 'penstock[query]'"
        except PenstockError as error:
            raise told_error(error) from None
        except Exception:  # noqa: BLE001 - a caller is not to see how we are built
            _LOG.exception("a call failed")
            text = "the server failed; its log says how"
        raise pf.FlightServerError(text)

    return cast("Handler", answer)


def told_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for what goes wrong within a stream."""
    try:
        yield from batches
    except PenstockError as error:
        raise told_error(error) from None


def told_error(error: PenstockError) -> pf.FlightError:
    """What may work later says so: a client comes again by itself."""
    later = isinstance(error, Retryable | ServerUnreachable)
    return (pf.FlightUnavailableError if later else pf.FlightServerError)(str(error))


class WorkerFlight(pf.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """Listens from its making to `stop`."""

    def __init__(
        self, data_dir: Path, worker: int, stores: Stores, report: Callable[[], dict[str, Any]]
    ) -> None:
        folder = make_sockets(data_dir)
        self._path = folder / socket_name(worker)
        self._path.unlink(missing_ok=True)
        self._stores = stores
        self._report = report
        self._deliveries = Deliveries()
        self._folder = os.open(folder, os.O_PATH | os.O_DIRECTORY)  # its path may be too long
        super().__init__(f"grpc+unix:///proc/self/fd/{self._folder}/{socket_name(worker)}")

    def stop(self) -> None:
        """Ends streams, and waits a while for the calls that it is answering.

        Not for ever: a client that takes nothing must not keep the stores from being closed.
        """
        self._deliveries.stop()
        ending = threading.Thread(target=self.shutdown, daemon=True)
        ending.start()
        ending.join(_STOP_S)
        self._path.unlink(missing_ok=True)
        os.close(self._folder)

    @told
    def do_get(self, _: Any, ticket: pf.Ticket) -> pf.FlightDataStream:
        """Hot messages, or bundles for a subscriber."""
        asked = question(ticket.ticket)
        if "subscribe" in asked:
            return self._subscribe(asked)
        store = self._find(asked, "hot")
        if store is None:
            return pf.GeneratorStream(SCHEMA.with_metadata({END: str(NOT_OPEN)}), iter(()))
        stream = HotStream(store, number(asked, "from"))
        schema = SCHEMA.with_metadata({END: str(stream.end)})
        return pf.GeneratorStream(schema, told_batches(stream.batches()))

    @told
    def do_action(self, _: Any, action: pf.Action) -> Iterator[bytes]:
        """Of subscribers; and `report`, which is for the owner of the data directory alone."""
        if action.type == "report":
            return iter([json.dumps(self._report()).encode()])
        asked = question(action.body.to_pybytes())
        name = text(asked, "subscriber")
        with self._held(asked, "topic") as store:
            done = self._act(action.type, store, name, asked)
        return iter([json.dumps(done).encode()])

    def _act(self, what: str, store: Store, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        if what == "register":
            return {"registered": store.register(name, asked.get("start", "earliest"))}
        if what == "unregister":
            store.unregister(name)
            return {"registered": False}
        if what not in ANSWERS:
            raise InvalidArgument(f"{what!r} is none of {', '.join(ACTIONS)}")
        if not asked.get(MAY_REGISTER, True) and not store.is_registered(name):
            raise SubscriberUnknown(TOO_MANY)
        return {"answered": self._deliveries.answer(store, name, what, asked)}

    def _subscribe(self, asked: dict[str, Any]) -> pf.FlightDataStream:
        name = text(asked, "subscriber")
        with self._held(asked, "subscribe"):
            pass  # there is such a topic, and it can be opened
        wait_s = None if asked.get("wait_s") is None else number(asked, "wait_s")
        self._deliveries.check()
        most = number(asked, "most") or MOST_HELD

        def batches() -> Iterator[pa.RecordBatch]:
            with self._held(asked, "subscribe") as store:
                yield from self._deliveries.stream(store, name, wait_s, most)

        return pf.GeneratorStream(DELIVERIES, told_batches(batches()))

    @contextlib.contextmanager
    def _held(self, asked: dict[str, Any], key: str) -> Iterator[Store]:
        """The store, opened where it is not, and not closed before the end."""
        with self._stores.held(topic(asked, key), number(asked, "partition")) as store:
            if store is None:
                at = f"{asked[key]}/{number(asked, 'partition')}"
                raise pf.FlightServerError(f"there is no {at} yet, or it is not open at present")
            yield store

    def _find(self, asked: dict[str, Any], key: str) -> Store | None:
        return self._stores.find(topic(asked, key), number(asked, "partition"))


def make_sockets(data_dir: Path) -> Path:
    """The folder of the sockets, which the owner of the data alone may enter."""
    folder = data_dir.absolute() / SOCKETS
    folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    return folder


def question(data: bytes) -> dict[str, Any]:
    """A JSON object; FlightServerError where it is none."""
    try:
        asked = json.loads(data)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise pf.FlightServerError("what was asked is no JSON object")
    return asked


def text(asked: dict[str, Any], key: str) -> str:
    """A text in what was asked; FlightServerError where there is none."""
    value = asked.get(key)
    if not isinstance(value, str):
        raise pf.FlightServerError(f"{key} must be a text")
    return value


def number(asked: dict[str, Any], key: str) -> int:
    """A whole number that is not negative, in what was asked."""
    value = asked.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        raise pf.FlightServerError(f"{key} must be a number that is not negative")
    return int(value)


def topic(asked: dict[str, Any], key: str) -> Topic:
    """A topic in what was asked."""
    try:
        return Topic.parse(text(asked, key))
    except InvalidArgument as error:
        raise pf.FlightServerError(str(error)) from None
