"""Several data directories and one lake: each row of each once, and nothing let go too early."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.otel import Signal
from tests.cli.conftest import session, warm
from tests.cli.running import Answer, finish, run, start
from tests.patience import PATIENCE_S, until
from tests.server.running import serving
from tests.server.samples import traces

__all__ = ["session", "warm"]
ONE_LAKE = "lake.yaml"


class Places:
    """Data directories in one folder, with one configuration for all of them."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / ONE_LAKE
        self.settings = {"lake": {"warehouse": str(folder / "lake")}}
        self.config.write_text(json.dumps(self.settings))
        self._folder = folder

    def __getitem__(self, name: str) -> Path:
        return self._folder / name

    def send(self, name: str, *spans: str, seal: bool = True) -> None:
        """A request for each span to a server on the directory, which is stopped afterwards."""
        with serving(self[name], config=self.settings) as server:
            for span in spans:
                assert server.post(Signal.TRACES, traces(span)).status == 200
            if seal:
                assert server.stop() == 0

    def pipeline(self, *names: str, options: tuple[str, ...] = ("--once",)) -> Answer:
        """`penstock pipeline run`."""
        return run("pipeline", "run", *options, *self.arguments(*names))

    def arguments(self, *names: str) -> list[str]:
        """Of a command on these directories."""
        return [f"--config={self.config}", *(f"--data-dir={self[name]}" for name in names)]

    def ask(self, name: str, sql: str, *options: str) -> list[dict[str, Any]]:
        """`penstock query`."""
        command = ("query", *self.arguments(name), *options, "--json", sql)
        answer = run(*command)
        assert answer.code == 0, answer.err
        found: list[dict[str, Any]] = answer.json
        return found

    def names(self, name: str, *tiers: str) -> list[str]:
        """Of all spans that a question to the directory finds."""
        chosen = [f"--tier={','.join(tiers)}"] if tiers else []
        rows = self.ask(name, "SELECT name FROM spans ORDER BY name", *chosen)
        return [row["name"] for row in rows]

    def segments(self, name: str) -> list[str]:
        """Those that are there."""
        return sorted(path.name for path in self[name].glob("topics/**/*.seg"))


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """None yet."""
    return Places(tmp_path)


def numbered(prefix: str, count: int) -> list[str]:
    """Names of spans."""
    return [f"{prefix}{number:02}" for number in range(count)]


@pytest.mark.usefixtures("warm")
def test_a_fresh_directory_on_a_lake_that_has_rows_begins_at_its_own_first(places: Places) -> None:
    """Its segments are let go of when the lake has them, and not before."""
    first, second = numbered("a", 20), numbered("b", 5)
    places.send("a", *first)
    assert places.pipeline("a").code == 0
    places.send("b", *second)
    assert len(places.segments("b")) == 1
    assert places.names("b") == [*first, *second]
    assert places.pipeline("b").code == 0
    assert places.names("b", "cold") == [*first, *second]
    with serving(places["b"], config=places.settings):
        until(lambda: places.segments("b") == [])
    assert places.names("b") == places.names("a") == [*first, *second]
    sources = places.ask("a", "SELECT count(*) AS n FROM spans GROUP BY _source ORDER BY n")
    assert [row["n"] for row in sources] == [5, 20]


@pytest.mark.usefixtures("warm")
def test_an_empty_disk_in_the_place_of_a_lost_one_loses_nothing(places: Places) -> None:
    """It is another directory, though it has the same name."""
    places.send("a", "one", "two", "three")
    assert places.pipeline("a").code == 0
    shutil.rmtree(places["a"])
    places.send("a", "four", "five")
    assert places.pipeline("a").code == 0
    assert places.names("a", "cold") == ["five", "four", "one", "three", "two"]
    assert places.names("a") == ["five", "four", "one", "three", "two"]


@pytest.mark.usefixtures("warm")
def test_one_pipeline_takes_several_directories(places: Places) -> None:
    """Each row once, again and again, and each directory hears of its own."""
    places.send("a", "a1", "a2")
    places.send("b", "b1")
    assert places.pipeline("a", "b").code == 0
    places.send("b", "b2")
    answer = places.pipeline("a", "b", options=("--once", "--json"))
    assert [Path(line["data_dir"]).name for line in answer.json_lines] == ["b"]
    assert places.names("a", "cold") == ["a1", "a2", "b1", "b2"]
    assert places.names("a", "warm") == places.names("b", "warm") == []


