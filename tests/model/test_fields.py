"""What a field of settings says: its bounds, its key, and how its value is written."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated

import pytest

from penstock.model.errors import InvalidSetting
from penstock.model.fields import (
    Count,
    Duration,
    Hours,
    Megabytes,
    OrNone,
    Settings,
    Size,
    key_of,
    setting,
    setting_of,
    values,
    words,
    written_as,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tank(Settings):
    """Settings of nothing that there is."""

    volume_bytes: Size = setting(2**20, "How much it holds.", key="volume", least=2**16, most=2**30)
    drain_s: OrNone[Duration] = setting(5.0, "How long it takes.", key="drain", over=0)
    valves: Count = setting(3, "How many.")
    lid: Annotated[bool, words(open=False, shut=True)] = setting(True, "Whether rain gets in.")
    age_s: Hours = setting(3600.0, "How old it is.")
    load_bytes: Megabytes = setting(1_000_000, "What is in it.")

    def check(self) -> None:
        """Two that contradict each other."""
        if self.load_bytes > self.volume_bytes:
            raise InvalidSetting("{} does not fit into {}", "load_bytes", "volume_bytes")


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("volume_bytes", 1, "volume_bytes must be at least 64KiB"),
        ("volume_bytes", 2**31, "volume_bytes must be at most 1GiB"),
        ("drain_s", 0.0, "drain_s must be over 0"),
        ("drain_s", float("nan"), "drain_s must be over 0"),
        ("load_bytes", 2**21, "load_bytes does not fit into volume_bytes"),
    ],
)
def test_what_cannot_work_is_told_by_field(field: str, value: float, told: str) -> None:
    """Whoever makes the object; bounds are shown as people write them."""
    with pytest.raises(InvalidSetting, match=f"^{told}$"):
        Tank(**{field: value})


def test_none_is_within_every_bound() -> None:
    """It says that there is no such limit."""
    assert Tank(drain_s=None).drain_s is None


def test_error_is_told_in_other_names() -> None:
    """Who reads a file knows its keys and nothing else."""
    with pytest.raises(InvalidSetting) as caught:
        Tank(load_bytes=2**21)
    assert caught.value.told(str.upper) == "LOAD_BYTES does not fit into VOLUME_BYTES"


def test_text_without_fields_may_have_braces() -> None:
    """What somebody wrote is repeated as it is."""
    assert str(InvalidSetting("'{}' is no size")) == "'{}' is no size"


@pytest.mark.parametrize(
    ("field", "text", "value", "shown"),
    [
        ("volume_bytes", "1MiB", 2**20, "1MiB"),
        ("drain_s", "1h30m", 5400.0, "90m"),
        ("valves", "17", 17, 17),
        ("lid", "shut", True, "shut"),
        ("age_s", "72", 72 * 3600.0, "3d"),
        ("age_s", "25m", 1500.0, "25m"),
        ("load_bytes", 25, 25_000_000, "25MB"),
        ("load_bytes", "1GiB", 2**30, "1GiB"),
    ],
)
def test_value_is_read_and_shown_by_its_type(
    field: str, text: object, value: object, shown: object
) -> None:
    """A bare number counts what its type says."""
    written = written_as(Tank, field)
    assert written.read(text) == value
    assert written.show(value) == shown


def test_field_of_another_class_is_the_same() -> None:
    """With its default, its key and its bounds: there is one definition."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Cellar(Settings):
        volume_bytes: Size = setting_of(Tank, "volume_bytes")

    (field,) = fields(Cellar)
    assert (field.default, key_of(field)) == (2**20, "volume")
    assert values(Cellar(volume_bytes=2**17), Cellar) == {"volume_bytes": 2**17}
    with pytest.raises(InvalidSetting, match="volume_bytes"):
        Cellar(volume_bytes=1)
