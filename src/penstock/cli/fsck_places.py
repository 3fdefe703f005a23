"""What `penstock fsck` finds at a path or a URL: places, to be verified and repaired each."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from penstock.cli.common import installed, size_of
from penstock.cli.files import explain, kind_of
from penstock.cli.object_stores import open_descriptors, open_store
from penstock.log.inventory import SUFFIX
from penstock.log.survey import survey_log
from penstock.log.verify import repair_log, verify_file, verify_log
from penstock.model import SystemClock
from penstock.model.damage import Damage, DamageReport
from penstock.model.errors import FormatError, LogLocked, PenstockError
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.archive import Catalog
    from penstock.model import Topic
    from penstock.queue import QueueSettings
    from penstock.storage.metadata import Metadata
    from penstock.storage.objects import ObjectInfo, ObjectStore

    Progress: TypeAlias = "Callable[[int], object]"

_CATALOG: Final = "catalog.db"
_OF_RECORDS: Final = (
    *("*", "pipeline/*", "pipeline/repeats/*/*", "lake/*/seen/*", "topics/*/*/*/*"),
    "topics/*/*/*",  # 0.1 had a table of requests in the folder of each topic
)
"""Where a data directory has small files."""
_UNREPAIRED_ARCHIVE: Final = "only objects that no descriptor describes can be brought back"
_UNREPAIRED_LAKE: Final = "a table has one copy of its files, so there is nothing to repair it from"
_UNREPAIRED_QUEUE: Final = (
    "a queue has one copy of everything, so there is nothing to repair it from"
)


@dataclass(frozen=True)
class Place:
    """Something to verify, and to repair where that can be done."""

    verify: Callable[[Progress], DamageReport]
    bytes: int = 0
    """About what verifying reads, for the bar alone."""
    repair: Callable[[DamageReport], Iterable[str]] = lambda _: ()
    """Given what is wrong with it; says what was left alone."""
    unrepaired: str | None = None
    """Why it is damaged still, afterwards."""


# --- local folders and files -------------------------------------------------------------------


def is_local(path: Path) -> bool:
    """Whether it is a file, or a folder with something that is kept on a disk."""
    if path.is_file() or (path / IDENTITY).exists() or _lake_folders(path):
        return True
    return bool(_log_folders(path) or _store_folders(path))


def local_places(path: Path) -> list[Place]:
    """Of a data directory, a folder in one, a warehouse, or one file."""
    if path.is_file():
        return [Place(verify, repair=_refuse) for verify in _of_file(path)]
    files, clock, places = LocalFiles(), SystemClock(), list[Place]()
    for folder in _log_folders(path):
        released = functools.partial(_sealed_through, folder.parent)
        verify = functools.partial(verify_log, files, folder, released=released)
        mend = functools.partial(repair_log, files, folder, clock)
        places.append(Place(verify, survey_log(files, folder).bytes, _after(mend)))
    places += [_store(folder) for folder in _store_folders(path)]
    places += [_lake(folder) for folder in _lake_folders(path)]
    if (path / IDENTITY).exists():
        places.append(Place(lambda _: _verify_identity(path)))
        places.append(_records(path))
    return places


def _of_file(path: Path) -> Iterator[Callable[[Progress], DamageReport]]:
    if path.suffix == SUFFIX:
        yield lambda _: verify_file(LocalFiles(), path)
    elif path.suffix == ".seg" or path.name in {"ack.log", "ack.ckpt"}:
        from penstock.store.verify import verify_store_file

        yield lambda _: verify_store_file(LocalFiles(), path)
    elif path.suffix == ".parquet":
        with installed("query"):
            from penstock.lake.verify import verify_parquet

        yield lambda progress: verify_parquet(path, progress)
    elif kind_of(path).is_record:
        yield lambda _: _verify_records(path, [path])


def _store(folder: Path) -> Place:
    from penstock.store.repair import repair_store
    from penstock.store.verify import verify_store

    mend = functools.partial(repair_store, LocalFiles(), folder, SystemClock())
    verify = functools.partial(verify_store, LocalFiles(), folder)
    return Place(verify, size_of((folder / "segments").glob("*.seg")), _after(mend))


def _lake(folder: Path) -> Place:
    with installed("query"):
        from penstock.lake.verify import lake_bytes, verify_lake
    verify = functools.partial(verify_lake, folder)
    return Place(verify, lake_bytes(folder), unrepaired=_UNREPAIRED_LAKE)


def _records(data: Path) -> Place:
    """The small files of a data directory."""

    def mend(report: DamageReport) -> Iterable[str]:
        _set_aside(data, [Path(damage.file) for damage in report.damage])
        return ()

    return Place(lambda _: _verify_records(data, _records_of(data)), repair=mend)


def _records_of(data: Path) -> Iterator[Path]:
    for place in _OF_RECORDS:
        for path in sorted(data.glob(place)):
            if ".damaged" not in path.name and kind_of(path).is_record and path.is_file():
                yield path


def _set_aside(data: Path, records: Iterable[Path]) -> None:
    """Renames them to FILE.damaged: whoever relies on one does without it, and makes it anew.

    PenstockError where a server or a pipeline runs, which may be about to replace them.
    """
    with contextlib.ExitStack() as held:
        for folder in filter(Path.is_dir, (data, data / "pipeline")):
            try:
                held.callback(LocalFiles().lock(folder / ".lock").release)
            except LogLocked as error:
                raise PenstockError(
                    f"repairing needs servers and pipelines stopped: {error}"
                ) from None
        for path in records:
            # Nobody writes now, so this is the damaged one and not its successor.
            LocalFiles().rename(path, path.with_name(f"{path.name}.damaged"))
            LocalFiles().sync_folder(path.parent)


def _verify_records(path: Path, records: Iterable[Path]) -> DamageReport:
    report = DamageReport(str(path))
    for record in records:
        try:
            described = explain(record)
        except FileNotFoundError:  # its owner was faster
            continue
        except FormatError as error:
            text = str(error).removeprefix(f"{record}: ")
            report.damage.append(Damage(str(record), 0, "record", text))
            report.files_checked += 1
        else:
            report.read(described["bytes"])
        report.records += 1
    return report


def _verify_identity(path: Path) -> DamageReport:
    report = DamageReport(str(path))
    try:
        DataDirectory(path).identity()
    except PenstockError as error:
        report.damage.append(Damage(IDENTITY, 0, "identity", str(error)))
    return report


def _refuse(_: DamageReport) -> Iterable[str]:
    raise PenstockError("repair works on a folder or a data directory, not on one file")


def _after(mend: Callable[[], object]) -> Callable[[DamageReport], Iterable[str]]:
    """A repair that looks for itself what is wrong."""

    def repair(_: DamageReport) -> Iterable[str]:
        mend()
        return ()

    return repair


def _sealed_through(folder: Path) -> int | None:
    """Below which offset the store of a log has sealed everything; None where it does not say."""
    from penstock.store.holes import sealed_through

    return sealed_through(LocalFiles(), folder)


def _lake_folders(path: Path) -> list[Path]:
    """The warehouse at `path`, or that of the data directory at `path`."""
    candidates = [path, path / "lake"] if (path / IDENTITY).exists() else [path]
    return [folder.absolute() for folder in candidates if (folder / _CATALOG).is_file()]


def _log_folders(path: Path) -> list[Path]:
    """Every folder at or below `path` that holds log files or a log's checkpoint."""
    return _folders(
        path, lambda _, names: any(name.endswith(SUFFIX) or name == "log.ckpt" for name in names)
    )


