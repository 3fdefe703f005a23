"""Who may come in: bearer tokens from a file, each with its roles and their namespaces.

    # a token or its digest, then what it may do and where; * is any namespace
    6b1f…           ingest=checkout,payment query=checkout
    sha256:91c2…    admin=*
    77aa…           checkout            as 0.1 wrote it: ingest, query and subscribe in these

The file is read again when it changes. One that is missing, empty or wrong lets nobody in until it
is mended: who was to lose access must not keep it by somebody's slip. Tokens are kept and compared
as digests, and never logged.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import logging
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidArgument, InvalidSetting, InvalidTopic
from penstock.model.printable import check_printable
from penstock.model.topics import encode_part
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_LOG = logging.getLogger(__name__)
ANY: Final = "*"
DEFAULT_NAMESPACE: Final = "default"
NAMESPACE_HEADER: Final = "x-penstock-namespace"
DIGEST: Final = "sha256:"
"""Before the digest of a token, where a file has that instead."""
LOOK_S: Final = 0.5
"""How often a stream that goes on looks whether its token still stands."""
_LEAST_TOKEN: Final = 8
_COMMENT = re.compile(r"(^|\s)#.*")
_DIGEST: Final = re.compile(rf"{DIGEST}([0-9a-f]{{64}})")


class Role(enum.Enum):
    """What a token may do in its namespaces."""

    INGEST = "ingest"
    """Send telemetry."""
    QUERY = "query"
    """Read rows: SQL, traces, fresh rows over Flight."""
    SUBSCRIBE = "subscribe"
    """Register subscribers, take bundles and answer for them."""
    ADMIN = "admin"
    """Register and remove subscribers; with all namespaces, what concerns everybody too."""


FIRST_ROLES: Final = (Role.INGEST, Role.QUERY, Role.SUBSCRIBE)
"""Those of a token of 0.1, which names none."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: what is known of a token."""

    digest: bytes
    grants: Mapping[Role, tuple[str, ...]]
    """Namespaces by role; ANY is any. Without a role it may not do that anywhere."""

    @property
    def identity(self) -> str:
        """How it is named in counts and files: never the token. Without tokens all are one."""
        return self.digest.hex()[:16]

    @property
    def oversees(self) -> bool:
        """Whether it may see and do what concerns everybody's data: `admin`, or all the rest."""
        is_admin = ANY in self.grants.get(Role.ADMIN, ())
        return is_admin or all(ANY in self.grants.get(role, ()) for role in FIRST_ROLES)

    def namespace(self, role: Role, asked: str | None) -> str:
        """The one namespace of a request; Refusal where the token may not use it so."""
        names = self.grants.get(role, ())
        if not names:
            raise _not_in(role)
        if not asked:
            everywhere = ANY in names or DEFAULT_NAMESPACE in names
            return DEFAULT_NAMESPACE if everywhere else names[0]
        if ANY in names or asked in names:
            return asked
        raise _forbidden(role, asked)

    def readable(self, roles: Iterable[Role], asked: str | None) -> frozenset[str] | None:
        """The namespaces where it has one of the roles, or the one asked for; None: all."""
        names = {name for role in roles for name in self.grants.get(role, ())}
        if not names:
            raise _not_in(*roles)
        if asked:
            if ANY not in names and asked not in names:
                raise _forbidden(next(iter(roles)), asked)
            return frozenset({asked})
        return None if ANY in names else frozenset(names)

    def check_oversees(self) -> None:
        """Refusal unless it does."""
        if not self.oversees:
            text = "this is for tokens with admin=*, or with every other role in all namespaces"
            raise Refusal(Cause.FORBIDDEN, text)


def _forbidden(role: Role, asked: str) -> Refusal:
    text = f"the token may not use the namespace {asked[:80]!r} for {role.value}"
    return Refusal(Cause.FORBIDDEN, text)


def _not_in(*roles: Role) -> Refusal:
    names = " or ".join(role.value for role in roles)
    return Refusal(Cause.FORBIDDEN, f"the token has not the role {names}")


ANYBODY: Final = Caller(b"", dict.fromkeys(Role, (ANY,)))
"""Where no tokens are used: whoever reaches the port."""
NOBODY: Final = Caller(b"", {})
"""Who showed no token that is known, where that is allowed."""


