"""`penstock tokens`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.server.auth import Gate, Role
from tests.cli.running import run


def test_made_token_opens_what_it_was_made_for(tmp_path: Path) -> None:
    """The file, made with it, holds its digest alone."""
    path = tmp_path / "tokens"
    made = run("tokens", "add", path, "ingest=a,b", "query=*", "--comment", "for a", "--json").json
    assert made["token"] not in path.read_text()
    assert path.read_text().endswith(" ingest=a,b query=* # for a\n")
    caller = Gate(path).caller(f"Bearer {made['token']}")
    assert caller.identity == made["id"]
    assert caller.grants == {Role.INGEST: ("a", "b"), Role.QUERY: ("*",)}


def test_tokens_are_added_listed_and_removed(tmp_path: Path) -> None:
    """Lines of others, comments among them, stay as they are."""
    path = tmp_path / "tokens"
    path.write_text("# ours\nan-old-token shop\n")
    first = run("tokens", "add", path, "admin=*").out.strip()
    rows = run("tokens", "list", path, "--json").json
    assert [row["rights"] for row in rows][1:] == [{"admin": ["*"]}]
    assert rows[0]["rights"] == {key: ["shop"] for key in ("ingest", "query", "subscribe")}
    assert f"{rows[1]['id']}  admin=*" in run("tokens", "list", path).out
    assert run("tokens", "remove", path, rows[1]["id"]).code == 0
    assert path.read_text() == "# ours\nan-old-token shop\n"
    assert len(first) > 40


@pytest.mark.parametrize("right", ["shop", "qurey=a", "query=", "query=a/b"])
def test_wrong_right_is_a_usage_error(tmp_path: Path, right: str) -> None:
    """And nothing is written."""
    assert run("tokens", "add", tmp_path / "tokens", right).code == 2
    assert not (tmp_path / "tokens").exists()


def test_last_token_stays(tmp_path: Path) -> None:
    """A server without one lets nobody in; nor is one removed that is not there."""
    path = tmp_path / "tokens"
    path.write_text("an-old-token shop\n")
    [row] = run("tokens", "list", path, "--json").json
    assert run("tokens", "remove", path, row["id"]).is_one_sentence()
    assert run("tokens", "remove", path, "0123456789abcdef").is_one_sentence()
    assert path.read_text() == "an-old-token shop\n"


def test_file_that_makes_no_sense_is_not_written_to(tmp_path: Path) -> None:
    """One sentence names the line."""
    path = tmp_path / "tokens"
    path.write_text("short\n")
    for command in (("add", path, "query=a"), ("list", path), ("remove", path, "x")):
        answer = run("tokens", *command)
        assert answer.is_one_sentence()
        assert "line 1" in answer.err
