"""Names and telemetry of any characters break no page of metrics and steer no terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.model import Topic
from penstock.otel import Signal
from tests.cli.running import SCRIPT, run
from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data, spans
from tests.query.helpers import warm
from tests.server.running import Server, serving
from tests.server.samples import traces

if TYPE_CHECKING:
    from collections.abc import Iterator

OLD = "old\u2028name\u202e"
"""A namespace that 0.1 took, and that has data."""
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\r\nfake  line\u2028é"
SAMPLE = re.compile(
    r'[a-z_:]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? [-+0-9.e]+(inf|nan)?', re.IGNORECASE
)
ASK = "SELECT service_name, attributes, name FROM spans WHERE name = 'span 1'"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Data]:
    """A span of a hostile service, in a namespace of an old name."""
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(tmp_path_factory.mktemp("printable") / "data")
        warm(data, spans(1, service=HOSTILE), topic=Topic(OLD, "traces"))
        yield data


@pytest.fixture(scope="module")
def server(data: Data) -> Iterator[Server]:
    """A server over it."""
    with serving(data.root) as started:
        yield started


def obeyed(text: str) -> list[str]:
    """What a terminal would do something about, in a text of lines."""
    return [each for each in text.replace("\n", "") if not each.isprintable()]


def test_page_of_metrics_is_valid_whatever_names_hold(server: Server) -> None:
    """Each line of it is a comment or a sample, and the old name is there, escaped."""
    page = server.get("/metrics").body.decode()
    lines = page.split("\n")
    assert [s for s in lines if s and not s.startswith("# ") and not SAMPLE.fullmatch(s)] == []
    families = list(text_string_to_metric_families(page))
    topics = {sample.labels.get("topic") for family in families for sample in family.samples}
    assert "/old\\u2028name\\u202e/traces/0" in topics
    assert obeyed(page) == []


def test_new_names_are_refused_unless_they_are_printable(server: Server) -> None:
    """For good, in one sentence; gRPC has no others. What an old one has can be read."""
    for name in ("a\u2028b", "\u202e", "a\u200bb"):
        header = name.encode().decode("latin-1")
        answer = server.post(
            Signal.TRACES, traces("a"), "application/json", x_penstock_namespace=header
        )
        assert answer.status == 400
        assert "printable" in answer.json["message"]
        assert obeyed(answer.json["message"]) == []
    fine = "fine é".encode().decode("latin-1")
    assert server.post(Signal.TRACES, traces("a"), x_penstock_namespace=fine).status == 200
    sql = f"SELECT count(*) FROM spans WHERE namespace = '{OLD}'"  # noqa: S608 - our own
    body = json.dumps({"sql": sql}).encode()
    assert server.ask("POST", "/api/v1/query", body, port="web").json["rows"] == [[1]]


@pytest.mark.parametrize(
    "command", [["query", ASK], ["topics"], ["subscribers", "list"], ["status"]], ids=lambda c: c[0]
)
def test_commands_print_what_no_terminal_obeys(data: Data, command: list[str]) -> None:
    """Tables, always; and the columns stay in their places."""
    answer = run(command[0], *command[1:], "--data-dir", data.root)
    assert answer.code == 0, answer.err
    assert obeyed(answer.out + answer.err) == []
    if command[0] == "query":
        assert "\\x1b]0;owned\\x07" in answer.out
        assert len(answer.out.splitlines()) == 2


def test_errors_print_what_no_terminal_obeys(data: Data) -> None:
    """They quote rows."""
    answer = run("query", "SELECT error(service_name) FROM spans", "--data-dir", data.root)
    assert answer.is_one_sentence()
    assert obeyed(answer.err) == []


def test_json_is_json_and_says_all_of_it(data: Data) -> None:
    """In escapes; CSV in a pipe is as it is, for programs."""
    answer = run("query", "--format", "json", ASK, "--data-dir", data.root)
    assert obeyed(answer.out) == []
    assert answer.json[0]["service_name"] == HOSTILE
    answer = run("query", "--format", "csv", ASK, "--data-dir", data.root)
    assert HOSTILE in answer.out


def test_csv_on_a_terminal_is_escaped(data: Data) -> None:
    """The terminal is a real one; what it is sent holds no escape sequence."""
    reading, writing = pty.openpty()
    command = [str(SCRIPT), "query", "--format", "csv", ASK, "--data-dir", str(data.root)]
    with io.FileIO(reading) as sent:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        text = b""
        try:
            while piece := sent.read(4096):
                text += piece
        except OSError:
            pass  # how a terminal says that the other side has gone
    assert done.returncode == 0, done.stderr
    assert b"\\x1b]0;owned" in text
    assert b"\x1b" not in text
    assert "\x9b" not in text.decode()
