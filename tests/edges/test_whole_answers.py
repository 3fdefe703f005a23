"""An answer is whole or an error that names what is missing; a partial one is asked for."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.flight as pf
import pytest

from penstock.lake.glance import forget
from penstock.tiers import table as tiers
from penstock.tiers import warm as segments
from penstock.tiers.pieces import Pieces
from penstock.tiers.tails import Tails
from tests.cli.running import Answer, run
from tests.pipeline.flush.helpers import without_spark
from tests.pipeline.helpers import Data, spans, trace_id
from tests.query.helpers import cold, hot, warm
from tests.server.running import Server, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

COUNT = "SELECT count(*) AS count FROM spans"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A killed server's data: spans 1 and 2 in two files of the lake, 3 in a segment, 4 and 5 hot.

    The lake has let go of its segments, as it does where a server runs.
    """
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patched:
        without_spark(patched)
        data = Data(folder / "data")
        cold(data, spans(1))
        cold(data, spans(2))
        for path in data.root.rglob("*.seg"):
            path.unlink()
        warm(data, spans(3))
        with hot(data, spans(4), spans(5)):
            shutil.copytree(data.root, folder / "killed", ignore=shutil.ignore_patterns("*.tmp"))
    shutil.rmtree(data.root)
    (folder / "killed").rename(data.root)
    assert count(data.root) == 5
    return data.root


@pytest.fixture
def data(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it in the same place: Iceberg names files by their paths. Nothing is remembered."""
    monkeypatch.setattr(segments, "PIECES", Pieces())
    monkeypatch.setattr(tiers, "TAILS", Tails())
    whole.rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", whole)
    forget()
    yield whole
    shutil.rmtree(whole)
    (tmp_path / "kept").rename(whole)


def query(root: Path, *options: str, sql: str = COUNT) -> Answer:
    """The command."""
    return run("query", "--data-dir", root, *options, sql)


def count(root: Path, *options: str) -> int:
    """Of spans, as the command says it."""
    answer = query(root, *options)
    assert answer.code == 0, answer.err
    return int(answer.out.split()[-1])


def _no_catalog(root: Path) -> str:
    (root / "lake" / "catalog.db").unlink()
    return "catalog.db"


def _other_catalog(root: Path) -> str:
    (root / "lake" / "catalog.db").write_bytes(b"no catalog at all" * 100)
    return "catalog.db"


def _empty_catalog(root: Path) -> str:
    (root / "lake" / "catalog.db").write_bytes(b"")
    return "catalog.db"


def _no_lake(root: Path) -> str:
    shutil.rmtree(root / "lake")
    return "/default/traces/0"


def _no_metadata(root: Path) -> str:
    for path in (root / "lake" / "spans" / "metadata").glob("*.metadata.json"):
        path.unlink()
    return "the table spans"


def _no_manifest(root: Path) -> str:
    for path in (root / "lake" / "spans" / "metadata").glob("*-m*.avro"):
        path.unlink()
    return "the table spans"


def _no_file(root: Path) -> str:
    path = min((root / "lake" / "spans").rglob("*.parquet"))
    path.unlink()
    return path.name


def _torn_file(root: Path) -> str:
    path = min((root / "lake" / "spans").rglob("*.parquet"))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-50])
    return path.name


def _torn_segment(root: Path) -> str:
    path = min(root.rglob("*.seg"))
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-40])
    return path.name


def _flipped_segment(root: Path) -> str:
    [path] = root.rglob("*.seg")
    text = bytearray(path.read_bytes())
    text[len(text) // 4] ^= 1
    path.chmod(0o600)
    path.write_bytes(text)
    return path.name


def _flipped_log(root: Path) -> str:
    [path] = [each for each in root.rglob("*.wal") if b"span 4" in each.read_bytes()]
    path.write_bytes(path.read_bytes().replace(b"span 4", b"spin 4"))
    return path.name


HARM: dict[Callable[[Path], str], int] = {
    _no_catalog: 3,
    _other_catalog: 3,
    _empty_catalog: 3,
    _no_lake: 3,
    _no_metadata: 3,
    _no_manifest: 3,
    _no_file: 4,
    _torn_file: 4,
    _torn_segment: 4,
    _flipped_segment: 4,
    _flipped_log: 4,
}
"""What may happen to a data directory, and how many of the five spans can be read then."""


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__[1:])
def test_command_answers_whole_or_not_at_all(data: Path, harm: Callable[[Path], str]) -> None:
    """Exit code 1 and one sentence with the name; `--partial` counts the rest and says the same."""
    name = harm(data)
    refused = query(data)
    assert refused.is_one_sentence()
    assert name in refused.err
    partial = query(data, "--partial")
    assert (partial.code, partial.out.split()) == (0, ["count", str(HARM[harm])])
    assert name in partial.err


def test_lake_in_another_place_is_not_taken_for_an_empty_one(data: Path, tmp_path: Path) -> None:
    """A configuration that was forgotten, or is wrong."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"lake": {"warehouse": str(tmp_path / "elsewhere")}}))
    refused = run("query", "--data-dir", data, "--config", config, COUNT)
    assert refused.is_one_sentence()
    assert str(tmp_path / "elsewhere") in refused.err


def test_lake_that_never_was_is_empty(tmp_path: Path) -> None:
    """Nobody took anything there."""
    made = Data(tmp_path / "data")
    warm(made, spans(1))
    assert count(made.root) == 1


def test_what_was_set_aside_is_told_and_stands_in_nobodys_way(data: Path) -> None:
    """A loss that a repair has written down is no reason to refuse every question from now on."""
    name = _flipped_log(data)
    assert query(data).code == 1
    run("fsck", "--repair", data)
    answer = query(data)
    assert (answer.code, answer.out.split()) == (0, ["count", "4"])
    assert name in answer.err


# --- a server ----------------------------------------------------------------------------------


def asked(server: Server, **question: Any) -> Any:
    """What the API says."""
    body = json.dumps({"sql": COUNT, **question}).encode()
    return server.ask("POST", "/api/v1/query", body, port="web")


def test_server_answers_whole_or_not_at_all(data: Path) -> None:
    """Over every door at which it answers questions."""
    with serving(data) as server:
        _no_file(data)
        name = _torn_segment(data)
        refused = asked(server)
        assert refused.status == 500
        assert name in refused.json["message"]
        partial = asked(server, partial=True).json
        assert (partial["rows"], partial["partial"]) == ([[3]], True)
        assert any(name in warning for warning in partial["warnings"])
        assert asked(server, partial="yes").status == 400

        path = f"/api/v1/traces/{trace_id(5).hex()}"
        assert server.get(path).status == 500
        trace = server.get(f"{path}?partial=true").json
        assert (trace["span_count"], trace["partial"]) == (1, True)

        snapshot = "/api/v1/hot-snapshot"
        assert server.ask("POST", snapshot, port="web").status == 500
        taken = server.ask("POST", f"{snapshot}?partial=true", port="web").json
        assert (taken["row_count"], taken["partial"]) == (2, True)

        client = pf.connect(f"grpc://127.0.0.1:{server.ready['flight']}")
        ticket = {"table": "spans", "tiers": ["hot", "warm"]}
        with pytest.raises(pf.FlightError, match=name):
            client.do_get(pf.Ticket(json.dumps(ticket))).read_all()
        rest = client.do_get(pf.Ticket(json.dumps({**ticket, "partial": True}))).read_all()
        assert rest.num_rows == 2
