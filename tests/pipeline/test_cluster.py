"""The pipeline on a standalone cluster, and without local disks: queue and warehouse on S3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
from tests.patience import until
from tests.pipeline.cluster import Cluster, run_command, standalone_cluster
from tests.pipeline.helpers import Data, named
from tests.pipeline.shop import fill, lake_rows
from tests.pipeline.test_queue_source import queue_url, s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.seaweed import S3Server

pytestmark = pytest.mark.away
__all__ = ["queue_url", "s3"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers, each a process of its own."""
    patch = pytest.MonkeyPatch()
    # The S3 server does not unpack the checksums behind the data of clients that do not sign.
    patch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED")
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started
    patch.undo()


@pytest.mark.soak
def test_pipeline_runs_on_a_standalone_cluster(
    cluster: Cluster, data: Data, tmp_path: Path
) -> None:
    """Each worker runs an executor, the lake has what was stored, and the executors are gone."""
    stored, before = fill(data), [len(found) for found in cluster.executors]
    where = ("--master", cluster.master, "--data-dir", data.root)
    answer = run_command(tmp_path, "pipeline", "run", "--once", "--json", *where)
    until(lambda: all(part.is_idle for part in cluster.parts))
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["rows"] == stored == lake_rows(data.root)
    assert [len(found) for found in cluster.executors] == [count + 1 for count in before]


def test_cluster_takes_the_queue_to_a_warehouse_on_s3(
    cluster: Cluster,
    s3: S3Server,
    queue_url: str,
    tmp_path: Path,
) -> None:
    """An executor on each worker fetches batches and writes Parquet, and is gone in the end."""
    before = [len(found) for found in cluster.executors]
    lake = {
        "warehouse": s3.place(),
        "catalog": {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "s3.endpoint": s3.endpoint,
            "s3.anonymous": "true",
            "s3.region": "us-east-1",
        },
    }
    config = tmp_path / "penstock.yaml"
    config.write_text(yaml.safe_dump({"lake": lake, "buffer": {"objects": s3.options}}))
    where = ("--master", cluster.master, "--data-dir", tmp_path / "notes", "--config", config)
    answer = run_command(
        tmp_path, "pipeline", "run", "--once", "--json", "--queue", queue_url, *where
    )
    until(lambda: all(part.is_idle for part in cluster.parts))
    assert [len(found) for found in cluster.executors] == [count + 1 for count in before]
    assert (answer.code, answer.err) == (0, "")
    assert (answer.json["rows"]["spans"], answer.json["rows"]["logs"]) == (6, 3)
    settings = LakeSettings(warehouse=str(lake["warehouse"]), catalog=dict(lake["catalog"]))  # type: ignore[arg-type, call-overload] # of one's own
    with Lake.open(settings) as opened:
        rows = opened.table("spans").scan().to_arrow()
        assert sorted(rows["name"].to_pylist()) == named(*range(6))
        assert opened.table("logs").scan().count() == 3
