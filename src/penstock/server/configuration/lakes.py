"""Where the lake is, as the configuration says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lake.settings import FOLDER, LakeSettings

if TYPE_CHECKING:
    from penstock.server.configuration.config import Config


def lake_settings(config: Config) -> LakeSettings:
    """Without a warehouse of its own the lake is in the data directory."""
    lake = config.lake
    warehouse = lake.warehouse or str((config.data_dir / FOLDER).absolute())
    return LakeSettings(
        warehouse=warehouse,
        catalog=dict(lake.catalog),
        namespace=lake.namespace,
        promoted=lake.promoted,
    )
