"""The web port: who asks for what, and what is known of the server.

In come requests over HTTP; out go health, metrics, status and the answers of `querying`.

routing         the first route that fits; who may; how answers are sent
admin           health, metrics, status, flush; topics and subscribers
exposition      one page of metrics out of those of several processes
openapi         the same, described
"""
