"""A store in ten lines: a bundle in, delivered to a subscriber, acknowledged, deleted."""

import tempfile

import pyarrow as pa

from penstock import Bundle, Store
from penstock.model.slots import SPANS

with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
    spans = pa.record_batch({"id": pa.array([0, 1], pa.uint16()), "name": ["pay", "ship"]})
    offset = store.append_durable(Bundle({SPANS: spans}))  # returns after fdatasync
    store.flush()  # seals now; by itself that happens after five seconds or 32 MiB
    with store.subscribe("exporter") as exporter:
        delivery = exporter.next_bundle()  # waits for one; a timeout gives None
        print(f"offset {offset}: {delivery.bundle[SPANS].column('name').to_pylist()}")
        delivery.ack().wait()  # or nack(), or reject()
    print(f"still to be delivered: {store.subscribers()[0].lag_bundles}")
