"""Sends realistic generated telemetry over OTLP: a client, with nothing of the server in it.

services, calls   the shop: who there is, and who calls whom
shop              one trace after another, with errors and latency tails
requests, instruments   as OTLP requests, with marks where they are to vary
stamps            the same request again and again, with other ids and times, in microseconds
rate, sender      when to send, and what to do with the answer
process, fleet    one sending process, and several
"""
