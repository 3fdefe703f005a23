"""Two subscribers of one store: one takes everything, the other refuses some of it."""

import tempfile

from penstock import Store
from penstock.model.slots import RAW_LOGS
from penstock.store import Subscription


def lake(subscription: Subscription) -> None:
    """Takes every bundle."""
    while delivery := subscription.next_bundle(timeout=0):
        delivery.ack()


def search(subscription: Subscription) -> None:
    """Is not ready at first, and will never take what is not UTF-8."""
    while delivery := subscription.next_bundle(timeout=1):
        try:
            words = [row.decode() for row in delivery.bundle[RAW_LOGS].column("data").to_pylist()]
        except UnicodeDecodeError:
            delivery.reject()  # never; counted apart
            continue
        if delivery.attempt == 1:
            delivery.nack(retry_after_s=0.05)  # not now; comes again
        else:
            delivery.ack()
            print(f"search has {words} at attempt {delivery.attempt}")


with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
    subscriptions = store.subscribe("lake"), store.subscribe("search")
    for message in (b"first", b"\xff", b"third"):
        store.append_durable(message)  # what is no bundle is kept as it is
        store.flush()  # so that each gets a bundle of its own
    lake(subscriptions[0])
    search(subscriptions[1])
    for each in store.subscribers():
        print(f"{each.name}: {each.acked} acked, {each.nacked} nacked, {each.rejected} rejected")
