"""Settings that cannot work are refused before a log is opened with them."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.model import Durability, LogSettings
from penstock.model.errors import InvalidSetting
from penstock.model.settings import (
    GIB,
    KIB,
    MIB,
    Compression,
    SegmentSettings,
    SizePolicy,
    StoreSettings,
)

NAN = float("nan")
OUT_OF_BOUNDS = [
    ("commit_bytes", 0),
    ("sync_bytes", 0),
    ("sync_bytes", -1),
    ("queue_bytes", 0),
    ("max_message_bytes", 0),
    ("max_message_bytes", 32 * MIB + 1),
    ("commit_delay_s", -0.001),
    ("commit_delay_s", NAN),
    ("sync_interval_s", 0.0),
    ("sync_interval_s", NAN),
    ("rotate_bytes", 64 * KIB - 1),
    ("rotate_s", 0.0),
    ("rotate_s", NAN),
    ("cache_bytes", -1),
    ("cache_idle_s", -1.0),
    ("retention_s", -1.0),
    ("retention_s", NAN),
    ("retention_bytes", -1),
]
AT_BOUNDS = [
    ("commit_bytes", 1),
    ("sync_bytes", 1),
    ("max_message_bytes", 32 * MIB - 16),
    ("commit_delay_s", 0.0),
    ("rotate_bytes", 64 * KIB),
    ("rotate_s", None),
    ("cache_bytes", 0),
    ("cache_idle_s", 0.0),
    ("retention_s", 0.0),
    ("retention_bytes", 0),
    ("durability", Durability.BUFFER),
]


@pytest.mark.parametrize(("field", "value"), OUT_OF_BOUNDS)
def test_value_out_of_bounds_is_refused_by_field(field: str, value: float) -> None:
    """The error names the setting to change."""
    with pytest.raises(InvalidSetting, match=field):
        LogSettings(**{field: value})


@pytest.mark.parametrize(("field", "value"), AT_BOUNDS)
def test_value_at_its_bound_is_taken(field: str, value: object) -> None:
    """The bounds themselves belong to the range."""
    assert getattr(LogSettings(**{field: value}), field) == value


def test_every_number_has_a_tested_bound() -> None:
    """A new setting needs its line in this file."""
    tested = {field for field, _ in OUT_OF_BOUNDS}
    assert tested == {field.name for field in dataclasses.fields(LogSettings)} - {"durability"}


def test_message_is_bounded_below_what_a_frame_can_say() -> None:
    """A frame's length has 32 bits; the queue's size does not lift that bound."""
    with pytest.raises(InvalidSetting, match="max_message_bytes"):
        LogSettings(queue_bytes=8 * GIB, max_message_bytes=2 * GIB)


def test_settings_are_frozen_and_named() -> None:
    """A log's settings never change under it, and no call confuses their order."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        LogSettings().rotate_bytes = 1
    with pytest.raises(TypeError):
        LogSettings(Durability.SYNC)


def test_invalid_setting_is_a_value_error() -> None:
    """Callers who know nothing of Penstock's errors catch it as what it is."""
    with pytest.raises(ValueError, match="rotate_bytes"):
        LogSettings(rotate_bytes=1)


def test_durability_may_be_given_by_its_name() -> None:
    """And by nothing else: an unknown one would sync nothing."""
    assert LogSettings(durability="interval").durability is Durability.INTERVAL
    for nonsense in ("fsync", None, True):
        with pytest.raises(InvalidSetting, match="durability"):
            LogSettings(durability=nonsense)


# --- segments and stores -----------------------------------------------------------------------

