"""A request on its way to the log: taken from the wire, bounded, checked, stored, answered.

In come requests of OTLP; out goes an answer, after the message is durable, or a `Refusal` that says
why nothing of it was stored. Nothing here knows who reads the log afterwards.

grpc, http      the two ports: who sends, how much, in time
admission       whether there is room for one more
compression     what it is unpacked by, up to a bound
checking        whether it can be stored; large ones in another process (`checker`)
ingest          from there to durable; `Topics` is all that is known of who keeps it
repeats         requests that come again are known, and not stored again
buffer          without a disk: from there to the queue on object storage
"""
