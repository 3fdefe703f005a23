"""Kinds of settings: how each is read from a file, the environment or a flag, and written again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.model.errors import InvalidSetting
from penstock.model.units import parse_duration, parse_size, show_duration, show_size


@dataclass(frozen=True, slots=True)
class Kind:
    """How a value is read from text, and written again."""

    read: Callable[[object], Any]
    show: Callable[[Any], object] = lambda value: value


def _integer(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidSetting(f"{value!r} is no whole number")
    return int(text)


def _port(value: object) -> int:
    port = _integer(value)
    if port > 65535:
        raise InvalidSetting(f"{value!r} is no port; the highest is 65535")
    return port


def _truth(value: object) -> bool:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    found = words.get(str(value).lower())
    if found is None:
        raise InvalidSetting(f"{value!r} is neither true nor false")
    return found


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidSetting(f"{value!r} is no text")
    return str(value)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, Sequence):
        return tuple(_text(part) for part in value)
    raise InvalidSetting(f"{value!r} is no list")


def _signals(value: object) -> tuple[str, ...]:
    return tuple(map(one_of("traces", "logs", "metrics").read, _texts(value)))


def _hours(value: object) -> float:
    """A bare number is hours; anything else says its unit."""
    try:
        return parse_duration(f"{value}h") / 3600
    except InvalidSetting:
        return parse_duration(value) / 3600


def _seconds(value: object) -> float:
    """A bare number is seconds; anything else says its unit."""
    try:
        return parse_duration(f"{value}s")
    except InvalidSetting:
        return parse_duration(value)


def _megabytes(value: object) -> int:
    """A bare number is megabytes; anything else says its unit."""
    try:
        return parse_size(f"{value}MB")
    except InvalidSetting:
        return parse_size(value)


def _properties(value: object) -> tuple[tuple[str, str], ...]:
    """A mapping; in the environment `name=value` with commas between them."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise InvalidSetting(f"{value!r} is no list of name=value")
        return tuple((name.strip(), text.strip()) for name, _, text in pairs)
    if isinstance(value, Mapping):
        return tuple((str(name), _text(each)) for name, each in value.items())
    raise InvalidSetting(f"{value!r} is no mapping of names to values")


def optional(kind: Kind) -> Kind:
    def read(value: object) -> Any:
        return None if value is None or value in ("", "none") else kind.read(value)

    def show(value: Any) -> object:
        return None if value is None else kind.show(value)

    return Kind(read, show)


def one_of(*words: str) -> Kind:
    def read(value: object) -> str:
        if value not in words:
            raise InvalidSetting(f"{value!r} is not one of {', '.join(words)}")
        return str(value)

    return Kind(read)


INTEGER = Kind(_integer)
TRUTH = Kind(_truth)
TEXT = Kind(_text)
PORT = Kind(_port)
TEXTS = Kind(_texts, list)
SIGNALS = Kind(_signals, list)
HOURS = Kind(_hours)
SECONDS = Kind(_seconds)
SIZE = Kind(parse_size, show_size)
MEGABYTES = Kind(_megabytes, show_size)
PROPERTIES = Kind(_properties, dict)
DURATION = Kind(parse_duration, show_duration)
FOLDER = Kind(lambda value: Path(_text(value)), str)
FILE = optional(FOLDER)
