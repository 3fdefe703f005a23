"""Promoted attributes have columns of their own, with the types that they were sent with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from penstock.lake.promoted import Promoted, fill, of_properties, parse_all
from penstock.lake.schemas import SHARING, SPANS
from penstock.lake.tables import Lake
from penstock.model.errors import InvalidSetting

from .helpers import Flush, span, spans

ROWS = pa.Table.from_pylist(
    [
        {
            "attributes": [("http.route", "/cart"), ("n", "7"), ("ok", "true")],
            "attribute_types": [("n", "int"), ("ok", "bool")],
            "resource": {"attributes": [("k8s.pod.name", "a-1")]},
        },
        {"attributes": None, "resource": None},
        {"attributes": [("n", "7")]},
        {"attributes": [("n", "0.5"), ("ok", "yes")], "attribute_types": [("n", "double")]},
    ],
    SPANS,
)


def column(rows: pa.Table, text: str) -> list[Any]:
    """What a promoted attribute has in each row."""
    [promoted] = parse_all([text])
    return list(fill(rows, [promoted])[promoted.column].to_pylist())


@pytest.mark.parametrize("rows", [ROWS, ROWS.cast(SHARING["spans"])], ids=["plain", "shared"])
def test_a_column_has_the_values_of_its_type(rows: pa.Table) -> None:
    """A value that was sent as another is null there, and the map has it still."""
    assert column(rows, "http.route") == ["/cart", None, None, None]
    assert column(rows, "n") == ["7", None, "7", "0.5"]
    assert column(rows, "n:int") == [7, None, None, None]
    assert column(rows, "n:double") == [7.0, None, None, 0.5]
    assert column(rows, "ok:bool") == [True, None, None, None]
    assert column(rows, "resource:k8s.pod.name") == ["a-1", None, None, None]
    assert column(rows, "never.sent") == [None] * 4
    assert column(rows.slice(2), "n") == ["7", "0.5"]
    assert column(rows.slice(0, 0), "n:int") == []


def test_what_rows_have_is_kept_and_dropped_maps_are_null() -> None:
    """A column is made only where it is not there, of the maps that are."""
    promoted = parse_all(["http.route", "resource:k8s.pod.name", "n:int"])
    masked = ROWS.append_column("attr_http_route", pa.array(["x", None, None, "y"]))
    assert fill(masked, promoted)["attr_http_route"].to_pylist() == ["x", None, None, "y"]
    bare = fill(ROWS.drop_columns(["attributes", "resource"]), promoted)
    assert [bare[each.column].null_count for each in promoted] == [4] * 3


def test_names_of_columns_are_made_of_keys() -> None:
    """What SQL would need quotes for becomes an underscore."""
    names = {each: Promoted.parse(each).column for each in ("http.route", "resource:K8s/Pod name")}
    assert names == {
        "http.route": "attr_http_route",
        "resource:K8s/Pod name": "resource_k8s_pod_name",
    }
    assert str(Promoted.parse("a:b")) == "a:b:string"  # a colon may be part of a key
    assert Promoted.parse(str(Promoted.parse("resource:n:int"))) == Promoted("n", "int", True)


@pytest.mark.parametrize("texts", [["a.b", "a_b"], ["resource:schema.url"], [""], ["n", "n:int"]])
def test_keys_that_share_a_column_are_refused(texts: list[str]) -> None:
    """With each other, or with a column that the tables have."""
    with pytest.raises(InvalidSetting):
        parse_all(texts)


def test_new_promotions_are_columns_of_new_files(lake: Lake) -> None:
    """Rows from before have null there; a lake opened without them keeps them."""
    Flush(lake.table("spans")).flush(spans(range(3)))
    promoting = Lake.open(replace(lake.settings, promoted=("number", "http.request.method")))
    Flush(promoting.table("spans")).flush(spans(range(3, 5)))
    table = lake.table("spans")
    assert [str(each) for each in of_properties(table.properties)] == [
        "http.request.method:string",
        "number:string",
    ]
    Flush(table).flush(spans([5]))
    found = table.refresh().scan().to_arrow().sort_by("span_id")
    assert found["attr_number"].to_pylist() == [None, None, None, "3", "4", "5"]
    assert set(found["attr_http_request_method"].to_pylist()) == {None, "GET"}
    promoting.close()


def test_files_are_pruned_by_promoted_columns(lake: Lake) -> None:
    """Their bounds are in the manifests."""
    promoting = Lake.open(replace(lake.settings, promoted=("number:int",)))
    flush = Flush(promoting.table("spans"))
    for number in (1, 1000):
        row = span(number, attribute_types=[("number", "int")])
        flush.flush(pa.Table.from_pylist([row], SPANS))
    table = lake.table("spans")
    assert len([*table.scan("attr_number > 500").plan_files()]) == 1
    promoting.close()
