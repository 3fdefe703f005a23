"""`penstock serve`: reserves the ports, starts the workers, and starts again those that die."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Final

from penstock.children.guarding import Guarded
from penstock.client.server_file import (
    FLIGHT_SOCKET,
    SOCKETS,
    RunningServer,
    own_ticks,
    remove_server_file,
)
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.server.auth import Gate, read_tokens
from penstock.server.capping import check_cap, survey
from penstock.server.certificates import certificates_of
from penstock.server.configuration import config as configuration
from penstock.server.descriptors import bounded, raise_limit
from penstock.server.http.server import http_server, reserve
from penstock.server.http.sites import host_name, is_loopback
from penstock.server.querying.api import QueryApi, SnapshotApi
from penstock.server.querying.queries import Queries
from penstock.server.receiving.repeats import bounded_dedupe, remove_unused
from penstock.server.tasks import watched
from penstock.server.web.admin import Admin, TopicsApi
from penstock.server.web.openapi import openapi_route
from penstock.server.web.routing import Router
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.access import narrow

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from penstock.server.configuration.config import Config

_LOG = logging.getLogger(__name__)
"""Half of it is the interpreter's, with everything that a query needs."""
_DESCRIBE_AGAIN_S: Final = 1.0


def check(config: Config) -> None:
    """Refuses what would be unsafe or cannot work."""
    if (config.tls.certificate is None) != (config.tls.key is None):
        raise InvalidSetting("tls needs a certificate and its key")
    if config.tls.client_ca is not None and config.tls.certificate is None:
        raise InvalidSetting("tls.client_ca needs tls.certificate and tls.key")
    guarded = config.auth.tokens_file is not None or config.tls.client_ca is not None
    host = config.listen.host
    if not guarded and not config.listen.unprotected and not is_loopback(host_name(host)):
        raise InvalidSetting(
            f"{host} can be reached from other machines, and neither auth.tokens_file nor "
            "tls.client_ca guards it; set one, or listen.unprotected to say that it is meant"
        )
    check_cap(config)
    if config.archive.url is not None:
        from penstock.server.keeping.archiving import archive_stores

        archive_stores(config)
        if config.buffer.url is not None:
            raise InvalidSetting("archive.url goes with a log, and with buffer.url there is none")
    if config.buffer.url is not None:
        from penstock.server.without_disk import check_buffer

        check_buffer(config)
    if config.auth.tokens_file is not None:
        read_tokens(config.auth.tokens_file)


def web_application(
    config: Config, workers: Sequence[Guarded], queries: Queries, flight: Guarded | None = None
) -> Router:
    """Health, metrics and the API."""
    kept = (TopicsApi(workers), QueryApi(config, queries), SnapshotApi(queries))
    parts = (
        Admin(config, workers, flight, lambda: queries.restarts),
        *(kept if config.buffer.url is None else ()),
    )
    routes = [route for part in parts for route in part.routes()]
    return Router([*routes, openapi_route()], Gate(config.auth.tokens_file), config.limits)


