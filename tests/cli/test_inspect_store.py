"""`penstock inspect` explains the files of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.model.bundle import Bundle
from penstock.model.slots import LOGS as LOGS_SLOT
from penstock.segment import format as segment_format
from penstock.store.budget import FairShare
from tests.cli.running import inspect, run
from tests.cli.stores import Placed, harm, harm_header, harm_text, open_store

if TYPE_CHECKING:
    from pathlib import Path


# --- segments ----------------------------------------------------------------------------------


def test_segment_is_explained(store: Placed) -> None:
    """Whose it is and what it holds."""
    said = inspect(store.segment(1))
    with open_store(store.folder) as opened:
        store_id = opened.read_segment(1).store_id
    assert (said["kind"], said["store_id"]) == ("segment", str(store_id))
    assert (said["segment_seq"], said["first_offset"], said["end_offset"]) == (1, 4, 8)
    assert (said["bundles"], said["items"], said["damage"]) == (4, 12, [])
    assert said["bytes"] == store.segment(1).stat().st_size
    assert said["first_ingested_at"] <= said["last_ingested_at"] <= said["sealed_at"]


def test_streams_of_a_segment_are_explained(store: Placed) -> None:
    """Slot, rows and place of each; its columns by slot."""
    said = inspect(store.segment(1))
    streams = [(each["slot"], each["rows"], each["chunks"]) for each in said["streams"]]
    assert streams == [("SPANS", 12, 4), ("SPAN_ATTRS", 4, 4)]
    assert {each["position"] % segment_format.ALIGNMENT for each in said["streams"]} == {0}
    assert said["schemas"] == [
        {"slot": "SPANS", "columns": ["id: uint16", "name: string"]},
        {"slot": "SPAN_ATTRS", "columns": ["key: string"]},
    ]


def test_event_times_and_omitted_columns_are_shown(store: Placed) -> None:
    """Where a stream has them."""
    times = pa.array([0, 10**9], pa.timestamp("ns"))
    with open_store(store.folder) as opened:
        opened.append(Bundle({LOGS_SLOT: pa.record_batch({"time_unix_nano": times})}))
        opened.append(Bundle({LOGS_SLOT: pa.record_batch({"body": ["x"]})}))
    first, second = inspect(store.segment(3))["streams"]
    assert first["first_event"] == "1970-01-01T00:00:00.000+00:00"
    assert first["last_event"] == "1970-01-01T00:00:01.000+00:00"
    assert (first["omitted"], second["omitted"]) == (["body"], ["time_unix_nano"])
    assert "first_event" not in second


@pytest.mark.parametrize("frames", [0, 1, 100])
def test_bundles_are_shown_up_to_the_number_asked_for(store: Placed, frames: int) -> None:
    """With their offsets and the chunk of each slot, as stream and chunk."""
    shown = inspect(store.segment(1), "--frames", str(frames))["manifest"]
    assert len(shown) == min(frames, 4)
    for index, each in enumerate(shown):
        assert (each["bundle"], each["first_offset"], each["messages"]) == (index, 4 + index, 1)
        assert each["slots"] == [f"SPANS 0:{index}", f"SPAN_ATTRS 1:{index}"]


def test_damaged_segment_is_explained(store: Placed) -> None:
    """With the place of the damage and the bundles that it costs."""
    harm_text(store.segment(1), b"span 6span 6")
    (found,) = inspect(store.segment(1))["damage"]
    assert found["bundles"] == [2]
    assert "chunk 2 of stream 0" in found["reason"]


def test_segment_without_its_footer_says_what_its_trailer_knows(store: Placed) -> None:
    """And without a trailer only what is wrong."""
    size = store.segment(1).stat().st_size
    harm(store.segment(1), size - 200)
    said = inspect(store.segment(1))
    assert (said["segment_seq"], said["bundles"]) == (1, 4)
    assert "footer" in said["damage"][0]["reason"]
    harm(store.segment(1), size - 20)
    assert "segment_seq" not in inspect(store.segment(1))


def test_segment_that_was_set_aside_is_explained(store: Placed) -> None:
    """As the segment that it was."""
    aside = store.segment(1).rename(store.segment(1).with_name(f"{store.segment(1).name}.damaged"))
    assert inspect(aside)["segment_seq"] == 1


# --- the acknowledgement log ---------------------------------------------------------------------


def test_ack_log_is_explained(store: Placed) -> None:
    """The state that it proves, and its first events."""
    said = inspect(store.ack_log)
    assert (said["kind"], said["segments"]) == ("acknowledgement log", 3)
    assert (said["next_segment_seq"], said["sealed_offset"]) == (3, 12)
    marks = [(each["name"], each["mark"], each["lag_bundles"]) for each in said["subscribers"]]
    assert marks == [("exporter", "0:2", 9), ("archive", "0:0", 12)]
    first = said["frames"][0]
    assert (first["event"], first["kind"]) == (said["first_event"], "snapshot")
    assert (first["segments"], first["subscribers"]) == (3, 2)


def test_events_are_shown_by_kind(store: Placed) -> None:
    """Each with what it says."""
    with open_store(store.folder) as opened:
        opened.deactivate("archive")
        opened.subscribe("exporter").next_bundle(60).ack().wait()
        said = inspect(store.ack_log)
    events = [(each["kind"], each.get("outcome"), each.get("active")) for each in said["frames"]]
    assert events == [
        ("snapshot", None, None),
        ("activated", None, False),
        ("answered", "acked", None),
    ]
    assert said["frames"][2]["time"].endswith("+00:00")


def test_damaged_ack_log_is_explained(store: Placed) -> None:
    """With the place of the damage; without a header there is no more to say."""
    harm(store.ack_log, 4096 + 16 + 3)
    said = inspect(store.ack_log)
    assert [each["position"] for each in said["damage"]] == [4096]
    harm_header(store.ack_log)
    assert "damaged" in inspect(store.ack_log)["header"]


def test_ack_checkpoint_is_explained(store: Placed) -> None:
    """It is JSON already; what inspect adds is that its checksum holds."""
    said = inspect(store.checkpoint)
    assert (said["kind"], said["checksum"], said["next_seq"]) == ("ack checkpoint", "good", 3)
    harm(store.checkpoint, 40)
    assert run("inspect", store.checkpoint).is_one_sentence()


# --- other files and folders -------------------------------------------------------------------


def test_store_and_its_segments_are_explained_by_their_folders(store: Placed) -> None:
    """What ack.log proves; how many files there are."""
    said = inspect(store.folder)
    assert (said["kind"], said["segments"], len(said["subscribers"])) == ("store", 3, 2)
    assert said["problems"] == []
    said = inspect(store.folder / "segments")
    assert (said["kind"], said["files"], said["segment_seqs"]) == ("segments", 3, [0, 2])


def test_budget_file_is_explained(tmp_path: Path) -> None:
    """Whatever it is called: who uses and was granted how much."""
    path = tmp_path / "shared"
    for key, used in [("first", 100), ("second", 300)]:
        FairShare(path, 10_000, 2, key=key, unit_bytes=1000).limit(used, used)
    said = inspect(path)
    assert (said["kind"], said["used_bytes"], said["held_bytes"]) == ("disk budget", 400, 2000)
    assert [claim["used_bytes"] for claim in said["claims"]] == [100, 300]


def test_message_that_was_set_aside_is_explained(store: Placed) -> None:
    """With its offset, its beginning and what is wrong with it."""
    (store.folder / "aside").mkdir()
    path = store.folder / "aside" / f"{77:020d}.msg"
    path.write_bytes(b"\0B\x01")
    said = inspect(path)
    assert (said["kind"], said["offset"], said["bytes"]) == ("message set aside", 77, 3)
    assert "not a bundle" in said["reason"]


def test_text_for_people_has_a_line_for_each_stream(store: Placed) -> None:
    """Lists within a line are readable, too."""
    out = run("inspect", store.segment(1)).out
    assert "stream 0  slot SPANS  rows 12" in out
    assert "columns [id: uint16, name: string]" in out
