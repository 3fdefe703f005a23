"""The server's certificates, read again when their files change.

A new connection is shown what the files hold then; those that are open go on as they began. Files
that do not fit together, as in the moment between two renames, change nothing, and are said in
health until they do.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.model.errors import InvalidSetting

if TYPE_CHECKING:
    from pathlib import Path

    import grpc

    from penstock.server.configuration.config import Tls

_LOG = logging.getLogger(__name__)
LOOK_S: Final = 1.0
"""No more often, however many connections come."""


class Loaded(NamedTuple):
    """What the files held when they were last good."""

    certificate: bytes
    key: bytes
    roots: bytes | None
    context: ssl.SSLContext


class Certificates:
    """Those of one process. Safe from any thread."""

    def __init__(self, tls: Tls) -> None:
        """InvalidSetting where they cannot be used."""
        assert tls.certificate is not None
        assert tls.key is not None
        self._certificate, self._key, self._roots = tls.certificate, tls.key, tls.client_ca
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._seen = self._change()
        self.now = self._load()
        self.problem: str | None = None
        """Why the files that are there now are not used."""

    def refresh(self) -> bool:
        """Looks at the files, if that was not done just now; whether there are others."""
        with self._lock:
            if time.monotonic() - self._looked < LOOK_S:
                return False
            self._looked = time.monotonic()
            seen = self._change()
            if seen == self._seen and self.problem is None:
                return False
            try:
                self.now = self._load()
            except InvalidSetting as error:
                if self.problem != str(error):
                    _LOG.error("the certificates stay as they were: %s", error)
                self.problem = str(error)
                return False
            _LOG.info("read the certificates again")
            self._seen, self.problem = seen, None
            return True

    def context(self) -> ssl.SSLContext:
        """For a server that takes one for good: each connection gets the one of its time."""
        front = self._load().context

        def choose(connection: Any, _: str | None, __: ssl.SSLContext) -> None:
            self.refresh()
            connection.context = self.now.context

        front.sni_callback = choose  # called with each connection, whether it names a server or not
        return front

    def _change(self) -> tuple[tuple[int, ...] | None, ...]:
        return tuple(_change_of(path) for path in (self._certificate, self._key, self._roots))

    def _load(self) -> Loaded:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            certificate, key = self._certificate.read_bytes(), self._key.read_bytes()
            context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"tls.certificate and tls.key cannot be used: {error}") from None
        if self._roots is None:
            return Loaded(certificate, key, None, context)
        try:
            roots = self._roots.read_bytes()
            context.load_verify_locations(self._roots)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"tls.client_ca cannot be used: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
        # Who comes back is looked at again: its authority may have been taken out meanwhile.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
        return Loaded(certificate, key, roots, context)


def grpc_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """For a gRPC server, which asks anew with each connection."""
    import grpc

    def current() -> grpc.ServerCertificateConfiguration:
        certificates.refresh()
        now = certificates.now
        pair = (now.key, now.certificate)
        return grpc.ssl_server_certificate_configuration([pair], now.roots)

    has_roots = certificates.now.roots is not None
    return grpc.dynamic_ssl_server_credentials(current(), current, has_roots)


def certificates_of(tls: Tls) -> Certificates | None:
    """None where the ports are not encrypted."""
    return Certificates(tls) if tls.certificate is not None and tls.key is not None else None


def _change_of(path: Path | None) -> tuple[int, ...] | None:
    """What changes with the file; None where there is none."""
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size, found.st_ino)
