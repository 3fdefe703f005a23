"""Fields of settings: what they mean, their bounds, and how people write them.

Settings are frozen dataclasses of `Settings`, each field made by `setting`. Where a file is read,
pydantic reads the same classes (`server.configuration.loading`): the metadata of a field are
arguments of pydantic's `Field`, and `Written` speaks its protocol. Nothing here imports pydantic:
a process that is handed its settings, and a library, do without its 50 ms.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar, get_args, get_type_hints

from penstock.model.errors import InvalidSetting
from penstock.model.units import parse_duration, parse_size, show_duration, show_size


def setting(
    default: Any,
    meaning: str,
    *,
    key: str | None = None,
    over: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """A field: its default, what it means, what a file calls it if not by its name, its bounds.

    A mapping as default is copied for each object.
    """
    bounds = {"exclusiveMinimum": over, "minimum": least, "maximum": most}
    known = {name: bound for name, bound in bounds.items() if bound is not None}
    metadata: dict[str, Any] = {"description": meaning, "json_schema_extra": known}
    if key is not None:
        metadata["alias"] = key
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def setting_of(settings: type[Settings], name: str) -> Any:
    """The field of another class: one definition, for an object that hands it on to that class."""
    (same,) = (each for each in fields(settings) if each.name == name)
    return field(default=same.default, metadata=same.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a part of Penstock is told; whoever makes it, what cannot work is refused."""

    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "forbid"}

    def __post_init__(self) -> None:
        """InvalidSetting names the field."""
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(each.default, enum.Enum):  # its value is as good as itself
                choice = _choice(each.name, type(each.default), value)
                object.__setattr__(self, each.name, choice)
            else:
                check_bounds(each, value)
        self.check()

    def check(self) -> None:
        """Refuses fields that cannot work together."""


def key_of(each: Field[Any]) -> str:
    """What a file calls it."""
    return str(each.metadata.get("alias", each.name))


def values(settings: Settings, of: type[Settings]) -> dict[str, Any]:
    """The fields that it has in common with another class, to make one of that."""
    return {each.name: getattr(settings, each.name) for each in fields(of)}


def _choice(name: str, kind: type[enum.Enum], value: object) -> enum.Enum:
    try:
        return kind(value)
    except ValueError:
        *others, last = (str(choice.value) for choice in kind)
        raise InvalidSetting(f"{{}} is {', '.join(others)} or {last}", name) from None


def check_bounds(each: Field[Any], value: Any) -> None:
    """InvalidSetting where a value is not within them; None is."""
    if value is None:
        return
    bounds = each.metadata.get("json_schema_extra", {})
    over, least, most = map(bounds.get, ("exclusiveMinimum", "minimum", "maximum"))
    if over is not None and not value > over:  # so that NaN is refused too
        raise InvalidSetting(f"{{}} must be over {_shown(over)}", each.name)
    if least is not None and not value >= least:
        text = f"be at least {_shown(least)}" if least else "not be negative"
        raise InvalidSetting(f"{{}} must {text}", each.name)
    if most is not None and not value <= most:
        raise InvalidSetting(f"{{}} must be at most {_shown(most)}", each.name)


def _shown(bound: float) -> str:
    """Whole numbers are bytes, or small; others are seconds."""
    return show_size(bound) if isinstance(bound, int) else show_duration(bound)


# --- how values are written --------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """How a value is read from a file, the environment or a flag, and shown again.

    `read` raises InvalidSetting with a sentence about the value alone.
    """

    read: Callable[[object], Any]
    show: Callable[[Any], object]
    schema: Mapping[str, object]
    """For editors: JSON Schema of what may be written."""
    metavar: str = "TEXT"
    """What stands for it in the help of a command."""

    def __get_pydantic_core_schema__(self, _: object, __: object) -> object:
        """For pydantic: read and shown by these functions alone."""
        from pydantic_core import core_schema

        shown = core_schema.plain_serializer_function_ser_schema(self.show)
        return core_schema.no_info_plain_validator_function(self.read, serialization=shown)

    def __get_pydantic_json_schema__(self, _: object, __: object) -> dict[str, object]:
        """For pydantic."""
        return dict(self.schema)


class _OrNone:
    """Reads nothing, and the word `none`, as None."""

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[Any], Any]) -> object:
        """For pydantic: before anything else reads the value."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda value: None if value in ("", "none") else value, handler(source)
        )


