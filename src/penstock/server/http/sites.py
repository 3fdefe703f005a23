"""By which names, and for which pages, the HTTP ports answer where no token is asked for.

A browser sends whatever a page wants to any address that the page names. A page whose own name is
made to lead here (DNS rebinding) even reads the answers, as if they were its site's. So without
tokens a request comes by a name of loopback, by one that is configured, or by the very address that
it reached; and a page of another site is not answered, but where somebody follows its link.
"""

from __future__ import annotations

import ipaddress
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from penstock.model.printable import printable
from penstock.server.http.answers import refuse
from penstock.server.http.bodies import Body
from penstock.server.http.head import holds_body_back, kind_in
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config

_LOG = logging.getLogger(__name__)
ANY_HOST: Final = "*"
HEADERS: Final = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("content-security-policy", "frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
"""Of every answer: it is what it says, stands in no frame, and tells no other site of itself."""
_HOST: Final = re.compile(r"(?:\[(?P<inner>[^\[\]]*)\]|(?P<name>[^:\[\]]*))(?::\d*)?")
_MOST_LOGGED: Final = 16
_OWN_PAGES: Final = (None, b"same-origin", b"none")
"""`Sec-Fetch-Site` of no browser, of a page of ours, and of somebody who typed the address."""


class OwnSites:
    """An application, for requests that came to it by a name of its own."""

    def __init__(self, app: Any, config: Config) -> None:
        self._app = app
        self._limits = config.limits
        has_tokens = config.auth.tokens_file is not None
        self._checks_pages = not has_tokens
        # A certificate of ours fits no other name, and without one of theirs nobody comes so far.
        self._checks_names = not has_tokens and config.tls.client_ca is None
        self._hosts = {host_name(host) for host in config.listen.hosts}
        if not _is_unspecified(config.listen.host):
            self._hosts.add(host_name(config.listen.host))
        self._logged: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
            return
        body = Body(receive, held_back=holds_body_back(scope))
        names = {name for name, _ in scope["headers"]}
        comes = not names.isdisjoint({b"content-length", b"transfer-encoding"})
        linger = (lambda: body.linger(refusal, self._limits)) if comes else None
        await refuse(send, refusal, kind_in(scope), linger)

    def _refusal(self, scope: Any) -> Refusal | None:
        """None where it is answered. No browser leaves out `Host`; who does is none."""
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if self._checks_names:
            for host in hosts:
                if not self._is_ours(host_name(host), scope):
                    self._log_once(host)
                    text = f"this server is not asked for by the name {host[:80]!r}; listen.hosts"
                    return Refusal(Cause.MISDIRECTED, f"{text} has the names that it has")
        if self._checks_pages and _is_of_another_site(scope, hosts):
            return Refusal(Cause.FORBIDDEN, "pages of other sites are not answered")
        return None

    def _is_ours(self, name: str, scope: Any) -> bool:
        if is_loopback(name) or name in self._hosts or ANY_HOST in self._hosts:
            return True
        reached = scope.get("server") or ("", None)
        return _is_address(name) and name == host_name(_bracketed(reached[0]))

    def _log_once(self, host: str) -> None:
        """So that whoever set up a client by another name finds out."""
        if host not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(host)
            text = "asked for by the name %s and not answered: it is not in listen.hosts"
            _LOG.warning(text, printable(host[:80]))


def _is_of_another_site(scope: Any, hosts: list[str]) -> bool:
    """A page of another site that asks for itself; following a link is not that."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").partition("://")[2] not in hosts:
        return True
    if headers.get(b"sec-fetch-site") in _OWN_PAGES:
        return False
    follows = headers.get(b"sec-fetch-mode") == b"navigate"
    opens = headers.get(b"sec-fetch-dest") == b"document" and scope["method"] in ("GET", "HEAD")
    return not (follows and opens)


@lru_cache(maxsize=1024)
def host_name(host: str) -> str:
    """Of a `Host`, without its port: lower-case, addresses as they are written shortest."""
    host = host.strip().lower()
    found = _HOST.fullmatch(host)  # anything else is no name, and so nobody's
    name = (found["inner"] or found["name"] or "").removesuffix(".") if found else host
    if not _is_address(name):
        return name
    address = ipaddress.ip_address(name)
    return str(getattr(address, "ipv4_mapped", None) or address)


@lru_cache(maxsize=1024)
def is_loopback(name: str) -> bool:
    """Whether a name or an address leads to this machine alone, wherever it is asked for."""
    if _is_address(name):
        return ipaddress.ip_address(name).is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_unspecified(host: str) -> bool:
    """All addresses of the machine: a server listens on that, and nobody asks for it."""
    return not host or (_is_address(host) and ipaddress.ip_address(host).is_unspecified)


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address
