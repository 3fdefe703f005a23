"""Tables are made, found, and brought up to date."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from penstock.lake.arrow import arrow_schema
from penstock.lake.schemas import SPANS, TABLES
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake, Shape
from penstock.lake.target import Target
from penstock.model.errors import InvalidArgument

from .helpers import DAY, Flush, span, spans

if TYPE_CHECKING:
    from pyiceberg.table import Table

MAKE = """
import sys
from pathlib import Path
from penstock.lake.settings import LakeSettings
from penstock.lake.tables import Lake
sys.stdin.readline()
with Lake.open(LakeSettings.of(Path(sys.argv[1]))) as lake:
    print(lake.table("spans").metadata.table_uuid)
"""


def reopened(lake: Lake, schema: pa.Schema) -> Table:
    """The spans, opened by a Penstock whose rows have that schema."""
    return lake.table("spans", Shape(schema))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_columns_of_its_rows(lake: Lake, name: str) -> None:
    """With the same types, and a number for each."""
    columns = arrow_schema(lake.table(name).schema().model_dump_json())
    assert columns.equals(TABLES[name])
    assert all(b"PARQUET:field_id" in (field.metadata or {}) for field in columns)


def test_a_table_is_parted_by_day_and_sorted_by_service_and_time(table: Table) -> None:
    """In the folder of its name, in the format that every engine reads."""
    target = Target.of(table)
    assert [field.name for field in table.spec().fields] == ["time_day"]
    assert (target.time_column, target.sorted_by) == ("time", ("service_name", "time"))
    assert table.location().endswith("/lake/spans")
    assert table.format_version == 2
    assert "commit.retry.num-retries" not in table.properties
    assert table.name_mapping() is not None


def test_opening_a_table_again_changes_nothing(lake: Lake, table: Table) -> None:
    """There is a commit only where something is new."""
    assert lake.table("spans").metadata_location == table.metadata_location
    assert lake.names() == ["spans"]


def test_an_unknown_table_is_refused(lake: Lake) -> None:
    """Unless it comes with its columns."""
    with pytest.raises(InvalidArgument, match="spans, logs, metrics"):
        lake.table("span")
    shape = Shape(pa.schema([("minute", pa.timestamp("us", "UTC"))]), "minute", ("minute",))
    assert Target.of(lake.table("service_red_1m", shape)).time_column == "minute"


def test_reading_makes_no_table(lake: Lake) -> None:
    """A query of an empty lake leaves it empty."""
    assert lake.existing("spans") is None
    assert lake.names() == []


def test_new_columns_are_added_and_null_in_old_rows(lake: Lake, table: Table) -> None:
    """The files that are there are not touched."""
    Flush(table).flush(spans(range(2)))
    wider = SPANS.append(pa.field("http_route", pa.string()))
    table = reopened(lake, wider)
    Flush(table).flush(pa.Table.from_pylist([span(9, http_route="/cart")], schema=wider))
    rows = table.scan(selected_fields=("_offset", "http_route")).to_arrow().sort_by("_offset")
    assert rows["http_route"].to_pylist() == [None, None, "/cart"]


def test_new_fields_of_structs_are_added(lake: Lake, table: Table) -> None:
    """Events of old rows have none of them."""
    Flush(table).flush(spans(range(1)))
    place = SPANS.get_field_index("resource")
    resource = pa.struct([*SPANS.field(place).type, ("entity", pa.string())])
    table = reopened(lake, SPANS.set(place, pa.field("resource", resource)))
    [row] = table.scan(selected_fields=("resource",)).to_arrow()["resource"].to_pylist()
    assert row["entity"] is None
    assert dict(row["attributes"]) == {"service.name": "service-0"}


def test_columns_that_we_do_not_know_stay(lake: Lake) -> None:
    """An older Penstock writes beside a newer one's columns."""
    reopened(lake, SPANS.append(pa.field("http_route", pa.string())))
    table = lake.table("spans")
    assert "http_route" in table.schema().column_names
    Flush(table).flush(spans(range(3)))
    assert table.scan().to_arrow()["http_route"].null_count == 3


def test_a_table_of_an_earlier_version_no_longer_forbids_retries(lake: Lake, table: Table) -> None:
    """Every other engine's commit would fail at the first collision; `date` gets its bounds."""
    bounds = "write.metadata.metrics.column.date"
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
        transaction.remove_properties(bounds, "penstock.columns")
    properties = lake.table("spans").properties
    assert "commit.retry.num-retries" not in properties
    assert properties[bounds] == "truncate(16)"
    assert "penstock.columns" in properties


def test_what_others_set_of_retries_stays(lake: Lake, table: Table) -> None:
    """It is theirs: our own commits are tried once, whatever the table says."""
    with table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "4"})
    assert lake.table("spans").properties["commit.retry.num-retries"] == "4"


def test_a_column_that_was_dropped_stays_dropped(lake: Lake, table: Table) -> None:
    """It is not written any more, and comes back when somebody adds it."""
    with table.update_schema() as update:
        update.delete_column("status_message")
    table = lake.table("spans")
    assert "status_message" not in table.schema().column_names
    Flush(table).flush(spans(range(2)))
    with table.update_schema() as update:
        update.add_column("status_message", StringType())
    table = lake.table("spans")
    assert "status_message" not in Target.of(table).dropped


def test_a_renamed_column_is_written_as_the_one_it_was(lake: Lake, table: Table) -> None:
    """By its number: whoever reads the table finds it by the new name."""
    with table.update_schema() as update:
        update.rename_column("name", "operation")
    table = lake.table("spans")
    assert "name" not in table.schema().column_names
    Flush(table).flush(spans(range(2)))
    assert table.scan().to_arrow()["operation"].to_pylist() == ["GET /cart"] * 2


def test_any_catalog_can_be_configured(tmp_path: Path) -> None:
    """Here another SQL database, and files elsewhere."""
    settings = LakeSettings(
        warehouse=str(tmp_path / "files"),
        catalog={"type": "sql", "uri": f"sqlite:///{tmp_path / 'other.db'}"},
        namespace="telemetry",
    )
    with Lake.open(settings) as lake:
        table = lake.table("logs")
        assert table.name() == ("telemetry", "logs")
        assert table.location() == str(tmp_path / "files" / "logs")
    assert not (tmp_path / "files" / "catalog.db").exists()


def test_a_path_with_spaces_and_signs_works(tmp_path: Path) -> None:
    """People have such folders."""
    with Lake.open(LakeSettings.of(tmp_path / "my data #1 = 100% ü")) as lake:
        table = lake.table("spans")
        Flush(table).flush(spans(range(3)))
        assert table.scan().to_arrow().num_rows == 3


def test_threads_may_open_the_same_table_at_once(lake: Lake) -> None:
    """One makes it, the others find it."""
    found: list[str] = []
    gate = threading.Barrier(4)

    def open_it() -> None:
        gate.wait()
        found.append(str(lake.table("spans").metadata.table_uuid))

    threads = [threading.Thread(target=open_it) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_processes_may_make_the_same_lake_at_once(tmp_path: Path) -> None:
    """Catalog, namespace and table: whoever comes second finds them."""
    command = [sys.executable, "-W", "error", "-c", MAKE, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload] # one dict for all
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = {process.communicate()[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(answers) == 1


def test_rows_of_different_days_are_in_different_folders(lake: Lake, table: Table) -> None:
    """The folders are those that the day is in."""
    Flush(table).flush(spans(range(2)))
    [file] = [task.file.file_path for task in table.scan().plan_files()]
    assert f"/data/year=2025/month=11/day={DAY.day:02d}/" in file
    assert lake.existing("spans") is not None
