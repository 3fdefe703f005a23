"""What a log does is counted, and Prometheus can read it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.log import Environment, Log
from penstock.metrics import Metrics, names, shared_metrics
from penstock.metrics.registry import COMMIT_BUCKETS_S
from penstock.model import LogSettings
from penstock.model.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client import Metric

TOPIC = "/default/traces"
EVERY_NAME = {
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and not name.startswith("PIPELINE_")
} - {*names.SERVER_COUNTERS}
"""But those of the pipeline, which is another process, and those that the supervisor adds."""


def families(metrics: Metrics) -> dict[str, Metric]:
    """The exposition as Prometheus reads it, by family."""
    text = metrics.exposition().decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_appends_move_the_counters(tmp_path: Path) -> None:
    """Messages, bytes of their frames, and the commits that carried them."""
    metrics = Metrics()
    with Log.open(tmp_path, name=TOPIC, env=Environment(metrics=metrics)) as log:
        log.append_durable(b"x" * 100)
        log.append_many([b"y" * 10] * 3).durable.wait()
    assert metrics.value(names.LOG_MESSAGES, TOPIC) == 4
    assert metrics.value(names.LOG_BYTES, TOPIC) == 130 + 4 * 16
    assert metrics.value(names.LOG_COMMITS, TOPIC) == 2
    assert metrics.value(names.LOG_ROTATIONS, TOPIC) == 1


def test_reopened_log_counts_on(tmp_path: Path) -> None:
    """A counter never goes back while its process lives."""
    metrics = Metrics()
    for _ in range(2):
        with Log.open(tmp_path, name=TOPIC, env=Environment(metrics=metrics)) as log:
            log.append_durable(b"x")
    assert metrics.value(names.LOG_MESSAGES, TOPIC) == 2


def test_removed_files_are_counted(tmp_path: Path) -> None:
    """Retention says how much it took."""
    metrics = Metrics()
    with Log.open(tmp_path, name=TOPIC, env=Environment(metrics=metrics)) as log:
        log.append_durable(b"x")
    settings = LogSettings(retention_bytes=0)
    with Log.open(tmp_path, settings, name=TOPIC, env=Environment(metrics=metrics)) as log:
        log.set_floor(1)
        log.enforce_retention()
    assert metrics.value(names.LOG_REMOVED_FILES, TOPIC) == 1


def test_what_recovery_lost_is_counted(tmp_path: Path) -> None:
    """The middle one of three files is gone: its messages are lost, and counted once."""
    for _ in range(3):
        with Log.open(tmp_path) as log:
            log.append_many([b"x"] * 5).durable.wait()
    sorted(tmp_path.glob("*.wal"))[1].unlink()
    metrics = Metrics()
    Log.open(tmp_path, name=TOPIC, env=Environment(metrics=metrics)).close()
    assert metrics.value(names.LOG_LOST_MESSAGES, TOPIC) == 5


def test_each_log_counts_for_itself() -> None:
    """And a topic that nobody opened has counted nothing."""
    metrics = Metrics()
    with Log.in_memory(name="a", env=Environment(metrics=metrics)) as log:
        log.append_durable(b"x")
    with Log.in_memory(name="b", env=Environment(metrics=metrics)):
        pass
    values = [metrics.value(names.LOG_MESSAGES, topic) for topic in ("a", "b", "c")]
    assert values == [1, 0, 0]


def test_for_log_gives_all_threads_the_same_counters() -> None:
    """However many open a log at once."""
    metrics, found = Metrics(), list[object]()
    threads = [
        threading.Thread(target=lambda: found.append(metrics.for_log(TOPIC))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("topics", [[], ["a"], ["b", 'quoted "a"\\\n\u2028']])
def test_exposition_holds_every_name(topics: list[str]) -> None:
    """Before the first append and after, with whatever a topic is called."""
    metrics = Metrics()
    for topic in topics:
        metrics.for_log(topic).committed(3, 300, 0.004)
    found = families(metrics)
    assert set(found) == {name.removesuffix("_total") for name in EVERY_NAME}
    messages = found["penstock_log_messages"]
    assert {sample.labels["topic"]: sample.value for sample in messages.samples} == dict.fromkeys(
        map(printable, topics), 3.0
    )


def test_exposition_has_the_types_and_texts_of_the_names() -> None:
    """HELP and TYPE lines come from `names`."""
    found = families(Metrics())
    for name, text in names.LOG_COUNTERS.items():
        family = found[name.removesuffix("_total")]
        assert (family.type, family.documentation) == ("counter", text)
    for name, text in names.LOG_HISTOGRAMS.items():
        assert (found[name].type, found[name].documentation) == ("histogram", text)


def test_histogram_buckets_are_cumulative() -> None:
    """Each bucket counts what is at or below its bound; the last one counts all."""
    metrics = Metrics()
    for topic, seconds in [("a", 0.0001), ("a", 0.00011), ("b", 0.003), ("b", 60.0)]:
        metrics.for_log(topic).committed(1, 1, seconds)
    samples = families(metrics)[names.LOG_COMMIT_SECONDS].samples
    buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
    counts = list(buckets.values())
    assert counts == sorted(counts)
    assert [float(bound) for bound in buckets] == [*COMMIT_BUCKETS_S, float("inf")]
    assert [buckets[at] for at in ("0.0001", "0.0002", "0.005", "5", "+Inf")] == [1, 2, 3, 3, 4]


def test_histogram_has_its_count_and_sum() -> None:
    """The mean can be had from them."""
    metrics = Metrics()
    for seconds in (0.25, 0.5):
        metrics.for_log(TOPIC).committed(1, 1, seconds)
    samples = families(metrics)[names.LOG_COMMIT_SECONDS].samples
    values = {sample.name: sample.value for sample in samples if not sample.labels}
    assert values["penstock_log_commit_seconds_sum"] == 0.75
    assert values["penstock_log_commit_seconds_count"] == 2


def test_one_process_shares_its_metrics() -> None:
    """Logs opened without a registry of their own count in one place."""
    assert shared_metrics() is shared_metrics()


# --- stores ------------------------------------------------------------------------------------


def test_store_counts_by_label() -> None:
    """Each set of labels for itself."""
    counted = Metrics().for_store(TOPIC)
    counted.count(names.STORE_EVICTIONS, 2, ("acked",))
    counted.count(names.STORE_EVICTIONS, 1, ("age",))
    counted.count(names.STORE_EVICTIONS, 1, ("acked",))
    values = [
        counted.value(names.STORE_EVICTIONS, (reason,)) for reason in ("acked", "age", "size")
    ]
    assert values == [3, 1, 0]


def test_store_is_asked_for_its_gauges_when_somebody_looks() -> None:
    """Not before, and not after it is closed."""
    counted = Metrics().for_store(TOPIC)
    segments = iter([3, 5])
    counted.gauges = lambda: [(names.STORE_SEGMENTS, (), next(segments))]
    assert [counted.value(names.STORE_SEGMENTS) for _ in range(2)] == [3, 5]
    counted.gauges = None
    assert counted.value(names.STORE_SEGMENTS) == 0


def test_exposition_has_the_labels_of_stores_and_subscribers() -> None:
    """Topic first; names that need it are quoted."""
    metrics = Metrics()
    counted = metrics.for_store(TOPIC)
    counted.count(names.STORE_EVICTIONS, 2, ("size",))
    labels = ('exporter "a"', "acked")
    counted.gauges = lambda: [
        (names.SUBSCRIBER_BUNDLES, labels, 7),
        (names.SUBSCRIBER_IN_FLIGHT, labels[:1], 1),
    ]
    found = families(metrics)
    (evicted,) = found["penstock_store_evictions"].samples
    assert (evicted.labels, evicted.value) == ({"topic": TOPIC, "reason": "size"}, 2)
    (bundles,) = found["penstock_subscriber_bundles"].samples
    assert bundles.labels == {"topic": TOPIC, "subscriber": labels[0], "outcome": "acked"}
    assert found[names.SUBSCRIBER_IN_FLIGHT].samples[0].value == 1


def test_exposition_has_the_types_and_texts_of_the_store_names() -> None:
    """HELP and TYPE lines come from `names`."""
    found = families(Metrics())
    for kind, table in [("counter", names.STORE_COUNTERS), ("gauge", names.STORE_GAUGES)]:
        for name, (text, _) in table.items():
            family = found[name.removesuffix("_total")]
            assert (family.type, family.documentation) == (kind, text)
    for name, text in names.STORE_HISTOGRAMS.items():
        assert (found[name].type, found[name].documentation) == ("histogram", text)


def test_seals_of_all_stores_are_one_histogram() -> None:
    """As the commits of all logs are."""
    metrics = Metrics()
    for topic, seconds in [("a", 0.25), ("b", 0.5)]:
        metrics.for_store(topic).seals.observe(seconds)
    samples = families(metrics)[names.STORE_SEAL_SECONDS].samples
    values = {sample.name: sample.value for sample in samples if not sample.labels}
    assert values["penstock_store_seal_seconds_sum"] == 0.75
    assert values["penstock_store_seal_seconds_count"] == 2


def test_store_that_is_opened_again_counts_on() -> None:
    """In the same part of the registry."""
    metrics = Metrics()
    assert metrics.for_store(TOPIC) is metrics.for_store(TOPIC)
    assert metrics.for_store(TOPIC) is not metrics.for_store("other")
