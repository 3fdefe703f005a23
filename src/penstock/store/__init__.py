"""Bundles in, segments on disk, delivered to many subscribers and deleted when all have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.store.budget import Budget as Budget
    from penstock.store.budget import EvenShare as EvenShare
    from penstock.store.budget import FairShare as FairShare
    from penstock.store.decoding import Decoded as Decoded
    from penstock.store.decoding import Decoder as Decoder
    from penstock.store.store import Store as Store
    from penstock.store.subscribers import Delivery as Delivery
    from penstock.store.subscribers import Subscription as Subscription

__all__ = [
    "Budget",
    "Decoded",
    "Decoder",
    "Delivery",
    "EvenShare",
    "FairShare",
    "Store",
    "Subscription",
]

_HOMES = {
    "Budget": "budget",
    "Decoded": "decoding",
    "Decoder": "decoding",
    "Delivery": "subscribers",
    "EvenShare": "budget",
    "FairShare": "budget",
    "Store": "store",
    "Subscription": "subscribers",
}


def __getattr__(name: str) -> object:
    """With its first use: who only asks for a budget needs no Arrow."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"penstock.store.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'penstock.store' has no attribute {name!r}")
