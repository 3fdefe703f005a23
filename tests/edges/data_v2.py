"""The data directory in tests/fixtures/data-v2: the second version, with a lake and an archive.

`python -m tests.edges.data_v2 FOLDER` made it, by commands and ports alone; then `tar` packed it,
without sockets. It is not made again. In it is one of every small file, and:

    spans one … four, two logs, two data points    in the lake, in the archive
    spans one and four, a second time              in the archive; the pipeline left them out
    span five                                      in the log; the server was killed
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from penstock.client import RemoteSubscriber
from penstock.otel import Signal
from tests.edges.lake_v1 import logs, metrics, pipeline, spans, unpacked_from
from tests.server.running import Server, until

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "data-v2" / "data.tar.xz"
MADE_AT = "/tmp/penstock-data-v2/data"  # noqa: S108 - a name in files, not a folder


def unpacked(folder: Path) -> Path:
    """The data directory below `folder`, beside the objects of its archive."""
    return unpacked_from(ARCHIVE, MADE_AT, folder)


def _make(data: Path) -> None:
    objects = data.parent / "objects"
    config = {
        "retention": {"size_cap": "1GiB"},
        "dedupe": {"window": "1s"},
        "archive": {"url": objects.as_uri()},
    }
    server = Server.start(data, config=config)
    server.post(Signal.TRACES, spans("one", "two"))
    server.post(Signal.TRACES, spans("three", "four"))
    server.post(Signal.LOGS, logs("first", "second"))
    server.post(Signal.METRICS, metrics("requests", "errors"))
    address = f"grpc://127.0.0.1:{server.ready['flight']}"
    with RemoteSubscriber(address, "/default/traces", "exporter") as subscriber:
        subscriber.register()
    server.stop()
    pipeline(data)
    server = Server.start(data, config=config)
    server.post(Signal.TRACES, spans("one", "four"))
    server.stop()
    pipeline(data)
    server = Server.start(data, config=config)
    server.post(Signal.TRACES, spans("five"))
    until((data / "server.json").exists)
    server.kill()
    shutil.rmtree(data / "pipeline" / "checkpoints", ignore_errors=True)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
