"""The application on the web port: one router over everything that answers there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.auth import Gate
from penstock.server.querying.api import QueryApi
from penstock.server.querying.snapshot_api import SnapshotApi
from penstock.server.web.admin import Admin
from penstock.server.web.openapi import openapi_route
from penstock.server.web.routing import Router
from penstock.server.web.topics_api import TopicsApi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.children.guarding import Guarded
    from penstock.server.configuration.config import Config
    from penstock.server.querying.queries import Queries


def web_application(
    config: Config, workers: Sequence[Guarded], queries: Queries, flight: Guarded | None = None
) -> Router:
    """Health, metrics and the API."""
    kept = (TopicsApi(workers), QueryApi(config, queries), SnapshotApi(queries))
    parts = (Admin(config, workers, flight, queries), *(kept if config.buffer.url is None else ()))
    routes = [route for part in parts for route in part.routes()]
    return Router([*routes, openapi_route()], Gate(config.auth.tokens_file), config.limits)