class Supervisor:
    """The process that people start and stop."""

    def __init__(self, config: Config) -> None:
        check(config)
        self._certificates = certificates_of(config.tls)
        self._config = config
        self._sockets: dict[str, socket.socket] = {}
        self._workers: list[Guarded] = []
        self._flight: Guarded | None = None
        self._stopping = asyncio.Event()
        self._failed = False
        self._undescribed = False
        """Whether `server.json` could not be written."""

    async def run(self) -> None:
        """From the ready line to the end of the last worker."""
        raise_limit()  # its children have it from it
        if self._config.buffer.url is not None:
            await self._serve_and_let_go()
            return
        directory = DataDirectory(self._config.data_dir)
        directory.create()
        narrow(self._config.data_dir)
        lock = LocalFiles().lock(self._config.data_dir / ".lock")
        try:
            remove_unused(self._config.data_dir, bounded_dedupe(self._config))
            if self._config.retention.size_cap is not None:
                survey(directory)
            await self._serve_and_let_go()
        finally:
            remove_server_file(self._config.data_dir)
            lock.release()

    async def _serve_and_let_go(self) -> None:
        try:
            await self._serve()
        finally:
            for each in self._sockets.values():
                each.close()

    async def _serve(self) -> None:
        listen = self._config.listen
        for name in self._port_names:
            self._sockets[name] = reserve(listen.host, getattr(listen, f"{name}_port"))
        ports = {name: each.getsockname()[1] for name, each in self._sockets.items()}
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # tokens are read again without it
        self._workers = [self._worker(number, ports) for number in range(self._config.workers)]
        if "flight" in ports:
            self._flight = self._flight_process(ports["flight"])
        guards = [watched(each.run(), each.title, self._fail) for each in self._all()]
        queries = Queries(self._config)
        application = web_application(self._config, self._workers, queries, self._flight)
        # A question is given up when its client goes, which looks like one that closes its side.
        bounds = bounded(self._config)
        web = http_server(application, bounds, self._certificates, answers_half_closed=False)
        serving = asyncio.create_task(web.serve(sockets=[self._sockets["web"]]))
        serving.add_done_callback(lambda _: self._stopping.set())
        ready = watched(self._say_ready(ports), "saying that it is ready", self._fail)
        await self._stopping.wait()
        ready.cancel()
        for child in self._all():
            child.stop()
        await asyncio.wait(guards, timeout=self._config.stop_deadline)
        for child in self._all():
            child.kill()
        await asyncio.wait(guards)
        # The directory is still locked: nobody else listens there.
        (self._config.data_dir / SOCKETS / FLIGHT_SOCKET).unlink(missing_ok=True)
        await queries.close()
        web.should_exit = True
        await serving
        if self._failed:
            raise PenstockError("the server stopped, since a part of it failed; its log says why")

    def _fail(self) -> None:
        """Without that part it would not be what it says: it stops, and says so at its end."""
        self._failed = True
        self._stopping.set()

    @property
    def _port_names(self) -> tuple[str, ...]:
        """Where nothing is kept, there is nothing to ask for."""
        kept = self._config.buffer.url is None
        return ("grpc", "http", "flight", "web") if kept else ("grpc", "http", "web")

    def _worker(self, number: int, ports: dict[str, int]) -> Guarded:
        own = {"number": number, "grpc_port": ports["grpc"], "http_port": ports["http"]}
        return self._guarded("penstock.server.worker", f"worker {number}", own)

    def _flight_process(self, port: int) -> Guarded:
        # What it has handed out is delivered again: it has nothing to put in order.
        module, own = "penstock.server.flight.process", {"flight_port": port}
        return self._guarded(module, "the Flight process", own, stops_in_order=False)

    def _guarded(self, module: str, title: str, own: dict[str, int], **more: Any) -> Guarded:
        orders = {**configuration.handed(self._config), **own}
        # Its library would repeat on stderr what a client sent, as often as it is sent.
        quiet = {"GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "NONE")}
        deadline_s = self._config.answer_deadline
        return Guarded(module, title, orders, deadline_s=deadline_s, environment=quiet, **more)

    def _all(self) -> list[Guarded]:
        return [*self._workers, *([self._flight] if self._flight is not None else [])]

    async def _say_ready(self, ports: dict[str, int]) -> None:
        """One line on stdout when every worker listens."""
        for child in self._all():
            await child.ready.wait()
        buffer = self._config.buffer.url
        line = {
            "ready": True,
            "grpc": ports["grpc"],
            "http": ports["http"],
            "flight": ports.get("flight"),
            "web": ports["web"],
            "data_dir": str(self._config.data_dir.absolute()) if buffer is None else None,
        }
        if buffer is not None:
            line["buffer"] = buffer
        # Who waits for the line finds `server.json`, unless the disk has no room even for that.
        described = buffer is not None or self._describe(ports)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
        while not described:
            await asyncio.sleep(_DESCRIBE_AGAIN_S)
            described = self._describe(ports)

    def _describe(self, ports: dict[str, int]) -> bool:
        """For processes that read the data directory beside us; False where it has no room."""
        try:
            self._described(ports).write(self._config.data_dir)
        except OSError as error:
            if not self._undescribed:
                _LOG.error("server.json could not be written, and is tried again: %s", error)
            self._undescribed = True
            return False
        return True

    def _described(self, ports: dict[str, int]) -> RunningServer:
        config = self._config
        return RunningServer(
            pid=os.getpid(),
            started_ticks=own_ticks(),
            host=config.listen.host,
            **{f"{name}_port": port for name, port in ports.items()},
            workers=config.workers,
            tls=config.tls.certificate is not None,
            tokens=config.auth.tokens_file is not None,
        )

    def _on_signal(self) -> None:
        if self._stopping.is_set():  # the second one: at once; what was acknowledged is on disk
            for child in self._all():
                child.kill()
            os._exit(1)
        self._stopping.set()
