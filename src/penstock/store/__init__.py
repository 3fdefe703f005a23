"""Bundles in, segments on disk, delivered to many subscribers and deleted when all have them."""

from penstock.store.budget import Budget, EvenShare, FairShare
from penstock.store.decoding import Decoded, Decoder
from penstock.store.store import Store
from penstock.store.subscribers import Delivery, Subscription

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
