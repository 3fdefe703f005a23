"""The archive on each store: uploading against a bare multipart upload, and how soon it reads."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
import uuid
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TYPE_CHECKING

import harness
from harness import Row, Run
from objects_stores import Place, places
from penstock.archive import ArchiveReader, Catalog, SealedFiles, Uploader
from penstock.log import Environment, Log
from penstock.metrics import Metrics
from penstock.model import Durability, LogSettings, Topic
from penstock.storage import LocalFiles
from penstock.storage.metadata import Leases, open_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.storage.objects import ObjectStore

MIB = 2**20
MESSAGE_BYTES = 16 * 1024
PIECE_BYTES = MIB
TOPIC = Topic("default", "traces")
LOG = LogSettings(durability=Durability.BUFFER, rotate_bytes=64 * MIB, retention_bytes=0)
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class Written:
    """A log whose files are finished."""

    folder: Path
    messages: int

    @property
    def files(self) -> list[Path]:
        """Oldest first."""
        return sorted((self.folder / "log").glob("*.wal"))


def upload(run: Run) -> Iterator[Row]:
    """A log of 16 KiB messages; the bare upload takes the same files as they are."""
    with run.folder() as folder, places(run) as found, harness.event_loop() as runner:
        log = _written(folder, (96 if run.quick else 512) * MIB)
        for place in found:
            figures = run.medians(
                {
                    "archive": lambda p=place: runner.run(_upload_mb_s(p, log)),
                    "multipart": lambda p=place: runner.run(_multipart_mb_s(p, log)),
                }
            )
            # Memory and a folder know no multipart: there the ratio is the price of verifying.
            target = 0.8 if place.name == "S3" else None
            baseline = ("bare multipart upload", figures["multipart"])
            name = f"{place.name}, archive upload"
            yield Row(name, figures["archive"], "MB/s", *baseline, target=target)


def first_message(run: Run) -> Iterator[Row]:
    """From offsets anywhere in the archive, each with a new reader; against one ranged read."""
    with run.folder() as folder, places(run) as found, harness.event_loop() as runner:
        sizes = {"memory": 96 * MIB, "local": 10_240 * MIB, "S3": 1024 * MIB}
        count = 30 if run.quick else 200
        for place in found:
            size = 96 * MIB if run.quick else sizes[place.name]
            size = min(size, shutil.disk_usage(folder).free // 4)
            log = _written(folder / place.name, size)
            figures, bare = runner.run(_first_messages(place, log, count))
            where = f"{place.name}, first message in {size / 1e9:.1f} GB"
            for share in (50, 99):
                cut = quantiles(figures, n=100)[share - 1] * 1e3
                against = ("one ranged read, median", median(bare) * 1e3) if share == 50 else ()
                yield Row(f"{where}, p{share}", cut, "ms", *against, better="lower")


# --- the parts ---------------------------------------------------------------------------------


def _written(folder: Path, size: int) -> Written:
    """A log of about so many bytes, that do not compress."""
    count, message = size // MESSAGE_BYTES, os.urandom(MESSAGE_BYTES)
    with Log.open(folder / "log", LOG, env=Environment(metrics=Metrics())) as log:
        for number in range(count):
            log.append(number.to_bytes(8, "little") + message[8:])
            if number % 1024 == 0:
                log.flush()
        log.flush()
    return Written(folder, count)


async def _archived(objects: ObjectStore, log: Written) -> tuple[Catalog, float]:
    """Everything uploaded, and how long that took."""
    folder = log.folder / f"archive-{next(_NUMBERS)}"
    folder.mkdir()
    (folder / "log").symlink_to(log.folder / "log")  # beside a checkpoint of its own
    metadata = open_metadata((folder / "metadata.db").as_uri())
    catalog = Catalog(objects, metadata, TOPIC)
    lease = await Leases(metadata).acquire(catalog.lease_name, "bench")
    source = SealedFiles(LocalFiles(), folder / "log")
    uploader = Uploader(catalog, lease, folder, source, directory=uuid.uuid4())
    started = time.perf_counter()
    await uploader.drain()
    took = time.perf_counter() - started
    await lease.release()
    assert uploader.totals.messages == log.messages
    return catalog, took


async def _upload_mb_s(place: Place, log: Written) -> float:
    objects = place.open()
    catalog, took = await _archived(objects, log)
    size = sum(one.size for one in await catalog.all())
    await _emptied(objects, catalog)
    return size / 1e6 / took


async def _multipart_mb_s(place: Place, log: Written) -> float:
    objects, size = place.open(), 0
    started = time.perf_counter()
    for path in log.files:
        with path.open("rb") as file:
            async with objects.upload(path.name) as upload:
                while piece := file.read(PIECE_BYTES):
                    await upload.write(piece)
                    size += len(piece)
    took = time.perf_counter() - started
    await _emptied(objects)
    return size / 1e6 / took


async def _first_messages(
    place: Place, log: Written, count: int
) -> tuple[list[float], list[float]]:
    """Seconds to a first message, and to the bytes of a block alone, by turns."""
    objects = place.open()
    catalog, _ = await _archived(objects, log)
    chance, descriptors = random.Random(7), await catalog.all()
    figures, bare = [], []
    for _ in range(count):
        offset = chance.randrange(log.messages)
        started = time.perf_counter()
        batch = await ArchiveReader(catalog, offset).read_batch()
        figures.append(time.perf_counter() - started)
        assert batch is not None
        assert batch.first_offset == offset
        one = chance.choice(descriptors)
        begin = chance.choice(one.offset_index)[1]
        started = time.perf_counter()
        await objects.get_range(catalog.object_key(one.object_id), begin, begin + 512 * 1024)
        bare.append(time.perf_counter() - started)
    await _emptied(objects, catalog)
    return figures, bare


async def _emptied(objects: ObjectStore, catalog: Catalog | None = None) -> None:
    """What a measure stored would otherwise fill the memory, or the disk."""
    keys = [info.key async for info in objects.list("")]
    for start in range(0, len(keys), 500):
        await objects.delete(*keys[start : start + 500])
    await objects.close()
    if catalog is not None:
        await catalog.metadata.close()
