"""Whatever a text holds, what is shown of it does nothing but stand there."""

from __future__ import annotations

import json

import pytest

from penstock.model.errors import InvalidArgument
from penstock.model.printable import check_printable, printable, printable_json, printable_lines

HOSTILE = "a\x1b[31m\r\n\t\x07\x9b2J\u2028\u2029\x85\u202e\u200f\ud800\U000e0041\x7fé 中 ✓"


def test_what_a_terminal_would_obey_is_escaped() -> None:
    """And nothing else is: letters of all languages stay."""
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert shown.startswith(r"a\x1b[31m\r\n\t\x07\x9b2J\u2028\u2029\x85\u202e")
    assert shown.endswith("é 中 ✓")
    assert printable("plain é 中") == "plain é 中"


def test_lines_stay_lines() -> None:
    """Newlines alone are kept, as many as there were."""
    assert printable_lines("a\n\x1bb\u2028c\n") == "a\n\\x1bb\\u2028c\n"


def test_json_says_what_it_said() -> None:
    """In escapes of its own."""
    for document in ({HOSTILE: [HOSTILE]}, "\x7f\x9b\u2028\U0001f600\U000e0041", [1, None]):
        text = printable_json(json.dumps(document, ensure_ascii=False))
        assert text.isprintable()
        assert json.loads(text) == document


def test_new_names_are_printable() -> None:
    """One sentence says so, and is printable itself."""
    check_printable("shop é", "a namespace")
    for name in ("a\u2028b", "\x1b[2J", "a\nb", "\u202e"):
        with pytest.raises(InvalidArgument, match="a namespace is made of printable") as raised:
            check_printable(name, "a namespace")
        assert str(raised.value).isprintable()
