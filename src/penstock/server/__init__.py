"""OTLP in: receives, validates, stores durably, and only then answers.

In come requests over gRPC and HTTP, and questions over HTTP and Arrow Flight; out go
acknowledgements of what is on disk, bundles for subscribers, and answers. Read in this order:

supervisor      `penstock serve`: the ports, and the processes that it starts again
worker          one receiving process: its ports, and what is behind them
with_disk       behind them: stores in the data directory; `without_disk`: the queue
receiving/      a request from the wire to the log, or refused by name
keeping/        the stores: opened, decoded for, closed
flight/         bundles and hot rows for others; `querying/`: SQL; `web/`: health and the API
http/           what all HTTP ports have in common
refusals, places, auth, certificates, descriptors, capping, log_lines, tasks: used by several
configuration/  what a server is told

A rule of the linter holds that what receives and what keeps know nothing of each other: between
them is `receiving.ingest.Topics`, which `with_disk` fills with `keeping.stores.Stores`.
"""
