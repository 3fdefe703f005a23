"""A configuration out of a file, the environment and flags, back as a file says it, its schema.

Precedence: flags over environment over file over defaults. `PENSTOCK_LISTEN_GRPC_PORT` is
`listen.grpc_port`. pydantic reads the classes of `config` and is imported here alone: what it finds
wrong is told in one sentence that names the key, and the nearest one where there is none such.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from penstock.model.errors import InvalidSetting
from penstock.model.fields import Settings, key_of
from penstock.server.configuration.config import Config

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

ENVIRONMENT: Final = "PENSTOCK_"
Tree: TypeAlias = Mapping[str, object]
Where: TypeAlias = tuple[int | str, ...]
"""The path of a key."""


def load(
    file: object, environment: Mapping[str, str], flags: Tree, *, path: Path | None = None
) -> Config:
    """The configuration; InvalidSetting names the key that is wrong, and the file if it has it."""
    sources = [_mapping(file), _from_environment(environment), flags]
    tree: dict[str, Any] = {}
    for source in sources:
        _merge(tree, source)
    try:
        return _adapter().validate_python(tree)
    except ValidationError as found:
        at, sentence = _told(found.errors(include_url=False)[0])
        said = [source for source in sources if _has(source, at)]
        in_file = path is not None and said == sources[:1]
        raise InvalidSetting(f"{path}: {sentence}" if in_file else sentence) from None


def document(config: Config) -> dict[str, Any]:
    """The configuration as a file would say it."""
    shown: dict[str, Any] = _adapter().dump_python(config, mode="json", by_alias=True)
    return shown


def schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors; defaults as people write them."""
    found = _adapter().json_schema(by_alias=True)
    shown = document(Config())
    _say_defaults(found["properties"], shown)
    for name, each in _sections().items():
        found["properties"][name] = {"$ref": f"#/$defs/{type(each).__name__}"}
        _say_defaults(found["$defs"][type(each).__name__]["properties"], shown[name])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def settings() -> Iterator[tuple[tuple[str, ...], dataclasses.Field[Any]]]:
    """Every setting, by its path in the file."""
    for each in dataclasses.fields(Config):
        if isinstance(each.default, Settings):
            for within in dataclasses.fields(each.default):
                yield (each.name, key_of(within)), within
        else:
            yield (key_of(each),), each


def variable(path: Sequence[str]) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT + "_".join(path).upper()


@cache
def _adapter() -> TypeAdapter[Config]:
    return TypeAdapter(Config)


def _sections() -> dict[str, Settings]:
    fields = dataclasses.fields(Config)
    return {each.name: each.default for each in fields if isinstance(each.default, Settings)}


def _say_defaults(properties: dict[str, Any], shown: Mapping[str, object]) -> None:
    for name, each in properties.items():
        each["default"] = shown[name]


def _mapping(value: object) -> Tree:
    """Of a whole file; a section with nothing but comments in it is not there."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidSetting("the configuration is no mapping of names to values")
    return {
        name: each for name, each in value.items() if each is not None or name not in _sections()
    }


def _merge(tree: dict[str, Any], over: Tree) -> None:
    for name, value in over.items():
        if isinstance(value, Mapping) and isinstance(tree.get(name), dict):
            _merge(tree[name], value)
        else:
            tree[name] = dict(value) if isinstance(value, Mapping) else value


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    known = {variable(path): path for path, _ in settings()}
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT):
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, 1, 0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidSetting(f"unknown environment variable {name}{hint}")
        *section, last = known[name]
        part = tree.setdefault(section[0], {}) if section else tree
        part[last] = value
    return tree


# --- what is wrong, in one sentence ------------------------------------------------------------


def _has(source: Any, at: Where) -> bool:
    for part in at:
        if not isinstance(source, Mapping) or part not in source:
            return False
        source = source[part]
    return True


def _told(error: ErrorDetails) -> tuple[Where, str]:
    """Which key is wrong, and what is wrong with it."""
    at, kind, context = error["loc"], error["type"], error.get("ctx", {})
    key = ".".join(map(str, at))
    if kind in {"unexpected_keyword_argument", "invalid_key"}:
        return at, _unknown([str(part) for part in at])
    if kind == "dataclass_type":
        return at, f"{key} is no mapping of names to values"
    if kind == "value_error":
        return _refused(at, context["error"])
    if "expected" in context:  # one of a few words
        choices = context["expected"].replace("'", "").replace(" or ", ", ")
        return at, f"{key}: {error['input']!r} is not one of {choices}"
    return at, f"{key}: {error['input']!r}: {error['msg']}"


def _refused(at: Where, error: InvalidSetting) -> tuple[Where, str]:
    """By the type of a value, which knows no name, or by a section, which names its fields."""
    _, *names = error.args
    if not names:
        return at, f"{'.'.join(map(str, at))}: {error}"
    section: Settings = Config() if not at else _sections()[str(at[0])]
    keys = {each.name: (*at, key_of(each)) for each in dataclasses.fields(section)}
    paths = {name: keys.get(name, tuple(name.split("."))) for name in names}
    return paths[names[0]], error.told(lambda name: ".".join(map(str, paths[name])))


def _unknown(path: list[str]) -> str:
    *section, last = path
    known = [each[-1] for each, _ in settings() if list(each[:-1]) == section]
    known += [] if section else list(_sections())
    near = difflib.get_close_matches(last, known, 1, 0.5)
    hint = f"; did you mean {'.'.join([*section, near[0]])}?" if near else ""
    return f"unknown setting {'.'.join(path)}{hint}"