class Gate:
    """Lets requests in, or not. Safe from any thread."""

    def __init__(self, tokens_file: Path | None) -> None:
        """A file that cannot be read lets nobody in; a server reads it before it starts."""
        self._path = tokens_file
        self._seen: tuple[int, ...] | None = None
        self._callers: tuple[Caller, ...] = ()
        self.problem: str | None = None
        """Why nobody comes in."""
        if tokens_file is not None:
            self._read(_change_of(tokens_file))

    @property
    def wants_tokens(self) -> bool:
        """Whether a request needs one."""
        return self._path is not None

    def caller(self, authorization: str | None) -> Caller:
        """Who shows this; Refusal where it is nobody who may come in."""
        if self._path is None:
            return ANYBODY
        if self.problem is not None:
            # To be tried again: it is our file that is wrong, and exporters drop at a 401.
            text = "nobody can be let in at present: the tokens cannot be read"
            raise Refusal(Cause.UNAVAILABLE, text, retry_after_s=5.0)
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Refusal(Cause.UNAUTHENTICATED, "a bearer token is needed")
        caller = self._find(secret.strip())
        if caller is None:
            raise Refusal(Cause.UNAUTHENTICATED, "the bearer token is not known")
        return caller

    def admit(self, authorization: str | None, namespace: str | None) -> Admitted:
        """The namespace that telemetry may go to; Refusal where it may to none."""
        caller = self.caller(authorization)
        admitted = Admitted(self, caller, caller.namespace(Role.INGEST, namespace))
        try:
            check_printable(admitted.namespace, "a namespace")
        except InvalidArgument as error:
            raise Refusal(Cause.INVALID, str(error)) from None
        return admitted

    def check(self, caller: Caller) -> None:
        """Refusal where somebody who was let in would not be any more, or not as before."""
        self.refresh()
        if self._path is not None and caller not in self._callers:
            raise Refusal(Cause.UNAUTHENTICATED, "the token was withdrawn or changed")

    def refresh(self) -> None:
        """Reads the file again if it has changed."""
        if self._path is None:
            return
        seen = _change_of(self._path)
        if seen != self._seen or seen is None:
            self._read(seen)

    def _read(self, seen: tuple[int, ...] | None) -> None:
        """`seen` was looked at before, so that no change after it is missed."""
        assert self._path is not None
        before, problem = self.problem, None
        try:
            callers = read_tokens(self._path)
        except (OSError, InvalidSetting) as error:
            callers, problem = (), f"nobody is let in, since the tokens cannot be read: {error}"
            seen = None if isinstance(error, OSError) else seen  # may pass without a change
        if problem is None and self._callers:
            _LOG.info("read %d tokens again", len(callers))
        elif problem is not None and problem != before:
            _LOG.error("%s", problem)
        self._callers, self.problem, self._seen = callers, problem, seen

    def _find(self, secret: str) -> Caller | None:
        """Looks at every token, so that the time tells nothing; of two that are equal, the last."""
        digest, found = digest_of(secret), None
        for caller in self._callers:
            if hmac.compare_digest(caller.digest, digest):
                found = caller
        return found


@dataclass(frozen=True, slots=True)
class Admitted:
    """A request that was let in, to one namespace."""

    gate: Gate
    caller: Caller
    namespace: str

    def check(self) -> None:
        """Last before it is stored: its body may have taken long. Refusal where it is too late."""
        self.gate.check(self.caller)


class Standing:
    """Whether the token of a stream that goes on still stands; it is looked at now and then."""

    def __init__(self, gate: Gate, caller: Caller) -> None:
        self._gate = gate
        self._caller = caller
        self._looked = time.monotonic()

    @property
    def who(self) -> str:
        """Whose token it is."""
        return self._caller.identity

    def check(self) -> None:
        """Refusal where it does not; nothing more may be sent then."""
        if time.monotonic() - self._looked >= LOOK_S:
            self._gate.check(self._caller)
            self._looked = time.monotonic()


def namespace_of(headers: Mapping[str, str]) -> str | None:
    """What the header says. Headers are bytes, read as Latin-1; a namespace in them is UTF-8."""
    header = headers.get(NAMESPACE_HEADER)
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise Refusal(Cause.INVALID, f"{NAMESPACE_HEADER} is not UTF-8") from None


def read_tokens(path: Path) -> tuple[Caller, ...]:
    """The tokens in a file; InvalidSetting says which line is wrong, not what it says."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise InvalidSetting(f"{path} is not a text in UTF-8") from None
    callers = []
    for number, line in enumerate(lines, 1):
        try:
            caller = read_line(line)
        except InvalidSetting as error:
            raise InvalidSetting(f"{path}, line {number}: {error}") from None
        callers += [] if caller is None else [caller]
    if not callers:
        raise InvalidSetting(f"{path} holds no token, so nobody could come in")
    return tuple(callers)


def read_line(line: str) -> Caller | None:
    """The token of a line; None where it has none."""
    words = _COMMENT.sub("", line).split()
    return _caller(*words) if words else None


def _caller(token: str, *rights: str) -> Caller:
    if len(token) < _LEAST_TOKEN:
        raise InvalidSetting(f"a token has at least {_LEAST_TOKEN} characters")
    known = _DIGEST.fullmatch(token)
    return Caller(bytes.fromhex(known[1]) if known else digest_of(token), read_grants(rights))


def read_grants(words: Iterable[str]) -> dict[Role, tuple[str, ...]]:
    """What `ingest=a,b query=*` gives; as in 0.1 without any role, the first three."""
    words = tuple(words)
    if not words or (len(words) == 1 and "=" not in words[0]):
        return dict.fromkeys(FIRST_ROLES, _namespaces(words[0] if words else ANY))
    grants: dict[Role, tuple[str, ...]] = {}
    for word in words:
        name, equals, names = word.partition("=")
        role = next((each for each in Role if each.value == name), None)
        if role is None or not equals or role in grants:
            roles = ", ".join(each.value for each in Role)
            raise InvalidSetting(f"a right is one of {roles}, each once, then = and namespaces")
        grants[role] = _namespaces(names)
    return grants


def _namespaces(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        try:
            encode_part(name)
        except InvalidTopic:
            raise InvalidSetting("namespaces are names, separated by commas") from None
    return names


def digest_of(secret: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(secret.encode()).digest()


def _change_of(path: Path) -> tuple[int, ...] | None:
    """What changes with the file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