def written_as(settings: type[Settings], name: str) -> Written:
    """How a field of the class is written."""
    found = _written_in(get_type_hints(settings, include_extras=True)[name])
    assert found is not None, f"{name} has no type that says how it is written"
    return found


def _written_in(hint: Any) -> Written | None:
    if isinstance(hint, Written):
        return hint
    inner = map(_written_in, get_args(hint))
    return next((found for found in inner if found is not None), None)


def _same(value: Any) -> Any:
    return value


def _count(value: object) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise InvalidSetting(f"{value!r} is no whole number")
    return int(text)


def _port(value: object) -> int:
    port = _count(value)
    if port > 65535:
        raise InvalidSetting(f"{value!r} is no port; the highest is 65535")
    return port


def _flag(value: object) -> bool:
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


def _bare(unit: str, read: Callable[[object], Any]) -> Callable[[object], Any]:
    """A bare number is in this unit; anything else says its own."""

    def either(value: object) -> Any:
        try:
            return read(f"{value}{unit}")
        except InvalidSetting:
            return read(value)

    return either


def _properties(value: object) -> dict[str, str]:
    """A mapping; in the environment `name=value` with commas between them."""
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        if not all(equals for _, equals, _ in pairs):
            raise InvalidSetting(f"{value!r} is no list of name=value")
        return {name.strip(): text.strip() for name, _, text in pairs}
    if isinstance(value, Mapping):
        return {str(name): _text(each) for name, each in value.items()}
    raise InvalidSetting(f"{value!r} is no mapping of names to values")


def words(**meanings: object) -> Written:
    """One word for each of a few values."""
    shown = {value: word for word, value in meanings.items()}

    def read(value: object) -> object:
        if not isinstance(value, str) or value not in meanings:
            raise InvalidSetting(f"{value!r} is not one of {', '.join(meanings)}")
        return meanings[value]

    return Written(read, shown.__getitem__, {"enum": list(meanings)})


def several(**meanings: object) -> Written:
    """Some of a few words."""
    one = words(**meanings)
    schema = {"type": ["array", "string"], "items": one.schema}
    return Written(lambda value: tuple(map(one.read, _texts(value))), list, schema)


_T = TypeVar("_T")
_AMOUNT: dict[str, object] = {"type": ["string", "number"]}
_INTEGER: dict[str, object] = {"type": ["integer", "string"]}
_LIST: dict[str, object] = {"type": ["array", "string"], "items": {"type": ["string", "number"]}}

OrNone: TypeAlias = Annotated[_T | None, _OrNone()]
Size: TypeAlias = Annotated[
    int, Written(parse_size, show_size, {**_AMOUNT, "examples": ["32MB"]}, "SIZE")
]
"""Bytes, written like `32MB` or `4GiB`."""
Megabytes: TypeAlias = Annotated[
    int, Written(_bare("MB", parse_size), show_size, {**_AMOUNT, "examples": [25, "25MB"]})
]
"""Bytes too; a bare number that is read counts millions of them."""
Duration: TypeAlias = Annotated[
    float,
    Written(parse_duration, show_duration, {**_AMOUNT, "examples": ["25ms", "1h30m"]}, "DURATION"),
]
"""Seconds, written like `25ms` or `1h30m`."""
Hours: TypeAlias = Annotated[
    float, Written(_bare("h", parse_duration), show_duration, {**_AMOUNT, "examples": [72, "3d"]})
]
"""Seconds too; a bare number that is read counts hours."""
Count: TypeAlias = Annotated[int, Written(_count, _same, _INTEGER, "NUMBER")]
Port: TypeAlias = Annotated[int, Written(_port, _same, {**_INTEGER, "maximum": 65535}, "PORT")]
Flag: TypeAlias = Annotated[bool, Written(_flag, _same, {"type": ["boolean", "string"]})]
Text: TypeAlias = Annotated[str, Written(_text, _same, {"type": ["string", "number"]})]
Texts: TypeAlias = Annotated[tuple[str, ...], Written(_texts, list, _LIST)]
Properties: TypeAlias = Annotated[
    Mapping[str, str], Written(_properties, dict, {"type": ["object", "string"]})
]
FilePath: TypeAlias = Annotated[
    Path, Written(lambda value: Path(_text(value)), str, {"type": "string"})
]
