"""What talks to a running server, from this machine or another: `connect` and what it gives.

    connection    questions and administration over the web port
    subscriber    bundles over the Flight port, each answered by its holder
    absence       how a server is waited for that goes away meanwhile
    server_file   DATA/server.json: where the server of a data directory is, while it runs
    workers       its workers, asked over sockets in the data directory: hot rows, how they are

In come an address and a token, out go bundles (Arrow) and rows; the server's own processes and the
command line use the last two, which need no token.

Importing the package costs nothing; each name brings what it needs with its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.lazy import lazily

if TYPE_CHECKING:
    from penstock.client.connection import Connection, connect
    from penstock.client.subscriber import RemoteDelivery, RemoteSubscriber
else:
    __getattr__ = lazily(
        __name__,
        {"connection": "Connection connect", "subscriber": "RemoteDelivery RemoteSubscriber"},
    )

__all__ = ["Connection", "RemoteDelivery", "RemoteSubscriber", "connect"]
