"""What `penstock inspect` says of logs and stores."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from penstock.cli.common import size_of, time_text, told
from penstock.cli.tail import preview
from penstock.log import checkpoint as ckpt
from penstock.log import format as log_format
from penstock.log.scan import End, Gap, Run, read_header, read_seal, scan_frames
from penstock.log.survey import survey_log
from penstock.model import SystemClock
from penstock.model.errors import Damaged, FormatError, PenstockError
from penstock.model.slots import OTAP
from penstock.segment import SegmentReader, read_info, segment_seq_of
from penstock.storage import DataDirectory, LocalFiles
from penstock.storage.directory import IDENTITY
from penstock.storage.documents import decode_document
from penstock.store.ack_log import CHECKPOINT_KIND, CHECKPOINT_VERSION
from penstock.store.format import Event, Sealed, Snapshot, decode_event
from penstock.store.messages import decode_bundle, decode_raw
from penstock.store.state import StoreState
from penstock.store.status import subscriber_status
from penstock.store.verify import survey_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.segment import SegmentInfo


# --- logs --------------------------------------------------------------------------------------


def log_file(path: Path, shown: int) -> dict[str, Any]:
    """Whose it is, whether it is finished, its damage, and its first messages."""

    def show(offset: int, message: bytes) -> dict[str, Any]:
        return {"offset": offset, "bytes": len(message), "preview": preview(message)}

    return {"kind": "log file", **_framed(path, shown, "offset", "messages", show)}


def _framed(
    path: Path,
    shown: int,
    number: str,
    count: str,
    show: Callable[[int, bytes], dict[str, Any]],
) -> dict[str, Any]:
    """Header, seal and frames; every frame is given to `show`, of which the first are kept."""
    file = LocalFiles().open(path)
    try:
        header, bad_copies = read_header(file)
        described: dict[str, Any] = {
            "format_version": log_format.VERSION,
            "log_id": str(header.log_id),
            f"first_{number}": header.first_offset,
            "created_at": time_text(header.created_at_ns),
            "damaged_header_copies": bad_copies,
        }
        seal = read_seal(file, header)
        described |= _sealed(seal) if number == "offset" else {}
        end = seal.end_offset if seal is not None else None
        walk = scan_frames(file, header.seed, log_format.HEADER_BYTES, header.first_offset, end)
        return described | _frames(walk, shown, number, count, show)
    except FormatError as error:
        return {"header": str(error)}
    finally:
        file.close()


def _sealed(seal: log_format.Seal | None) -> dict[str, Any]:
    if seal is None:
        return {"sealed": False}
    lost = [list(span) for span in seal.lost]
    known = {"sealed": True, "sealed_at": time_text(seal.sealed_at_ns)}
    return {**known, "index_entries": len(seal.index), "lost": lost}


def _frames(
    walk: Iterator[Run | Gap | End],
    shown: int,
    number: str,
    count: str,
    show: Callable[[int, bytes], dict[str, Any]],
) -> dict[str, Any]:
    total, frames, damage, last = 0, list[dict[str, Any]](), list[dict[str, int]](), End(0, 0)
    for item in walk:
        if isinstance(item, Run):
            total += len(item.messages)
            for at, message in enumerate(item.messages, item.first_offset):
                said = show(at, message)
                if len(frames) < shown:
                    frames.append(said)
        elif isinstance(item, Gap):
            where = {f"first_{number}": item.first_offset, f"end_{number}": item.end_offset}
            damage.append({"position": item.position, **where})
        else:
            last = item
    known = {f"end_{number}": last.offset, count: total, "torn_bytes": last.torn_bytes}
    return {**known, "damage": damage, "frames": frames}


def log_checkpoint(path: Path, _: int) -> dict[str, Any]:
    """It is JSON already; what is added is that its checksum holds."""
    data = path.read_bytes()
    ckpt.decode_checkpoint(data, path.parent)
    return {"kind": "log checkpoint", "checksum": "good", **json.loads(data)}


def identity(path: Path, _: int) -> dict[str, Any]:
    """Of a data directory."""
    return {"kind": "data directory identity", "id": DataDirectory(path.parent).identity()}


# --- segments ----------------------------------------------------------------------------------


def segment(path: Path, bundles: int) -> dict[str, Any]:
    """Whose it is, its streams, schemas and damage, and its first bundles."""
    described: dict[str, Any] = {"kind": "segment"}
    try:
        reader = SegmentReader.open(LocalFiles(), path)
    except Damaged as error:
        with contextlib.suppress(Damaged):
            described |= _of_info(read_info(LocalFiles(), path))
        return {**described, "damage": [{"position": 0, "reason": str(error)}]}
    return {
        **described,
        "format_version": reader.version,
        "store_id": str(reader.store_id),
        **_of_info(reader.info),
        "streams": [_stream(reader, number) for number in range(len(reader.streams))],
        "schemas": [
            {"slot": OTAP.name(slot), "columns": [f"{each.name}: {each.type}" for each in schema]}
            for slot in reader.slots
            for schema in reader.schemas(slot)
        ],
        "damage": [asdict(damage) for damage in reader.verify()],
        "manifest": [_bundle(reader, index) for index in range(min(bundles, len(reader)))],
    }


def _of_info(info: SegmentInfo) -> dict[str, Any]:
    return {name: value for name, value in told(info).items() if name != "size"}


def _stream(reader: SegmentReader, number: int) -> dict[str, Any]:
    entry = reader.streams[number]
    names = ("rows", "chunks", "position", "length")
    described = {"stream": entry.id, "slot": OTAP.name(entry.slot)}
    described |= {name: getattr(entry, name) for name in names}
    described["fingerprint"] = entry.fingerprint.hex()
    if entry.omitted:
        columns = reader.schema(entry.slot).names
        described["omitted"] = [columns[column] for column in entry.omitted]
    if entry.event_times_ns is not None:
        described["first_event"], described["last_event"] = map(time_text, entry.event_times_ns)
    return described


def _bundle(reader: SegmentReader, index: int) -> dict[str, Any]:
    entry = reader.manifest(index)
    return {
        "bundle": index,
        "first_offset": entry.first_offset,
        "messages": entry.messages,
        "items": entry.items,
        "ingested_at": time_text(entry.ingested_at_ns),
        "slots": [f"{OTAP.name(ref.slot)} {ref.stream}:{ref.chunk}" for ref in entry.refs],
    }


# --- the acknowledgement log -------------------------------------------------------------------


def ack_log(path: Path, shown: int) -> dict[str, Any]:
    """Its first events, its damage, and the state that it proves by itself."""
    state = StoreState()

    def show(number: int, message: bytes) -> dict[str, Any]:
        return {"event": number, **_apply(state, message)}

    found = _framed(path, shown, "event", "events", show)
    state.advance()
    frames = found.pop("frames", None)
    known = {} if frames is None else {**_state(state), "frames": frames}
    return {"kind": "acknowledgement log", **found, **known}


def _apply(state: StoreState, message: bytes) -> dict[str, Any]:
    try:
        event = decode_event(message)
        state.apply(event)
    except (FormatError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"kind": "unreadable", "reason": str(error)}
    return {"kind": type(event).__name__.lower(), **_fields(event)}


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, Snapshot):
        return {key: len(event.state[key]) for key in ("segments", "subscribers")}
    if isinstance(event, Sealed):
        return {"segment_seq": event.info.segment_seq, "bundles": event.info.bundles}
    return told(event)


def _state(state: StoreState) -> dict[str, Any]:
    now_ns = SystemClock().wall_ns()
    each = [subscriber_status(state, one, 0, now_ns) for one in state.subscribers.values()]
    names = ("lag_bundles", "acked", "nacked", "rejected", "dropped", "lost")
    return {
        "store_id": str(state.store_id),
        "next_segment_seq": state.next_seq,
        "sealed_offset": state.sealed_offset,
        "segments": len(state.segments),
        "subscribers": [
            {
                "name": one.name,
                "active": one.active,
                "mark": f"{one.segment_seq}:{one.bundle_index}",
                **{name: getattr(one, name) for name in names},
            }
            for one in each
        ],
    }


def ack_checkpoint(path: Path, _: int) -> dict[str, Any]:
    """It is JSON already; what is added is that its checksum holds."""
    data = path.read_bytes()
    StoreState().load(decode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, data))
    return {"kind": CHECKPOINT_KIND, "checksum": "good", **json.loads(data)}


# --- other files and folders -------------------------------------------------------------------


def aside(path: Path, _: int) -> dict[str, Any]:
    """A message that could not be decoded, and why not."""
    data = path.read_bytes()
    described = {"kind": "message set aside", "offset": int(path.stem), "preview": preview(data)}
    if decode_raw(data) is None:
        try:
            decode_bundle(data)
        except PenstockError as error:
            described["reason"] = str(error)
    return described


def folder(path: Path, names: list[str]) -> dict[str, Any] | None:
    """A data directory, a partition, its log or its segments; None for any other."""
    files = LocalFiles()
    if IDENTITY in names:
        directory = DataDirectory(path)
        partitions = [f"{p.topic} partition {p.number}" for p in directory.partitions()]
        known: dict[str, Any] = {"kind": "data directory", "id": directory.identity()}
        known["partitions"] = partitions
    elif not {"ack.log", "ack.ckpt", "segments"}.isdisjoint(names):
        found = survey_store(files, path)
        known = {"kind": "store", "bytes": found.state.segment_bytes, **_state(found.state)}
        known["problems"] = [str(problem) for problem in found.problems]
    elif numbers := [seq for name in names if (seq := segment_seq_of(name)) is not None]:
        known = {"kind": "segments", "files": len(numbers), "bytes": size_of(path.glob("*.seg"))}
        known["segment_seqs"] = numbers[:1] + numbers[-1:]
    else:
        log = survey_log(files, path)
        known = {"kind": "log", "files": log.files, "bytes": log.bytes}
        known |= {"earliest": log.start_offset, "end": log.end_offset}
        if not log.files:
            return None
    return {"path": str(path), **known}
