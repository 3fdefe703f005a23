"""OpenTelemetry into the lakehouse without losing a span."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.log import Log as Log
    from penstock.model.bundle import Bundle as Bundle
    from penstock.queue import Consumer as Consumer
    from penstock.queue import Producer as Producer
    from penstock.store import Store as Store

__version__ = "0.1.0"
__all__ = ["Bundle", "Consumer", "Log", "Producer", "Store", "__version__"]

_HOMES = {
    "Bundle": "penstock.model.bundle",
    "Consumer": "penstock.queue",
    "Log": "penstock.log",
    "Producer": "penstock.queue",
    "Store": "penstock.store",
}


def __getattr__(name: str) -> object:
    """Imports a public class with its first use, so that importing Penstock costs nothing."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")
