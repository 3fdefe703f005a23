"""What people write into the configuration, and what they hear of it: by the command alone."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from tests.cli.running import run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.running import Answer


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)


def printed(file: Path, text: str) -> Answer:
    """What the server would run with, told by a file."""
    file.write_text(text)
    return run("serve", "--print-config", "--config", file)


UNKNOWN, MEANT, INTERVAL = "unknown setting", "did you mean", "wal.flush_interval"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("worker: 2", f"{UNKNOWN} worker; {MEANT} workers?"),
        (
            "wal: {flush_intervall: 1s}",
            f"{UNKNOWN} wal.flush_intervall; {MEANT} wal.flush_interval?",
        ),
        (
            "wal: {sync_interval_s: 1}",
            f"{UNKNOWN} wal.sync_interval_s; {MEANT} wal.flush_interval?",
        ),
        ("segment: {target_size: 1kB}", "segment.target_size must be at least 64KiB"),
        ("wal: {max_size: 1MB}", "wal.max_size must be at least four times segment.target_size"),
        ("listen: 4317", "listen is no mapping of names to values"),
        ("query: {processes: 0}", "query.processes must be at least 1"),
        ("lake: {namespace: a.b}", "lake.namespace is one word without a dot"),
        ("archive: {compression: lz4}", "archive.compression: 'lz4' is not one of none, zstd"),
    ],
)
def test_wrong_setting_is_one_line_with_file_and_key(tmp_path: Path, text: str, told: str) -> None:
    """Whichever package refuses it, in the words of the file."""
    file = tmp_path / "penstock.yaml"
    answer = printed(file, text)
    assert answer.is_one_sentence(), answer
    assert answer.err == f"penstock: {file}: {told}\n"


def test_file_is_not_blamed_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has the same key, and is right."""
    monkeypatch.setenv("PENSTOCK_SEGMENT_TARGET_SIZE", "1kB")
    answer = printed(tmp_path / "penstock.yaml", "segment: {target_size: 1MB}")
    assert answer.err == "penstock: segment.target_size must be at least 64KiB\n"


def test_names_and_bare_numbers_of_0_1_mean_what_they_meant(tmp_path: Path) -> None:
    """Megabytes, seconds, hours; what is printed says its unit, and means the same."""
    file = tmp_path / "penstock.yaml"
    text = """
        pipeline: {flush_max_mb: 50, flush_max_age_secs: 5400.0}
        retention: {max_retain_after_ingestion_hours: 72.0, size_cap: 500GB}
        buffer: {flush_size_bytes: 1048576}
    """
    first = printed(file, text)
    found = yaml.safe_load(first.out)
    assert found["pipeline"]["flush_max_mb"] == "50MB"
    assert found["pipeline"]["flush_max_age_secs"] == "90m"
    assert found["retention"]["max_retain_after_ingestion_hours"] == "3d"
    assert found["buffer"]["flush_size_bytes"] == "1MiB"
    assert printed(file, first.out).out == first.out


def test_schema_takes_what_the_server_takes(tmp_path: Path) -> None:
    """The printed configuration and what people write; an editor marks a key that is not there."""
    answer = run("serve", "--print-schema")
    assert answer.code == 0
    schema = json.loads(answer.out)
    known = printed(tmp_path / "penstock.yaml", "workers: 2")
    jsonschema.validate(yaml.safe_load(known.out), schema)
    people = "{segment: {target_size: 32MB}, wal: {durability: interval}, limits: {memory: none}}"
    jsonschema.validate(yaml.safe_load(people), schema)
    for wrong in ("{worker: 2}", "{wal: {flush_intervall: 1s}}", "{wal: {durability: always}}"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(wrong), schema)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("serve --workers 0", "'--workers': it must be at least 1"),
        ("serve --grpc-port 70000", "'--grpc-port': '70000' is no port; the highest is 65535"),
        ("pipeline compact --min-files 1", "'--min-files': it must be at least 2"),
        ("pipeline compact --target-size large", "'--target-size': 'large' is no size"),
        ("pipeline rollup --trace-max 2d", "'--trace-max': it must be at most 1d"),
        ("pipeline expire --older-than soon", "'--older-than': 'soon' is no duration"),
        ("queue gc --grace -1s file:///none", "'--grace': '-1s' is no duration"),
    ],
)
def test_option_is_read_and_bounded_as_its_setting(command: str, told: str) -> None:
    """A usage error that names the option, before anything is opened."""
    answer = run(*command.split())
    assert answer.code == 2
    assert f"Invalid value for {told}" in answer.err


def test_commands_and_server_share_their_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`archive.objects` are keys to the server; commands find the archive by `archive.url`."""
    monkeypatch.setenv("PENSTOCK_ARCHIVE_URL", f"file://{tmp_path}/objects")
    monkeypatch.setenv("PENSTOCK_ARCHIVE_OBJECTS", "aws_region=eu-1")
    found = yaml.safe_load(run("serve", "--print-config").out)
    assert found["archive"]["objects"] == {"aws_region": "eu-1"}
    assert run("archive", "status", "--data-dir", tmp_path).code == 0
