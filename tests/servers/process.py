"""A server of others in a process of its own, with its data in a folder."""

from __future__ import annotations

import abc
import subprocess
from pathlib import Path
from typing import Self

from tests.leftovers import SHARED
from tests.patience import until


class LocalServer(abc.ABC):
    """It can be killed and started again on the same ports."""

    name: str

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """What to run."""

    @abc.abstractmethod
    def _is_ready(self) -> bool:
        """Whether it takes requests by now."""

    def start(self) -> Self:
        """Returns when it is ready for requests."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        SHARED.add(self._process.pid)
        until(self._has_started, f"the start of {self.name}")
        return self

    def _has_started(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "server.log").read_text()[-2000:]
        return self._is_ready()

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
