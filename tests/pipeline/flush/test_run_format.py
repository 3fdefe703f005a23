"""Runs as bytes: docs/formats/repeat-window.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penstock.lake.window import in_order
from penstock.model.errors import Damaged, UnsupportedVersion
from penstock.pipeline.flush.run_format import (
    HEAD_BYTES,
    Asked,
    Head,
    decode_head,
    encode_head,
    filter_of,
    may_have,
    words_for,
)

if TYPE_CHECKING:
    from tests.lake.test_window import Keys

PAGE = (Path(__file__).parents[3] / "docs" / "formats" / "repeat-window.md").read_text()


def random_keys(count: int, seed: int = 0) -> Keys:
    """In order."""
    made = np.random.default_rng(seed).integers(0, 2**64, (count, 2), np.uint64)
    return in_order(made)


def run(keys: Keys, note: bytes = b"{}", newest_ms: int = 1) -> bytes:
    """A whole file."""
    head = Head(len(keys), words_for(len(keys)), newest_ms, newest_ms, note)
    columns = [filter_of(keys, head.words), keys[:, 0], keys[:, 1]]
    return encode_head(head) + b"".join(each.tobytes() for each in columns)


@pytest.mark.parametrize("note", [b"", b"{}", b'{"a": "1234567"}'])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_head_is_read_as_it_was_written(note: bytes, count: int) -> None:
    """With a note of any length; what follows begins at a multiple of eight."""
    data = run(random_keys(count), note, 7)
    head = decode_head(data)
    assert (head.keys, head.newest_ms, head.note) == (count, 7, note)
    assert head.filter_at % 8 == 0
    assert head.size == len(data)


def test_torn_or_damaged_run_is_refused() -> None:
    """Cut anywhere, longer, or with another head; the rest can only make it forget."""
    data = run(random_keys(10))
    for cut in (*range(0, HEAD_BYTES + 8, 5), len(data) - 1):
        with pytest.raises(Damaged):
            decode_head(data[:cut])
    with pytest.raises(Damaged):
        decode_head(data + b"\0")
    for place in (*range(8), *range(12, HEAD_BYTES + 2)):
        with pytest.raises(Damaged):
            decode_head(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    with pytest.raises(UnsupportedVersion):
        decode_head(data[:8] + b"\2" + data[9:])


def test_filter_never_denies_a_key_and_seldom_lets_another_through() -> None:
    """Two bytes a key; less than one in a hundred."""
    own, others = random_keys(20_000), random_keys(20_000, seed=1)
    words = filter_of(own, words_for(len(own)))
    assert words.nbytes <= 2 * len(own) + 8
    assert may_have(words, Asked(own)).all()
    assert may_have(words, Asked(others)).mean() < 0.01


def test_filter_of_one_word_lets_much_through_and_denies_no_key() -> None:
    """So that others can try what its errors cost."""
    own = random_keys(100)
    words = filter_of(own, 1)
    assert may_have(words, Asked(random_keys(100, seed=1))).all()
    assert may_have(words, Asked(own)).all()


def test_the_example_of_the_page_is_what_the_code_writes() -> None:
    """Byte for byte."""
    [text] = re.findall(r"^```hex\n(.+?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    shown = bytes.fromhex("".join(line.partition("|")[0] for line in text.splitlines()))
    keys = np.array([(0x0000000100000002, 3), (0xF000000000000000, 0x41)], np.uint64)
    assert shown == run(keys, b"{}", 1_700_000_000_000)
