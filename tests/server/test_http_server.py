"""Sockets that workers share."""

from __future__ import annotations

import errno
import socket

import pytest

from penstock.server.http_server import bind, reserve

HOST = "127.0.0.1"


def port_of(bound: socket.socket) -> int:
    """The one that was picked."""
    return int(bound.getsockname()[1])


def test_workers_share_a_port() -> None:
    """The supervisor reserves it, each worker binds it again."""
    with reserve(HOST, 0) as first:
        port = port_of(first)
        with bind(HOST, port) as one, bind(HOST, port) as two:
            one.listen()
            two.listen()


def test_port_that_somebody_listens_on_cannot_be_reserved() -> None:
    """Even if that one would share it: it is another server."""
    with bind(HOST, 0) as other:
        other.listen()
        with pytest.raises(OSError, match=f"port {port_of(other)} of {HOST}") as failed:
            reserve(HOST, port_of(other))
    assert failed.value.errno == errno.EADDRINUSE


def test_port_of_a_server_that_just_ended_can_be_reserved() -> None:
    """Its connections may linger."""
    with bind(HOST, 0) as listening:
        port = port_of(listening)
        listening.listen()
        with socket.create_connection((HOST, port)) as client:
            accepted, _ = listening.accept()
            accepted.close()
            assert client.recv(1) == b""
    with reserve(HOST, port) as again:
        assert port_of(again) == port


def test_accepted_connections_are_known_as_tcp() -> None:
    """Or asyncio would leave their short answers waiting for company."""
    with bind(HOST, 0) as listening:
        listening.listen()
        with socket.create_connection((HOST, port_of(listening))):
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.proto == socket.IPPROTO_TCP


def test_address_of_nobody_is_refused_with_its_name() -> None:
    """One sentence for the user."""
    with pytest.raises(OSError, match=r"port 0 of 192\.0\.2\.1"):
        reserve("192.0.2.1", 0)


def test_addresses_of_version_six_are_taken() -> None:
    """Where the machine has them."""
    try:
        with reserve("::1", 0) as bound:
            assert bound.family == socket.AF_INET6
    except OSError:
        pytest.skip("there is no IPv6 here")