STORE_OUT_OF_BOUNDS = [
    (SegmentSettings, "target_bytes", 64 * KIB - 1),
    (SegmentSettings, "max_open_s", 0.0),
    (SegmentSettings, "max_open_s", NAN),
    (SegmentSettings, "max_streams", 63),
    (SegmentSettings, "max_streams", 65_536),
    (SegmentSettings, "dictionary_values", -1),
    (SegmentSettings, "dictionary_values", 2**31),
    (StoreSettings, "budget_bytes", 128 * MIB - 1),
    (StoreSettings, "max_log_bytes", 128 * MIB - 1),
    (StoreSettings, "max_age_s", 0.0),
    (StoreSettings, "max_age_s", NAN),
    (StoreSettings, "headroom_bytes", -1),
    (StoreSettings, "max_in_flight", 0),
    (StoreSettings, "claim_s", 0.0),
    (StoreSettings, "claim_s", NAN),
    (StoreSettings, "retry_first_s", 0.0),
    (StoreSettings, "retry_first_s", 61.0),
    (StoreSettings, "retry_most_s", 0.05),
    (StoreSettings, "retry_most_s", NAN),
    (StoreSettings, "ack_log_bytes", 64 * KIB - 1),
    (StoreSettings, "seal_retries", -1),
]
STORE_AT_BOUNDS = [
    (SegmentSettings, "target_bytes", 64 * KIB),
    (SegmentSettings, "max_streams", 64),
    (SegmentSettings, "max_streams", 65_535),
    (SegmentSettings, "dictionary_values", 0),
    (SegmentSettings, "dictionary_values", 2**31 - 1),
    (StoreSettings, "budget_bytes", 128 * MIB),
    (StoreSettings, "max_log_bytes", 128 * MIB),
    (StoreSettings, "max_log_bytes", None),
    (StoreSettings, "budget_bytes", None),
    (StoreSettings, "max_age_s", None),
    (StoreSettings, "headroom_bytes", 0),
    (StoreSettings, "max_in_flight", 1),
    (StoreSettings, "claim_s", None),
    (StoreSettings, "retry_most_s", 0.1),
    (StoreSettings, "ack_log_bytes", 64 * KIB),
    (StoreSettings, "seal_retries", 0),
]


@pytest.mark.parametrize(("kind", "field", "value"), STORE_OUT_OF_BOUNDS)
def test_value_out_of_bounds_is_refused_for_stores_too(
    kind: type, field: str, value: float
) -> None:
    """The error names the setting to change."""
    with pytest.raises(InvalidSetting, match=field):
        kind(**{field: value})


@pytest.mark.parametrize(("kind", "field", "value"), STORE_AT_BOUNDS)
def test_value_at_its_bound_is_taken_for_stores_too(kind: type, field: str, value: object) -> None:
    """The bounds themselves belong to the range."""
    assert getattr(kind(**{field: value}), field) == value


@pytest.mark.parametrize("kind", [SegmentSettings, StoreSettings])
def test_every_number_of_a_store_has_a_tested_bound(kind: type) -> None:
    """A new setting needs its line in this file."""
    tested = {field for of, field, _ in STORE_OUT_OF_BOUNDS if of is kind}
    others = {"compression", "log", "segment", "size_policy"}
    assert tested == {field.name for field in dataclasses.fields(kind)} - others


@pytest.mark.parametrize(
    ("kind", "field", "choice"),
    [
        (SegmentSettings, "compression", Compression.ZSTD),
        (StoreSettings, "size_policy", SizePolicy.DROP_OLDEST),
    ],
)
def test_choice_may_be_given_by_its_name(kind: type, field: str, choice: object) -> None:
    """And by nothing else."""
    assert getattr(kind(**{field: choice.value}), field) is choice
    for nonsense in ("other", None, True):
        with pytest.raises(InvalidSetting, match=field):
            kind(**{field: nonsense})


def test_budget_has_room_for_four_segments_whatever_their_size() -> None:
    """Less could neither be sealed nor delivered."""
    small = SegmentSettings(target_bytes=64 * KIB)
    assert StoreSettings(segment=small, budget_bytes=256 * KIB).budget_bytes == 256 * KIB
    with pytest.raises(InvalidSetting, match="budget_bytes"):
        StoreSettings(segment=small, budget_bytes=256 * KIB - 1)


def test_log_of_a_store_keeps_nothing_that_is_in_segments() -> None:
    """A log by itself keeps everything."""
    assert StoreSettings().log.retention_bytes == 0
    assert LogSettings().retention_bytes is None
