"""The log of a store keeps what is not in a segment, and what is not in the archive."""

from __future__ import annotations

from pathlib import Path

from penstock.archive.archiving import Archiver
from penstock.archive.sources import PARTY
from penstock.model.settings import LogSettings, StoreSettings
from penstock.storage import DataDirectory
from penstock.storage.metadata import open_metadata
from penstock.storage.objects import open_objects
from penstock.store import Store
from tests.archive.worlds import DIRECTORY, TOPIC
from tests.servers.loops import in_loop


@in_loop
async def test_the_log_of_a_store_waits_for_the_archive(tmp_path: Path) -> None:
    """Sealed and acknowledged is not enough: what is not archived stays."""
    metadata = open_metadata(f"file://{tmp_path}/metadata.db")
    archiver = Archiver(open_objects("memory://"), metadata, directory=DIRECTORY)
    partition = DataDirectory(tmp_path / "data").partition(TOPIC)
    settings = StoreSettings(log=LogSettings(rotate_bytes=64 * 1024, retention_bytes=0))
    with Store.open(partition.folder, settings, keep_for=[PARTY]) as store:
        for _ in range(5):
            store.append_durable(b"\x0a\x00" * 30_000)
        store.flush()
        store.log.enforce_retention()
        assert store.log.start_offset == 0
        archiving = await archiver.attach(partition, store.log, await archiver.claim(partition))
        await archiving.uploader.drain()
        store.log.enforce_retention()
        assert store.log.start_offset > 0
        await archiver.close()
    await metadata.close()


@in_loop
async def test_a_store_goes_on_behind_its_archive(tmp_path: Path) -> None:
    """On an empty disk the next offset is the archive's end."""
    with Store.open(tmp_path / "store", least_offset=77) as store:
        assert store.append_durable(b"\x0a\x00") == 77
