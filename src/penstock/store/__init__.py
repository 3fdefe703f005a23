"""Bundles in, segments on disk, delivered to many subscribers and deleted when all have them.

In come bundles, or what clients sent; out come bundles, to each subscriber at least once. `store`
is the door, and its parts have one idea each. `holdings`: what is on disk, opened together (the
log, the `ack_log` with its journal, the folder of segments). `filling`: from the log into segments,
through `decoding`. `hub` and `subscribers`: who gets which bundle, and answers. `registration`: who
subscribes. `maintenance`: what goes, and when appends wait, within a `budget`. What they know is
`state`, changed by the events of `format`; `recovery` rebuilds it. From outside look `verify`,
`repair`, `holes`, and `outside` for whoever reads the files without asking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.store.budget import Budget as Budget
    from penstock.store.budget import EvenShare as EvenShare
    from penstock.store.budget import FairShare as FairShare
    from penstock.store.decoding import Decoded as Decoded
    from penstock.store.decoding import Decoder as Decoder
    from penstock.store.store import Store as Store
    from penstock.store.subscribers import Delivery as Delivery
    from penstock.store.subscribers import Subscription as Subscription
else:
    __getattr__ = lazily(
        __name__,
        {
            "budget": "Budget EvenShare FairShare",
            "decoding": "Decoded Decoder",
            "store": "Store",
            "subscribers": "Delivery Subscription",
        },
    )

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
