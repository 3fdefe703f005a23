"""Names of segments, and what their last bytes say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.model.errors import Damaged
from penstock.segment import format as fmt
from penstock.segment import read_info, segment_name, segment_seq_of
from penstock.storage import LocalFiles
from tests.segment.helpers import SEQ, column, fill, seal
from tests.simulation.faults import FaultyFiles


def test_names_sort_as_their_numbers() -> None:
    """And lead back to them."""
    names = [segment_name(number) for number in (0, 9, 10, 2**63 - 1)]
    assert names == sorted(names)
    assert [segment_seq_of(name) for name in names] == [0, 9, 10, 2**63 - 1]
    assert names[0] == "00000000000000000000.seg"


@pytest.mark.parametrize(
    "name", ["", "7.seg", f"{7:020d}.seg.tmp", f"{7:020d}.wal", f"{2**63:020d}.seg", "a" * 20]
)
def test_other_names_are_no_segments(name: str) -> None:
    """Scratch files least of all."""
    assert segment_seq_of(name) is None


def test_the_trailer_alone_answers(tmp_path: Path) -> None:
    """One read at the end of the file; the rest may be damaged."""
    info = seal(tmp_path, fill(column(pa.array(range(1000)))))
    path = tmp_path / segment_name(SEQ)
    damaged = tmp_path / "damaged.seg"
    damaged.write_bytes(bytes(info.size - 128) + path.read_bytes()[-128:])
    assert read_info(LocalFiles(), path) == read_info(LocalFiles(), damaged) == info


def test_a_file_without_a_trailer_is_damaged(tmp_path: Path) -> None:
    """Empty, too short, or ending with something else; the message names it."""
    for content in (b"", b"x", bytes(fmt.TRAILER_BYTES), bytes(500)):
        (tmp_path / "bad.seg").write_bytes(content)
        with pytest.raises(Damaged, match=r"bad\.seg"):
            read_info(LocalFiles(), tmp_path / "bad.seg")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    """The system's error passes through."""
    seal(tmp_path, fill([]))
    files = FaultyFiles(LocalFiles())
    files.fail("pread")
    with pytest.raises(OSError, match="Input/output"):
        read_info(files, tmp_path / segment_name(SEQ))
