"""Servers for a whole test session; import a fixture by name into a `conftest.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.servers.etcd import EtcdServer
from tests.servers.seaweed import S3Server

S = TypeVar("S", S3Server, EtcdServer)
_ATTEMPTS = 3


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server; each test takes a place of its own."""
    yield from _running(lambda: S3Server(tmp_path_factory.mktemp("seaweed")))


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """A running etcd; each test takes a place of its own."""
    yield from _running(lambda: EtcdServer(tmp_path_factory.mktemp("etcd")))


def _running(make: Callable[[], S]) -> Iterator[S]:
    """Tries again with other ports, where somebody was faster."""
    server = make()
    for attempt in range(_ATTEMPTS):
        try:
            server.start()
            break
        except AssertionError:
            server.stop()
            if attempt + 1 == _ATTEMPTS:
                raise
            server = make()
    try:
        yield server
    finally:
        server.stop()
