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
    """Counters and histograms are registered as what the table calls them."""
    types = dict.fromkeys(names.LOG_COUNTERS, "counter")
    types |= dict.fromkeys(names.LOG_HISTOGRAMS, "histogram")
    assert {name: row[0] for name, row in TABLE.items()} == types


@pytest.mark.parametrize("name", sorted(CONSTANTS))
def test_name_follows_the_conventions_of_prometheus(name: str) -> None:
    """The product first, the unit in the name, `_total` for counters alone."""
    assert re.fullmatch(r"penstock_[a-z]+_[a-z_]+(_total|_seconds|_bytes)", name)
    assert name.endswith("_total") == (TABLE[name][0] == "counter")