@pytest.mark.away
def test_pipelines_run_side_by_side(places: Places) -> None:
    """Each its own, on one lake: neither fences the other, and SIGTERM ends one over both."""
    first, second = numbered("a", 4), numbered("b", 3)
    places.send("a", *first)
    places.send("b", *second)
    both = [start("pipeline", "run", "--once", *places.arguments(each)) for each in "ab"]
    assert [finish(each, PATIENCE_S).code for each in both] == [0, 0]
    assert places.names("a", "cold") == [*first, *second]
    eager = {"pipeline": {"flush_max_mb": "1B", "flush_interval": "100ms"}}
    places.config.write_text(json.dumps(places.settings | eager))
    running = start("pipeline", "run", *places.arguments("a", "b"))
    places.send("a", "a10")
    places.send("b", "b10")
    wanted = sorted([*first, *second, "a10", "b10"])
    until(lambda: places.names("a", "cold") == wanted)
    running.send_signal(signal.SIGTERM)
    answer = finish(running, PATIENCE_S)
    assert (answer.code, answer.err) == (0, "")
    assert sorted(line.partition(":")[0] for line in answer.out.splitlines()) == [
        str(places["a"]),
        str(places["b"]),
    ]


@pytest.mark.usefixtures("warm")
def test_an_older_copy_of_a_directory_is_refused_by_name(places: Places) -> None:
    """Until it is a directory of its own: then all that it has reaches the lake."""
    places.send("a", "one", "two")
    shutil.copytree(places["a"], places["copy"])
    places.send("a", "three", "four", "five")
    assert places.pipeline("a").code == 0
    delivered = (places["a"] / "pipeline" / "delivered.json").read_bytes()
    shutil.rmtree(places["a"])
    places["copy"].rename(places["a"])
    (places["a"] / "pipeline").mkdir(exist_ok=True)
    (places["a"] / "pipeline" / "delivered.json").write_bytes(delivered)  # it was on another disk
    before = places.segments("a")

    refused = places.pipeline("a")
    assert refused.is_one_sentence()
    remedy = f"penstock identity --new --data-dir {places['a']}"
    for part in ("/default/traces/0", "offset 5", "ends at 2", remedy):
        assert part in refused.err
    places.send("a", "six", "seven", "eight")
    assert set(before) < set(places.segments("a")), "the newer file made it delete"

    assert run("identity", "--new", "--data-dir", places["a"]).code == 0
    assert places.pipeline("a").code == 0
    everything = ["eight", "five", "four", "one", "seven", "six", "three", "two"]
    assert places.names("a") == places.names("a", "cold") == everything


def test_a_directory_and_its_copy_are_not_taken_for_two(places: Places) -> None:
    """Each would fence the other; a server keeps its identity while it runs."""
    with serving(places["a"], config=places.settings):
        assert run("identity", "--new", "--data-dir", places["a"]).is_one_sentence()
        shutil.copytree(places["a"], places["copy"], ignore=shutil.ignore_patterns("sockets"))
    answer = places.pipeline("a", "copy")
    assert answer.is_one_sentence()
    assert "have one identity" in answer.err
    before = run("identity", "--data-dir", places["copy"], "--json").json["id"]
    assert run("identity", "--data-dir", places["copy"], "--new").out.strip() != before


@pytest.mark.usefixtures("warm")
def test_a_directory_is_not_taken_for_its_copy_that_was_sealed_later(places: Places) -> None:
    """Both are refused to a lake that has the other's, whole answers too; nothing is let go of."""
    common, own, others = numbered("common", 2), numbered("a", 5), numbered("c", 3)
    places.send("a", *common)
    shutil.copytree(places["a"], places["c"])
    places.send("a", *own)
    places.send("c", *others)
    before = places.segments("a")
    assert places.pipeline("c").code == 0
    assert places.names("c") == [*others, *common]

    refused = places.pipeline("a")
    assert refused.code == 1
    assert refused.is_one_sentence()
    remedy = f"penstock identity --new --data-dir {places['a']}"
    for part in ("/default/traces/0", "offset 5", before[-1], remedy):
        assert part in refused.err
    question = ("query", *places.arguments("a"), "--json", "SELECT name FROM spans ORDER BY name")
    whole = run(*question)
    assert whole.is_one_sentence()
    assert remedy in whole.err
    partial = run(*question, "--partial")
    assert [row["name"] for row in partial.json] == [*own, *others, *common]
    assert remedy in partial.err
    assert remedy in run("status", *places.arguments("a")).out
    with serving(places["a"], config=places.settings) as server:
        snapshot = server.ask("POST", "/api/v1/hot-snapshot", port="web")
        assert snapshot.status >= 500
        assert "penstock identity --new" in snapshot.body.decode()
    assert places.segments("a") == before