def _store_folders(path: Path) -> list[Path]:
    """Every folder at or below `path` that holds a store; that of its segments stands for it."""
    is_inside = path.name == "segments" and any(path.glob("*.seg"))
    return [path.parent] if is_inside else _folders(path, _is_store)


def _is_store(folder: Path, names: list[str]) -> bool:
    return not {"ack.log", "ack.ckpt"}.isdisjoint(names) or any((folder / "segments").glob("*.seg"))


def _folders(path: Path, wanted: Callable[[Path, list[str]], bool]) -> list[Path]:
    found: dict[Path, Path] = {}  # by where it really is: links may lead in circles
    for folder, folders, names in os.walk(path, onerror=_raise, followlinks=True):
        here = Path(folder)
        if here.resolve() in found:
            folders.clear()
            continue
        found[here.resolve()] = here if wanted(here, names) else Path()
    return sorted(here for here in found.values() if here != Path())


def _raise(error: OSError) -> None:
    raise error


# --- object storage ----------------------------------------------------------------------------


@dataclass(frozen=True)
class ObjectPlace:
    """Where objects are, and how their keys begin."""

    url: str
    metadata_url: str | None
    root: str
    queue: QueueSettings


@contextlib.contextmanager
def object_places(where: ObjectPlace, *, repair: bool) -> Iterator[Callable[[], list[Place]]]:
    """Looks, at each call, for the partitions of an archive and for a queue."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        objects = open_store(where.url)
        stack.callback(lambda: runner.run(objects.close()))
        metadata = None
        if where.metadata_url is not None:
            # Only a repair may make a store of descriptors where there is none.
            metadata = open_descriptors(where.metadata_url, create=repair)
            stack.callback(lambda: runner.run(metadata.close()))
        yield _Objects(runner, where, objects, metadata).places


class _Objects:
    def __init__(
        self,
        runner: asyncio.Runner,
        where: ObjectPlace,
        objects: ObjectStore,
        metadata: Metadata | None,
    ) -> None:
        self._run = runner.run
        self._where = where
        self._objects = objects
        self._metadata = metadata

    def places(self) -> list[Place]:
        from penstock.archive.objects import archive_objects

        stored = self._run(archive_objects(self._objects, self._where.root))
        if self._metadata is not None:
            return [*self._archives(self._metadata, stored), self._queue()]
        if stored:
            raise click.UsageError("there is an archive: --metadata says where its descriptors are")
        return [self._queue()]

    def _archives(
        self, metadata: Metadata, stored: dict[tuple[Topic, int], list[ObjectInfo]]
    ) -> Iterator[Place]:
        """Every partition that either of its stores knows."""
        from penstock.archive import Catalog, archived_partitions, verify_archive
        from penstock.archive.rebuild import rebuild_archive
        from penstock.archive.verify import LOST_METADATA

        for place in self._run(archived_partitions(metadata, self._where.root)):
            stored.setdefault(place, [])
        for place, infos in sorted(stored.items()):
            catalog = Catalog(self._objects, metadata, *place, root=self._where.root)

            def verify(progress: Progress, catalog: Catalog = catalog) -> DamageReport:
                return self._run(verify_archive(catalog, progress, self._where.url))

            def repair(report: DamageReport, catalog: Catalog = catalog) -> Iterable[str]:
                if not any(damage.kind == LOST_METADATA for damage in report.damage):
                    return ()
                return map(catalog.object_key, self._run(rebuild_archive(catalog, "fsck"))[1])

            yield Place(verify, sum(one.size for one in infos), repair, _UNREPAIRED_ARCHIVE)

    def _queue(self) -> Place:
        from penstock.queue.verify import queue_bytes, verify_queue

        here = self._objects, self._where.queue

        def verify(progress: Progress) -> DamageReport:
            return self._run(verify_queue(*here, progress=progress, url=self._where.url))

        return Place(verify, self._run(queue_bytes(*here)), unrepaired=_UNREPAIRED_QUEUE)
