"""What a server is told: by file, environment and flags."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.model.errors import InvalidSetting
from penstock.model.settings import Compression, Durability, SizePolicy
from penstock.queue import CompressionType
from penstock.server.configuration.config import Config
from penstock.server.configuration.loading import document, load, settings, variable
from penstock.server.supervisor import check
from tests.cli.running import run

SETTINGS = {".".join(path): field for path, field in settings()}
each_setting = pytest.mark.parametrize("name", SETTINGS)

SAMPLES: dict[str, tuple[Any, Any]] = {
    "Count": ("64", 64),
    "Port": ("17", 17),
    "Flag": ("yes", True),
    "Text": ("::1", "::1"),
    "Size": ("3MB", 3_000_000),
    "Duration": ("250ms", 0.25),
    "FilePath": ("a/b.pem", Path("a/b.pem")),
}
"""By type: what people write, and what it means."""
SPECIAL: dict[str, tuple[Any, Any]] = {
    "file_access": ("group", "group"),
    "data_dir": ("elsewhere", Path("elsewhere")),
    "limits.memory": ("1GiB", 2**30),
    "query.memory": ("1GiB", 2**30),
    "dedupe.signals": ("logs, metrics", ("logs", "metrics")),
    "segment.compression": ("zstd", Compression.ZSTD),
    "wal.durability": ("interval", Durability.INTERVAL),
    "wal.max_size": ("1GiB", 2**30),
    "retention.max_retain_after_ingestion_hours": ("72", 72 * 3600.0),
    "retention.size_cap": ("500GB", 500 * 10**9),
    "retention.size_cap_policy": ("drop_oldest", SizePolicy.DROP_OLDEST),
    "retention.size_cap_sharing": ("fair", "fair"),
    "archive.url": ("s3://bucket/archive", "s3://bucket/archive"),
    "archive.objects": ("aws_region=eu-1", {"aws_region": "eu-1"}),
    "archive.metadata": ("etcd://etcd:2379/penstock", "etcd://etcd:2379/penstock"),
    "archive.compression": ("zstd", True),
    "archive.retention": ("30d", 30 * 86400.0),
    "archive.retention_size": ("1TB", 10**12),
    "buffer.url": ("s3://bucket/buffer", "s3://bucket/buffer"),
    "buffer.objects": ("aws_region=eu-1", {"aws_region": "eu-1"}),
    "buffer.batch_compression": ("zstd", CompressionType.ZSTD),
    "buffer.manifest_version": ("1", 1),
    "lake.warehouse": ("s3://lake/otel", "s3://lake/otel"),
    "lake.catalog": ("type=rest, uri=http://c:81", {"type": "rest", "uri": "http://c:81"}),
    "listen.hosts": ("penstock, a.internal", ("penstock", "a.internal")),
    "lake.promoted": ("http.route, resource:host.name", ("http.route", "resource:host.name")),
    "pipeline.flush_max_mb": ("50", 50_000_000),
    "pipeline.flush_max_age_secs": ("90", 90.0),
    "logging.format": ("pretty", "pretty"),
    "logging.level": ("debug", "debug"),
}


def sample(name: str) -> tuple[Any, Any]:
    """What could be written for a setting, and what it means."""
    kind = str(SETTINGS[name].type).removeprefix("OrNone[").removesuffix("]")
    return SPECIAL.get(name) or SAMPLES[kind]


def tree(name: str, value: Any) -> dict[str, Any]:
    """A file or flags with one setting."""
    for part in reversed(name.split(".")):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def get(config: Config, name: str) -> Any:
    """The value of a setting."""
    *section, _ = name.split(".")
    value = getattr(config, section[0]) if section else config
    return getattr(value, SETTINGS[name].name)


@each_setting
def test_setting_is_read_from_the_file(name: str) -> None:
    """As people write it."""
    written, meant = sample(name)
    assert get(load(tree(name, written), {}, {}), name) == meant


@each_setting
def test_setting_is_read_from_the_environment(name: str) -> None:
    """Under its name in capitals; it wins over the file."""
    written, meant = sample(name)
    file = document(Config())
    assert get(load(file, {variable(name.split(".")): written}, {}), name) == meant


@each_setting
def test_flag_wins_over_environment_and_file(name: str) -> None:
    """Flags, environment, file, defaults: in this order."""
    written, meant = sample(name)
    default = document(Config())
    shown = get_in(default, name)
    environment = {variable(name.split(".")): "" if shown is None else str(shown)}
    environment = {k: v for k, v in environment.items() if not isinstance(shown, list)}
    assert get(load(default, environment, tree(name, written)), name) == meant


def get_in(found: dict[str, Any], name: str) -> Any:
    """The value of a setting in a document."""
    value: Any = found
    for part in name.split("."):
        value = value[part]
    return value


@each_setting
def test_setting_has_a_default_and_a_meaning(name: str) -> None:
    """What no one sets is there all the same."""
    field = SETTINGS[name]
    default = field.default if field.default_factory is dataclasses.MISSING else {}
    assert get(load(None, {}, {}), name) == default
    assert field.metadata["description"].endswith(".")


@each_setting
def test_printed_configuration_means_the_same(name: str) -> None:
    """With any setting changed; through YAML and back."""
    config = load(tree(name, sample(name)[0]), {}, {})
    assert load(yaml.safe_load(yaml.safe_dump(document(config))), {}, {}) == config


def test_settings_beside_each_other_come_from_where_they_stand() -> None:
    """A section is not taken whole from one source."""
    config = load(
        {"listen": {"grpc_port": 1, "http_port": 2, "web_port": 3}},
        {"PENSTOCK_LISTEN_HTTP_PORT": "20", "PENSTOCK_LISTEN_WEB_PORT": "30"},
        {"listen": {"web_port": 300}},
    )
    assert (config.listen.grpc_port, config.listen.http_port) == (1, 20)
    assert (config.listen.web_port, config.listen.flight_port) == (300, 4319)


def test_sections_without_settings_are_none() -> None:
    """An empty file, or a section with nothing but comments in it."""
    assert load(None, {}, {}) == load({}, {}, {}) == load({"listen": None}, {}, {}) == Config()


@pytest.mark.parametrize(
    ("file", "nearest"),
    [
        ({"data-dir": "x"}, "data_dir"),
        ({"worker": 2}, "workers"),
        ({"listen": {"grcp_port": 1}}, "listen.grpc_port"),
        ({"wal": {"flush_intervall": "1s"}}, "wal.flush_interval"),
        ({"retention": {"sizecap": "1GB"}}, "retention.size_cap"),
        ({"limit": {}}, "limits"),
    ],
)
def test_unknown_key_suggests_the_nearest(file: dict[str, Any], nearest: str) -> None:
    """With its section."""
    with pytest.raises(InvalidSetting, match=rf"unknown setting .*; did you mean {nearest}\?"):
        load(file, {}, {})


def test_key_like_no_other_is_named_alone() -> None:
    """A suggestion that is far off helps nobody."""
    with pytest.raises(InvalidSetting, match=r"^unknown setting listen\.zzzzzz$"):
        load({"listen": {"zzzzzz": 1}}, {}, {})


def test_unknown_variable_suggests_the_nearest() -> None:
    """A typing error in the environment is one too."""
    with pytest.raises(InvalidSetting, match=r"did you mean PENSTOCK_LISTEN_GRPC_PORT\?"):
        load(None, {"PENSTOCK_LISTEN_GRPC_PROT": "1"}, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listen.grpc_port", "a"),
        ("listen.grpc_port", True),
        ("listen.grpc_port", 4317.5),
        ("listen.grpc_port", 65536),
        ("listen.web_port", -1),
        ("listen.unprotected", "perhaps"),
        ("limits.request", "many"),
        ("limits.request", -1),
        ("limits.timeout", "soon"),
        ("limits.records", -1),
        ("workers", 0),
        ("workers", None),
        ("dedupe.signals", ["trace"]),
        ("dedupe.signals", 7),
        ("dedupe.window", "-1s"),
        ("segment.compression", "brotli"),
        ("wal.durability", "always"),
        ("retention.max_retain_after_ingestion_hours", "72 fortnights"),
        ("retention.max_retain_after_ingestion_hours", -1),
        ("retention.size_cap_policy", "drop"),
        ("logging.level", "loud"),
        ("data_dir", ["a"]),
        ("data_dir", True),
    ],
)
def test_value_that_makes_no_sense_names_its_setting(name: str, value: Any) -> None:
    """Before anything is started."""
    with pytest.raises(InvalidSetting, match=name.rpartition(".")[2]):
        check(load(tree(name, value), {}, {}))


def test_section_that_is_no_mapping_is_named() -> None:
    """Nor may the file be anything else."""
    with pytest.raises(InvalidSetting, match="listen is no mapping"):
        load({"listen": 4317}, {}, {})
    with pytest.raises(InvalidSetting, match="the configuration is no mapping"):
        load(["listen"], {}, {})


def test_key_that_is_no_text_is_unknown() -> None:
    """YAML has keys of other kinds."""
    with pytest.raises(InvalidSetting, match="unknown setting 7"):
        load({7: 1}, {}, {})


def test_example_of_the_source_is_understood() -> None:
    """The persistence section of the design that the store follows, key by key."""
    config = load(
        yaml.safe_load("""
            segment:
              target_size: 32MB
              max_open_duration: 5s
            wal:
              max_size: 4GB
              flush_interval: 25ms
            retention:
              max_retain_after_ingestion_hours: 72
              size_cap: 500GB
              size_cap_policy: drop_oldest
        """),
        {},
        {},
    )
    store = config.store_settings()
    assert store.segment.target_bytes == 32_000_000
    assert store.max_log_bytes == 4 * 10**9
    assert store.log.sync_interval_s == 0.025
    assert store.max_age_s == 72 * 3600
    assert store.size_policy is SizePolicy.DROP_OLDEST
    assert config.retention.size_cap == 500 * 10**9


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("segment.target_size", "50kB", "segment.target_size must be at least 64KiB"),
        ("segment.max_open_duration", "0s", "segment.max_open_duration must be over 0"),
        ("wal.max_size", "1MB", "wal.max_size must be at least four times segment.target_size"),
    ],
)
def test_bound_of_the_store_is_told_in_the_names_of_the_file(
    name: str, value: str, problem: str
) -> None:
    """Nobody has to know what the store calls it."""
    with pytest.raises(InvalidSetting, match=f"^{problem}"):
        load(tree(name, value), {}, {})


@pytest.mark.parametrize("hours", [72, 72.0, "72", "72h", "3d"])
def test_hours_of_retention_may_have_a_unit(hours: object) -> None:
    """A bare number is hours; a duration is what it says."""
    config = load(tree("retention.max_retain_after_ingestion_hours", hours), {}, {})
    assert config.store_settings().max_age_s == 72 * 3600


def test_store_takes_every_request_that_is_let_in() -> None:
    """One at the bound fits into the log, and into its queue."""
    store = load(tree("limits.decompressed", "100MB"), {}, {}).store_settings()
    assert store.log.max_message_bytes >= 100_000_000
    assert store.log.queue_bytes >= 100_000_000
    assert store.log.durability is Durability.SYNC


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PENSTOCK_"):
            monkeypatch.delenv(name)


pytestmark = pytest.mark.usefixtures("_no_variables")


def test_printed_configuration_is_one_to_start_with(tmp_path: Path) -> None:
    """`serve --print-config` starts nothing, and prints what `--config` takes."""
    first = run("serve", "--print-config", "--data-dir", tmp_path / "d", "--workers", "3")
    file = tmp_path / "penstock.yaml"
    file.write_text(first.out)
    second = run("serve", "--print-config", "--config", file)
    assert (first.code, second.code) == (0, 0)
    assert second.out == first.out
    assert yaml.safe_load(first.out)["workers"] == 3
    assert not (tmp_path / "d").exists()


def test_command_follows_the_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags over environment over file over defaults."""
    file = tmp_path / "penstock.yaml"
    file.write_text("{workers: 2, listen: {grpc_port: 1, http_port: 1, web_port: 1}}")
    monkeypatch.setenv("PENSTOCK_LISTEN_HTTP_PORT", "2")
    monkeypatch.setenv("PENSTOCK_LISTEN_WEB_PORT", "2")
    answer = run("serve", "--print-config", "--config", file, "--web-port", "3")
    found = yaml.safe_load(answer.out)
    assert found["workers"] == 2
    listen = found["listen"]
    assert [listen[f"{name}_port"] for name in ("grpc", "http", "web", "flight")] == [1, 2, 3, 4319]


