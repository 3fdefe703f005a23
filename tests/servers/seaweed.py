"""A real S3 server on loopback: SeaweedFS, as it comes from PyPI."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import sysconfig
from pathlib import Path

from tests.servers.ports import free_ports
from tests.servers.process import LocalServer

_PARTS = ("master", "volume", "filer", "s3")
_NUMBERS = itertools.count()
_BUCKET = "penstock"


class S3Server(LocalServer):
    """All of its parts in one process."""

    name = "the S3 server"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        free = free_ports(2 * len(_PARTS))
        self._ports = dict(zip(_PARTS, free[::2], strict=True))
        self._grpc_ports = dict(zip(_PARTS, free[1::2], strict=True))

    @property
    def endpoint(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._ports['s3']}"

    @property
    def options(self) -> dict[str, str]:
        """What `open_objects` needs to reach it; also its environment, in capitals."""
        return {
            "aws_endpoint_url": self.endpoint,
            "aws_allow_http": "true",
            "aws_skip_signature": "true",
            "aws_region": "us-east-1",
        }

    def place(self) -> str:
        """The URL of a new prefix; a bucket for each would cost the server seven volumes."""
        return f"s3://{_BUCKET}/place-{next(_NUMBERS)}"

    def uploads(self) -> int:
        """How many uploads in parts are unfinished."""
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", f"/{_BUCKET}?uploads")
            return connection.getresponse().read().count(b"<UploadId>")

    def _command(self) -> list[str]:
        weed = Path(sysconfig.get_path("scripts")) / "weed"
        ports = [f"-{part}.port={port}" for part, port in self._ports.items()]
        grpc_ports = [f"-{part}.port.grpc={port}" for part, port in self._grpc_ports.items()]
        return [
            *(str(weed), "-logtostderr", "server", f"-dir={self._folder}", "-filer", "-s3"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"),
            "-master.electionTimeout=1s",
            *("-volume.max=64", "-master.volumeSizeLimitMB=256", "-volume.minFreeSpace=1MiB"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0", f"-filer.localSocket={self._folder}/filer"),
            *(f"-s3.localSocket={self._folder}/s3", *ports, *grpc_ports),
        ]

    def _is_ready(self) -> bool:
        bucket = self._ask("PUT", f"/{_BUCKET}") in (200, 409)
        return bucket and self._ask("PUT", f"/{_BUCKET}/ready", b"yes") == 200

    def _ask(self, method: str, path: str, body: bytes | None = None) -> int:
        with contextlib.closing(self._connect()) as connection:
            try:
                connection.request(method, path, body=body)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException):
                return 0

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._ports["s3"], timeout=20)
