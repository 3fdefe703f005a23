"""The pipeline on a standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.cluster import run_command, standalone_cluster, wait_until
from tests.pipeline.shop import fill, lake_rows

if TYPE_CHECKING:
    from tests.pipeline.helpers import Data


@pytest.mark.timeout(300)
def test_pipeline_runs_on_a_standalone_cluster(data: Data, tmp_path: Path) -> None:
    """Each worker runs an executor, the lake has what was stored, and the executors are gone."""
    stored = fill(data)
    with standalone_cluster(tmp_path / "cluster") as cluster:
        where = ("--master", cluster.master, "--data-dir", data.root)
        answer = run_command(tmp_path, "pipeline", "run", "--once", "--json", *where)
        wait_until(lambda: all(part.is_idle for part in cluster.parts))
    assert (answer.code, answer.err) == (0, "")
    assert answer.json["rows"] == stored == lake_rows(data.root)
    assert [len(found) for found in cluster.executors] == [1, 1]
