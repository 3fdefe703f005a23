"""One store at a time: opened as the configuration says, archived where it does, and closed.

What cannot be opened leaves nothing behind. A new one takes its part of `retention.size_cap` first;
one whose disk is empty goes on behind its archive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from typing import TYPE_CHECKING, Any, Final

from penstock.log import Environment
from penstock.model.errors import MetadataUnavailable, PenstockError, StoreFull
from penstock.otel.signals import Signal
from penstock.server.capping import LEDGER, capped_settings, stores_cap
from penstock.storage import DataDirectory
from penstock.store import Store
from penstock.store.budget import SizeCap
from penstock.store.outside import LAKE, DeliveredFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from penstock.archive import Archiver, Archiving
    from penstock.metrics import Metrics
    from penstock.model.topics import Topic
    from penstock.server.configuration.config import Config
    from penstock.server.keeping.residents import Key
    from penstock.store.decoding import Decoder
    from penstock.store.outside import Taken

_LOG = logging.getLogger(__name__)
_REMEMBERED_S: Final = 30.0


class Opener:
    """How a worker's stores are opened."""

    def __init__(
        self,
        config: Config,
        decoders: Mapping[Signal, Decoder],
        metrics: Metrics,
        archiver: Archiver | None = None,
    ) -> None:
        """With an `archiver` each store is archived from when it is opened."""
        self.directory = DataDirectory(config.data_dir)
        self.settings = capped_settings(config)
        self.delivered = DeliveredFile(config.data_dir)
        self.archiver = archiver
        self._config = config
        self._decoders = decoders
        self._metrics = metrics
        self._archivings: dict[Store, Archiving] = {}
        self._turned_away: dict[str, float] = {}
        """For which new topics the cap had no room, and when; but those that got in since."""

    async def open(self, key: Key, make_room: Callable[[int], None]) -> Store:
        """A store on an empty disk goes on behind its archive.

        `make_room` is called within a turn of its log that the disk has no room for.
        """
        if self.archiver is None:
            return await asyncio.to_thread(self._open_blocking, *key, make_room=make_room)
        from penstock.archive.sources import PARTY

        partition = self.directory.partition(*key)
        claim = await self.archiver.claim(partition)
        store: Store | None = None
        try:
            store = await asyncio.to_thread(
                self._open_blocking,
                *key,
                make_room=make_room,
                least_offset=claim.end_offset,
                keep_for=[PARTY],
            )
            self._archivings[store] = await self.archiver.attach(partition, store.log, claim)
        except BaseException:
            if store is not None:
                await store.close_async()
            with contextlib.suppress(MetadataUnavailable):  # it runs out by itself
                await claim.lease.release()
            raise
        return store

    async def close(self, store: Store) -> None:
        """Seals and closes it; it is archived no more."""
        archiving = self._archivings.pop(store, None)
        if archiving is not None and self.archiver is not None:
            await self.archiver.detach(archiving)
        await store.close_async()

    def check_owner(self, store: Store) -> None:
        """Fenced where another owner has the topic, or may have. Last before an answer."""
        archiving = self._archivings.get(store)
        if archiving is not None:
            archiving.check()

    def has_stopped(self, store: Store) -> bool:
        """Whether it takes nothing more, and has to be opened again."""
        archiving = self._archivings.get(store)
        fenced = archiving is not None and archiving.failure is not None
        return fenced or store.failure is not None or store.log.failure is not None

    def failures(self) -> list[str]:
        """Why new topics are turned away, or old ones not archived, at present."""
        unarchived = self.archiver.failures() if self.archiver is not None else []
        since = time.monotonic() - _REMEMBERED_S
        if any(when > since for when in self._turned_away.copy().values()):
            return ["retention.size_cap leaves no room for new topics", *unarchived]
        return unarchived

    def _open_blocking(self, topic: Topic, number: int, **more: Any) -> Store:
        name, folder = f"{topic}/{number}", self.directory.partition(topic, number).folder
        cap, is_new = self._cap(name), not folder.is_dir()
        if cap is not None and is_new and not cap.enter():
            self._turned_away[name] = time.monotonic()
            text = f"retention.size_cap leaves no room for the new topic {name}"
            raise StoreFull(text, retry_after_s=5.0)
        try:
            store = self._opened(topic, folder, name, cap, more)
        except (PenstockError, OSError):
            if is_new:
                # Nobody has had the store: no message is in it, and no answer was given for one.
                _remove_new(folder)
            raise
        self.tell(store)  # before its log grows: see `DeliveredFile.tell`
        self._turned_away.pop(name, None)
        return store

    def tell(self, store: Store) -> Taken | None:
        """Acknowledges what the pipeline has of it; how far that is."""
        try:
            delivered = self.delivered.read()
            self.delivered.tell([store])
        except (OSError, PenstockError) as error:
            _LOG.error("%s: what the pipeline has is not acknowledged: %s", store.name, error)
            return None
        return None if delivered is None else delivered.through.get(store.name)

    def _opened(
        self, topic: Topic, folder: Path, name: str, cap: SizeCap | None, more: dict[str, Any]
    ) -> Store:
        signal = signal_of(topic)
        assert signal is not None
        store = Store.open(
            folder,
            self.settings,
            name=name,
            decoder=self._decoders[signal],
            budget=cap,
            env=Environment(metrics=self._metrics),
            registered=_own_subscribers(self._config),
            **more,
        )
        for problem in store.problems:
            _LOG.error("%s: %s", name, problem)
        return store

    def _cap(self, name: str) -> SizeCap | None:
        """Its view of the one cap."""
        cap = stores_cap(self._config)
        if cap is None:
            return None
        borrows = self._config.retention.size_cap_sharing == "fair"
        return SizeCap(self.directory.root / LEDGER, cap, key=name, borrows=borrows)


def _own_subscribers(config: Config) -> tuple[str, ...]:
    """Who takes data from every store, and must miss no segment of it."""
    return (LAKE,) if config.lake.enabled else ()


def _remove_new(folder: Path) -> None:
    """With the folders of its topic and its namespace, where they have nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()
        folder.parent.parent.rmdir()


def signal_of(topic: Topic) -> Signal | None:
    """None for a topic that is not of OTLP."""
    return next((signal for signal in Signal if signal.value == topic.name), None)