@pytest.mark.parametrize(
    "text",
    ["worker: 2", "a: [", "\tx", "- list", "listen: {grpc_port: 99999}", "tls: {key: k.pem}"],
)
def test_wrong_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    """Exit 1, nothing on stdout, and nothing started."""
    file = tmp_path / "penstock.yaml"
    file.write_text(text)
    answer = run("serve", "--config", file, "--data-dir", tmp_path / "data")
    assert answer.is_one_sentence(), answer
    assert not (tmp_path / "data").exists()


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """In one sentence."""
    answer = run("serve", "--config", tmp_path / "none.yaml")
    assert answer.is_one_sentence()
    assert "none.yaml" in answer.err


def test_wrong_variable_is_one_sentence() -> None:
    """As a user sees it."""
    command = [sys.executable, "-c", "from penstock.cli import main; main()", "serve"]
    environment = {**os.environ, "PENSTOCK_WORKER": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "penstock: unknown environment variable PENSTOCK_WORKER; did you mean PENSTOCK_WORKERS?\n"
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", "0", ""])  # noqa: S104
def test_host_beyond_loopback_must_be_guarded(host: str) -> None:
    """Or said to be unprotected on purpose."""
    with pytest.raises(InvalidSetting, match="can be reached from other machines"):
        check(load(tree("listen.host", host), {}, {}))
    check(load({"listen": {"host": host, "unprotected": True}}, {}, {}))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_no_guard(host: str) -> None:
    """Only who is on the machine reaches it."""
    check(load(tree("listen.host", host), {}, {}))


def test_tokens_guard_a_host(tmp_path: Path) -> None:
    """So do client certificates; encryption alone does not."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-good-secret\n")
    pair = {"certificate": "c.pem", "key": "k.pem"}
    host = {"host": "0.0.0.0"}  # noqa: S104
    check(load({"listen": host, "auth": {"tokens_file": str(tokens)}}, {}, {}))
    check(load({"listen": host, "tls": {**pair, "client_ca": "ca.pem"}}, {}, {}))
    with pytest.raises(InvalidSetting, match="can be reached"):
        check(load({"listen": host, "tls": pair}, {}, {}))
