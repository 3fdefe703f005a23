"""One page of metrics out of those of several workers."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from penstock.server.web.exposition import merge, pipeline_page


def page(requests: int, topic: str = "a", seconds: float = 0.2) -> str:
    """What a worker would say."""
    registry = CollectorRegistry()
    Counter("requests", "requests taken", ["topic"], registry=registry).labels(topic).inc(requests)
    Gauge("open_bytes", "bytes that are open", registry=registry).set(requests * 10)
    histogram = Histogram("seconds", "how long", buckets=(0.1, 1.0), registry=registry)
    histogram.observe(seconds)
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, str], float]:
    """By name and labels, read as Prometheus reads them."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_samples_with_the_same_labels_add_up() -> None:
    """Counters, gauges and the buckets of histograms."""
    found = samples(merge([page(2, seconds=0.05), page(3, seconds=0.5)]))
    assert found["requests_total", "a"] == 5
    assert found["open_bytes", ""] == 50
    assert found["seconds_bucket", "0.1"] == 1
    assert found["seconds_bucket", "+Inf"] == found["seconds_count", ""] == 2


def test_samples_with_other_labels_stand_beside_each_other() -> None:
    """In one family."""
    found = samples(merge([page(2, "a"), page(3, "b")]))
    assert (found["requests_total", "a"], found["requests_total", "b"]) == (2, 3)


def test_each_family_is_described_once() -> None:
    """Prometheus refuses a page that describes one twice."""
    text = merge([page(1), page(2), page(3, "b")])
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert len(heads) == len(set(heads))
    assert "# TYPE requests_total counter" in heads


def test_labels_with_spaces_and_braces_survive() -> None:
    """The value is what stands behind the last space."""
    found = samples(merge([page(2, 'a {b} "c"\n d'), page(2, 'a {b} "c"\n d')]))
    assert found["requests_total", 'a {b} "c"\n d'] == 4


def test_large_counts_stay_exact() -> None:
    """No digit is lost on the way."""
    assert samples(merge([page(2**53 - 1)]))["requests_total", "a"] == 2**53 - 1


def test_page_of_one_worker_means_the_same() -> None:
    """Nothing is left out."""
    text = page(7)
    assert samples(merge([text])) == samples(text)


def test_no_workers_give_an_empty_page() -> None:
    """While they are starting."""
    assert samples(merge([])) == {}


def test_pipeline_tells_what_it_wrote_down() -> None:
    """Totals, and the last of its batches."""
    batches = [{"seconds": 9.0, "lag_s": 1.0, "at": 5.0}, {"seconds": 0.5, "lag_s": 2.5, "at": 6.0}]
    page = pipeline_page({"batches": 2, "rows": 300, "faults": 1, "recent": batches})
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    assert "penstock_pipeline_rows_total 300" in lines
    assert "penstock_pipeline_faults_total 1" in lines
    assert "penstock_pipeline_batch_seconds 0.5" in lines
    assert "penstock_pipeline_lag_seconds 2.5" in lines
    assert merge([page]).count("penstock_pipeline_rows_total 300") == 1


def test_no_pipeline_tells_nothing() -> None:
    """A server without one has a shorter page."""
    assert pipeline_page(None) == ""


def test_what_the_pipeline_counts_by_tenant_has_their_names() -> None:
    """Whatever signs are in them; nothing where nothing was counted."""
    found = samples(merge([pipeline_page({"far_off": {"a": 3, 'b\\"': 4}})]))
    name = "penstock_pipeline_far_off_rows_total"
    assert (found[name, "a"], found[name, 'b\\"']) == (3, 4)
    assert (name, "") not in samples(pipeline_page({"far_off": {}}) + pipeline_page({}))
