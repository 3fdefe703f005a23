"""The notebook of the examples runs, and its plots show something."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from tests.patience import PATIENCE_S
from tests.pipeline.cluster import quick_spark
from tests.pipeline.flush.helpers import Plain, without_spark
from tests.pipeline.helpers import Data
from tests.pipeline.shop import fill

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook" / "telemetry.ipynb"
PLOTS = ["heat", "errors", "circle"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The cells of code by their names, after they ran on a lake of half an hour."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        data = Data(folder / "data")
        fill(data, units=60, spans=120, unit_s=15)
        Plain(data).run()
        for name, value in {**quick_spark(folder), "PENSTOCK_DATA_DIR": str(data.root)}.items():
            patch.setenv(name, value)
        notebook = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT)
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, resources=where, startup_timeout=int(PATIENCE_S)).execute()
    return {cell.id: cell for cell in notebook.cells if cell.cell_type == "code"}


def pictures(cell: Any) -> list[bytes]:
    """What it has drawn."""
    shown = [output.data for output in cell.outputs if output.output_type == "display_data"]
    return [base64.b64decode(each["image/png"]) for each in shown if "image/png" in each]


def test_notebook_is_kept_without_outputs() -> None:
    """A change of it shows what was changed, and nothing that a run has made."""
    cells = nbformat.read(NOTEBOOK, nbformat.NO_CONVERT).cells
    assert [cell.id for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.away
def test_every_cell_runs(ran: dict[str, Any]) -> None:
    """In their order, and none of them complains."""
    assert [cell.execution_count for cell in ran.values()] == list(range(1, len(ran) + 1))
    streams = [o for cell in ran.values() for o in cell.outputs if o.output_type == "stream"]
    assert streams == []


@pytest.mark.away
@pytest.mark.parametrize("name", PLOTS)
def test_plots_are_pictures_of_something(name: str, ran: dict[str, Any]) -> None:
    """Each has lines and colours enough that it cannot be empty."""
    [picture] = pictures(ran[name])
    pixels = matplotlib.image.imread(io.BytesIO(picture))
    colours = np.ascontiguousarray(pixels * 255, dtype=np.uint8).view(np.uint32)
    assert len(np.unique(colours)) > 100


@pytest.mark.away
def test_all_services_are_in_the_summary(ran: dict[str, Any]) -> None:
    """The table that the lake is summed up in."""
    [shown] = ran["summary"].outputs
    text = shown.data["text/plain"]
    assert all(name in text for name in ("storefront", "checkout", "mailer"))
