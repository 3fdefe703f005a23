"""Settings of the lake that cannot work are refused at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.lake.settings import LakeSettings
from penstock.model.errors import InvalidSetting


def test_the_lake_of_a_data_directory_is_inside_it(tmp_path: Path) -> None:
    """By an absolute path: Iceberg writes it into its metadata."""
    assert LakeSettings.of(tmp_path).warehouse == str(tmp_path / "lake")
    assert Path(LakeSettings.of(Path("data")).warehouse).is_absolute()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"warehouse": "s3://bucket/lake"}, "folder"),
        ({"warehouse": "/what?"}, "folder"),
        ({"warehouse": "/lake", "namespace": "a.b"}, "one word"),
        ({"warehouse": "/lake", "namespace": ""}, "one word"),
        ({"warehouse": "/lake", "snapshots_kept": 1}, "at least 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object], reason: str) -> None:
    """With the setting's name or its purpose."""
    with pytest.raises(InvalidSetting, match=reason):
        LakeSettings(**wrong)  # type: ignore[arg-type] # wrong on purpose


def test_a_remote_warehouse_needs_a_catalog_of_its_own() -> None:
    """With one it is fine."""
    settings = LakeSettings(warehouse="s3://bucket/lake", catalog={"type": "rest", "uri": "x"})
    assert settings.namespace == "otel"
