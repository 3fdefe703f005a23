"""What several commands print in the same way."""

from __future__ import annotations

import pytest

from penstock.cli.common import human_bytes, print_table


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 1024**2, "5.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (2 * 1024**4, "2.0 TiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_sizes_are_shown_in_binary_units(size: int, text: str) -> None:
    """Whole bytes, and one digit of anything larger."""
    assert human_bytes(size) == text


def test_table_aligns_text_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    """Each column as wide as its widest cell."""
    print_table(["name", "count"], [["a", 1000000], ["longer", 5]])
    assert capsys.readouterr().out == (
        "name      count\n"  #
        "a       1000000\n"
        "longer        5\n"
    )


def test_table_without_rows_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to align is no error."""
    print_table(["name", "count"], [])
    assert capsys.readouterr().out == "name  count\n"
