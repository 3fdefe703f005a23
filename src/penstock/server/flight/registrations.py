"""Which token registered which subscriber: each of them keeps segments, so each token has a bound.

    DATA/registrations.json
        {"registered": {"5e884898da280471": [["/default/traces", 0, "mine"]]}}

The process of the Flight port alone writes it, before a worker is asked to register: what a crash
leaves is counted too often, never too seldom, and put right when a token comes to its bound.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.model.errors import FormatError, PenstockError, StoreFull
from penstock.model.topics import Topic
from penstock.storage import DataDirectory
from penstock.storage.documents import decode_document, encode_document
from penstock.storage.files import LocalFiles, read_whole, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_LOG = logging.getLogger(__name__)
FILE: Final = "registrations.json"
MAY_REGISTER: Final = "may_register"
"""In what a worker is asked: whether an answer may make its subscriber known."""
TOO_MANY: Final = (
    "the token has as many subscribers as limits.subscribers allows; unregister one first"
)
_KIND: Final = "registrations"
_VERSION: Final = 1
_LOOK_AGAIN_S: Final = 10.0
"""Who is at its bound makes us look for those that are gone no more often than this."""
_NEW_S: Final = 60.0
"""One that was entered of late may not be in its store's files yet."""


class Registered(NamedTuple):
    """A subscriber of one partition."""

    topic: str
    partition: int
    subscriber: str


class Registrations:
    """All of them, by the identity of the token. Safe from any thread."""

    def __init__(self, data_dir: Path, most: int) -> None:
        self._directory = DataDirectory(data_dir)
        self._path = data_dir / FILE
        self._most = most
        self._lock = threading.Lock()
        self._owners = _read(self._path)
        self._entered: dict[Registered, float] = {}
        """When, by this process."""
        self._looked = -_LOOK_AGAIN_S

    def enter(self, owner: str, one: Registered) -> bool:
        """Counts it for the token, unless somebody has it; False where there is no room for it.

        Durable when it returns, and before anything is kept for the subscriber.
        """
        with self._lock:
            if one in self._owners:
                return True
            if self._count(owner) >= self._most:
                self._forget_the_gone()
            if self._count(owner) >= self._most:
                return False
            self._write({**self._owners, one: owner})
            self._entered[one] = time.monotonic()
            return True

    def look_again(self, one: Registered) -> None:
        """What it was entered for failed, as far as is known: it counts if its store has it."""
        with self._lock:
            was_new = self._entered.pop(one, None) is not None
        if was_new and not self._is_there(one):
            self.leave(one)

    def leave(self, one: Registered) -> None:
        """It is registered no more."""
        with self._lock:
            if one in self._owners:
                self._write({each: o for each, o in self._owners.items() if each != one})

    def _count(self, owner: str) -> int:
        return sum(each == owner for each in self._owners.values())

    def _forget_the_gone(self) -> None:
        now = time.monotonic()
        if now - self._looked < _LOOK_AGAIN_S:
            return
        self._looked = now
        new = {each for each, at in self._entered.items() if now - at < _NEW_S}
        self._entered = {each: at for each, at in self._entered.items() if each in new}
        there = {e: o for e, o in self._owners.items() if e in new or self._is_there(e)}
        if there != self._owners:
            self._write(there)

    def _is_there(self, one: Registered) -> bool:
        """By the store's own files, open or not; one that nobody can tell is."""
        from penstock.store.verify import is_store, survey_store

        try:
            folder = self._directory.partition(Topic.parse(one.topic), one.partition).folder
            found = survey_store(LocalFiles(), folder) if is_store(LocalFiles(), folder) else None
        except (OSError, PenstockError):
            return True
        if found is None:
            return False
        return bool(found.problems) or found.state.named(one.subscriber) is not None

    def _write(self, owners: dict[Registered, str]) -> None:
        """The file first: what is counted in memory alone would be forgotten by a crash."""
        by_owner: dict[str, list[Any]] = {}
        for each, owner in owners.items():
            by_owner.setdefault(owner, []).append(list(each))
        data = encode_document(_KIND, _VERSION, {"registered": by_owner})
        try:
            write_atomically(LocalFiles(), self._path, data)
        except OSError as error:
            raise StoreFull(f"{FILE} cannot be written: {error}", retry_after_s=5.0) from error
        self._owners = owners


def _read(path: Path) -> dict[Registered, str]:
    """Nothing where there is no file. One that is damaged counts for nobody, and is replaced."""
    try:
        fields = decode_document(_KIND, _VERSION, read_whole(LocalFiles(), path))
        return {
            Registered(str(topic), int(partition), str(name)): str(owner)
            for owner, each in fields["registered"].items()
            for topic, partition, name in each
        }
    except FileNotFoundError:
        return {}
    except (FormatError, ValueError, KeyError, TypeError, AttributeError) as error:
        _LOG.error("%s cannot be read, and is begun anew: %s", path, error)
        return {}
