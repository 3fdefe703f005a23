"""Topic names and the folder names that hold them.

A topic is `/namespace/name`. Each part becomes one folder name by an encoding without aliases:
two different topics never share a folder, not even on a file system that ignores case.

    a-z 0-9 _ - .   stand for themselves, but a dot never first or last
    everything else becomes %xx for each byte of its UTF-8 form, upper-case letters included
    a name that Windows reserves (con, nul, com1, …) has its first letter encoded
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.model.errors import InvalidTopic

MAX_PART_BYTES = 200
"""Longest encoded part: file systems allow 255 bytes, and temporary names need a suffix."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f/\\]")
_FOLDER = re.compile(r"(?:[a-z0-9_.-]|%[0-9a-f]{2})+")


@dataclass(frozen=True, slots=True, order=True)
class Topic:
    """The name of a topic. `str(topic)` is `/namespace/name`."""

    namespace: str
    name: str

    def __post_init__(self) -> None:
        """Refuses what cannot be stored, before anything touches the disk."""
        encode_part(self.namespace)
        encode_part(self.name)

    @classmethod
    def parse(cls, text: str) -> Topic:
        """`/namespace/name`, or a bare `name` in the namespace `default`."""
        parts = text.removeprefix("/").split("/")
        if text.startswith("/") and len(parts) == 2:
            return cls(parts[0], parts[1])
        if not text.startswith("/") and len(parts) == 1:
            return cls("default", parts[0])
        raise InvalidTopic(f"topic {text[:80]!r} is not of the form /namespace/name")

    def __str__(self) -> str:
        return f"/{self.namespace}/{self.name}"


def encode_part(part: str) -> str:
    """The folder name of a namespace or topic name; InvalidTopic where there is none."""
    if not part:
        raise InvalidTopic("a topic has a namespace and a name, neither of them empty")
    if _CONTROL.search(part):
        raise InvalidTopic(f"{part[:80]!r} holds a control character or a slash")
    try:
        raw = part.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidTopic(f"{part[:80]!r} is not valid Unicode") from None
    encoded = [_encode_byte(byte) for byte in raw[: MAX_PART_BYTES + 1]]
    for edge in (0, -1):
        if encoded[edge] == ".":
            encoded[edge] = "%2e"
    if _RESERVED.fullmatch(part):
        encoded[0] = f"%{raw[0]:02x}"
    folder = "".join(encoded)
    if len(folder) > MAX_PART_BYTES:
        raise InvalidTopic(f"{part[:80]!r}… is longer than {MAX_PART_BYTES} bytes once encoded")
    return folder


def decode_part(folder: str) -> str:
    """The name that `encode_part` gave this folder; InvalidTopic for any other folder name."""
    if _FOLDER.fullmatch(folder):
        raw = re.sub(rb"%(..)", lambda m: bytes([int(m[1], 16)]), folder.encode("ascii"))
        try:
            part = raw.decode("utf-8")
            if encode_part(part) == folder:
                return part
        except (UnicodeDecodeError, InvalidTopic):
            pass
    raise InvalidTopic(f"{folder[:80]!r} is not the folder of a topic")


def _encode_byte(byte: int) -> str:
    return chr(byte) if byte in _PLAIN else f"%{byte:02x}"
