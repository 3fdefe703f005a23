"""Who may come in: bearer tokens from a file, each with the namespaces that it may use.

    # one token a line, then its namespaces; * is any
    6b1f… checkout,payment
    91c2… *

The file is read again when it changes. Tokens are kept and compared as digests, and never logged.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.model.errors import InvalidSetting, InvalidTopic
from penstock.model.topics import encode_part
from penstock.server.refusals import Cause, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_LOG = logging.getLogger(__name__)
ANY: Final = "*"
DEFAULT_NAMESPACE: Final = "default"
NAMESPACE_HEADER: Final = "x-penstock-namespace"
_LEAST_TOKEN: Final = 8
_COMMENT = re.compile(r"(^|\s)#.*")


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token."""

    digest: bytes
    namespaces: tuple[str, ...]

    def namespace(self, asked: str | None) -> str:
        """The namespace of a request; Refusal where the token may not use it."""
        if not asked:
            everywhere = ANY in self.namespaces or DEFAULT_NAMESPACE in self.namespaces
            return DEFAULT_NAMESPACE if everywhere else self.namespaces[0]
        if ANY in self.namespaces or asked in self.namespaces:
            return asked
        raise Refusal(Cause.FORBIDDEN, f"the token may not use the namespace {asked[:80]!r}")

    def readable(self, asked: str | None) -> frozenset[str] | None:
        """The namespaces whose rows it may see, or the one that is asked for; None: all."""
        if asked:
            return frozenset({self.namespace(asked)})
        return None if ANY in self.namespaces else frozenset(self.namespaces)


class Gate:
    """Lets requests in, or not."""

    def __init__(self, tokens_file: Path | None) -> None:
        self._path = tokens_file
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()
        if tokens_file is not None:
            self._seen = _change_of(tokens_file)  # first, so that no change after it is missed
            self._tokens = read_tokens(tokens_file)

    @property
    def wants_tokens(self) -> bool:
        """Whether a request needs one."""
        return self._path is not None

    def admit(self, authorization: str | None, namespace: str | None) -> str:
        """The namespace that the request may use; Refusal where it may use none."""
        token = self._token(authorization)
        return (namespace or DEFAULT_NAMESPACE) if token is None else token.namespace(namespace)

    def readable(self, authorization: str | None, namespace: str | None) -> frozenset[str] | None:
        """The namespaces whose rows a reader may see; None: all. Refusal where it may none."""
        token = self._token(authorization) or Token(b"", (ANY,))
        return token.readable(namespace)

    def _token(self, authorization: str | None) -> Token | None:
        """None where no token is needed."""
        if self._path is None:
            return None
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise Refusal(Cause.UNAUTHENTICATED, "a bearer token is needed")
        token = self._find(secret.strip())
        if token is None:
            raise Refusal(Cause.UNAUTHENTICATED, "the bearer token is not known")
        return token

    def refresh(self) -> None:
        """Reads the file again if it has changed; a missing or broken one changes nothing."""
        if self._path is None:
            return
        seen = _change_of(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._tokens = read_tokens(self._path)
            _LOG.info("read %d tokens again", len(self._tokens))
        except (OSError, InvalidSetting) as error:
            _LOG.error("the tokens stay as they were: %s", error)
            if isinstance(error, OSError):
                self._seen = None  # one that is missing is; any other is tried again

    def _find(self, secret: str) -> Token | None:
        """Looks at every token, so that the time tells nothing."""
        digest, found = _digest(secret), None
        for token in self._tokens:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found


def namespace_of(headers: Mapping[str, str]) -> str | None:
    """What the header says. Headers are bytes, read as Latin-1; a namespace in them is UTF-8."""
    header = headers.get(NAMESPACE_HEADER)
    try:
        return None if header is None else header.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise Refusal(Cause.INVALID, f"{NAMESPACE_HEADER} is not UTF-8") from None


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens in a file; InvalidSetting says which line is wrong, not what it says."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InvalidSetting(f"{path} is not a text in UTF-8") from None
    tokens = []
    for number, line in enumerate(lines, 1):
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        names = tuple(words[1].split(",")) if len(words) > 1 else (ANY,)
        if len(words) > 2 or len(words[0]) < _LEAST_TOKEN or not all(map(_is_namespace, names)):
            raise InvalidSetting(
                f"{path}, line {number}: a token of at least {_LEAST_TOKEN} characters and, "
                "separated by commas, its namespaces"
            )
        tokens.append(Token(_digest(words[0]), names))
    if not tokens:
        raise InvalidSetting(f"{path} holds no token, so nobody could come in")
    return tuple(tokens)


def _is_namespace(name: str) -> bool:
    try:
        encode_part(name)
    except InvalidTopic:
        return False
    return True


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _change_of(path: Path) -> tuple[int, ...] | None:
    """What changes with the file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
