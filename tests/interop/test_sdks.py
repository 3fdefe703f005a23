"""OpenTelemetry's SDKs for other languages: what they send is there once, as they sent it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.cli.running import finish, start
from tests.interop import parts
from tests.interop.contents import Arrived, Ids, send
from tests.server.running import Server, serving

SENDERS: dict[str, tuple[Callable[[], list[str]], int]] = {
    "java": (parts.java_sender, 6),
    "node": (parts.node_sender, 6),
    "go": (parts.go_sender, 4),
}
"""By language: the command, and how many ways it has."""


@dataclass
class Sent:
    """By language: the ids of the spans of each way that it sent by, or why it did not."""

    ids: dict[str, Ids] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def of(self, language: str) -> Ids:
        """Skips where there is none."""
        if language in self.missing:
            pytest.skip(self.missing[language])
        return self.ids[language]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With its defaults."""
    with serving(tmp_path_factory.mktemp("sdks") / "data") as started:
        yield started


@pytest.fixture(scope="module")
def sent(server: Server) -> Sent:
    """Everything that can be had has sent everything."""
    found = Sent()
    for language, (sender, _) in SENDERS.items():
        try:
            found.ids[language] = send(sender(), server.ready["http"], server.ready["grpc"])
        except pytest.skip.Exception as reason:
            found.missing[language] = str(reason)
    return found


@pytest.mark.parametrize("language", SENDERS)
def test_what_an_sdk_sends_arrives_once_and_unaltered(
    server: Server, sent: Sent, language: str
) -> None:
    """By each of its protocols, packed and plain."""
    ways = sent.of(language)
    assert len(ways) == SENDERS[language][1]
    arrived = Arrived(Path(server.ready["data_dir"]))
    for label, ids in ways.items():
        arrived.check(label, ids)


def test_what_sdks_send_is_the_same_in_the_lake(server: Server, sent: Sent) -> None:
    """After one run of the pipeline, from the cold tier alone."""
    if not sent.ids:
        pytest.skip("; ".join(sent.missing.values()))
    data = Path(server.ready["data_dir"])
    assert server.ask("POST", "/api/v1/flush", port="web").status == 200
    run = finish(start("pipeline", "run", "--once", "--data-dir", data), 900)
    assert run.code == 0, run.err
    arrived = Arrived(data, "cold")
    for ways in sent.ids.values():
        for label, ids in ways.items():
            arrived.check(label, ids)
