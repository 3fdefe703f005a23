"""The table of metrics is complete."""

from __future__ import annotations

import re

import pytest

from penstock.metrics import names

CONSTANTS = {
    value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
}
TABLE = {
    row[1]: (row[2], row[3], row[4])
    for row in re.finditer(
        r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\| (.+) \|$", names.__doc__ or "", re.MULTILINE
    )
}


def test_table_lists_exactly_the_metrics_there_are() -> None:
    """A metric without its line in the table fails here."""
    assert set(TABLE) == CONSTANTS


def test_table_says_the_type_of_each_metric() -> None:
    """Each metric is registered as what the table calls it."""
    counters = [*names.LOG_COUNTERS, *names.STORE_COUNTERS, *names.PIPELINE_COUNTERS]
    counters += [*names.ARCHIVE_COUNTERS, *names.QUEUE_COUNTERS, *names.PIPELINE_TENANT_COUNTERS]
    counters += names.SERVER_COUNTERS
    types = dict.fromkeys(counters, "counter")
    gauges = [*names.STORE_GAUGES, *names.PIPELINE_GAUGES, *names.QUEUE_GAUGES]
    gauges += names.ARCHIVE_GAUGES
    types |= dict.fromkeys(gauges, "gauge")
    histograms = [*names.LOG_HISTOGRAMS, *names.STORE_HISTOGRAMS, *names.QUEUE_HISTOGRAMS]
    types |= dict.fromkeys(histograms, "histogram")
    assert {name: row[0] for name, row in TABLE.items()} == types


def test_table_says_the_labels_of_each_metric() -> None:
    """`topic` or `queue` first; a histogram has none."""
    labels = dict.fromkeys(names.LOG_COUNTERS, "topic")
    labels |= dict.fromkeys([*names.ARCHIVE_COUNTERS, *names.ARCHIVE_GAUGES], "topic")
    labels |= dict.fromkeys([*names.QUEUE_COUNTERS, *names.QUEUE_GAUGES], "queue")
    labels |= dict.fromkeys([*names.LOG_HISTOGRAMS, *names.STORE_HISTOGRAMS], "")
    labels |= dict.fromkeys(names.QUEUE_HISTOGRAMS, "")
    labels |= dict.fromkeys([*names.PIPELINE_COUNTERS, *names.PIPELINE_GAUGES], "")
    labels |= dict.fromkeys(names.PIPELINE_TENANT_COUNTERS, "namespace")
    labels |= {name: label for name, (_, label) in names.SERVER_COUNTERS.items()}
    for name, (_, beside) in {**names.STORE_COUNTERS, **names.STORE_GAUGES}.items():
        labels[name] = ", ".join(["topic", *beside])
    assert {name: row[1].strip() for name, row in TABLE.items()} == labels


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_name_follows_the_conventions_of_prometheus(name: str) -> None:
    """The product first, the unit in the name, `_total` for counters alone."""
    kind = TABLE[name][0]
    assert re.fullmatch(r"penstock_[a-z]+_[a-z_]+", name)
    assert name.endswith("_total") == (kind == "counter")
    if kind == "histogram":
        assert name.endswith("_seconds")
    if "bytes" in TABLE[name][2].split():
        assert "bytes" in name or name.endswith("_ratio")
