"""Endpoints are read as people write them."""

from __future__ import annotations

import pytest

from penstock.load.plan import Endpoint, Plan
from penstock.model.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:4317", Endpoint("grpc", False, "127.0.0.1", 4317)),
        ("collector", Endpoint("grpc", False, "collector", 4317)),
        ("[::1]:9", Endpoint("grpc", False, "::1", 9)),
        ("grpcs://shop.example.com", Endpoint("grpc", True, "shop.example.com", 4317)),
        ("http://localhost", Endpoint("http", False, "localhost", 4318)),
        ("http://localhost:80/otlp/", Endpoint("http", False, "localhost", 80, "/otlp")),
        ("https://otlp.example.com:443", Endpoint("http", True, "otlp.example.com", 443)),
    ],
)
def test_endpoint_is_read(text: str, expected: Endpoint) -> None:
    """A bare address is gRPC; ports and paths have their defaults."""
    assert Endpoint.parse(text) == expected


@pytest.mark.parametrize("text", ["", ":4317", "ftp://host", "host:port", "host:99999", "http://"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    """With what would be one."""
    with pytest.raises(InvalidArgument, match="host:port"):
        Endpoint.parse(text)


def test_authority_brackets_an_address_with_colons() -> None:
    """As URLs do."""
    assert Endpoint.parse("[::1]:9").authority == "[::1]:9"
    assert Endpoint.parse("host:9").authority == "host:9"


def test_shares_add_up_to_the_count() -> None:
    """For any number of processes."""
    for processes in range(1, 8):
        plan = Plan(spans=100, processes=processes)
        assert sum(plan.spans_of(each) or 0 for each in range(processes)) == 100
    assert Plan().spans_of(0) is None
