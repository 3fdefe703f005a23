"""What `penstock inspect` says of the files of a store."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.cli.common import size_of
from penstock.cli.tail import preview
from penstock.log import format as log_format
from penstock.log.scan import End, Gap, Run, read_header, scan_frames
from penstock.model import SystemClock
from penstock.model.errors import Damaged, FormatError, PenstockError
from penstock.model.slots import OTAP
from penstock.segment import SegmentReader, read_info, segment_seq_of
from penstock.storage import LocalFiles
from penstock.storage.documents import decode_document
from penstock.store.ack_log import CHECKPOINT_KIND, CHECKPOINT_VERSION
from penstock.store.budget import Claim, read_claims
from penstock.store.format import Event, Sealed, Snapshot, decode_event
from penstock.store.messages import decode_bundle, decode_raw
from penstock.store.state import StoreState
from penstock.store.status import subscriber_status
from penstock.store.verify import survey_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from penstock.segment import SegmentInfo


def describe_segment(path: Path, bundles: int) -> dict[str, Any]:
    """Whose it is, its streams, schemas and damage, and its first bundles."""
    files = LocalFiles()
    described: dict[str, Any] = {"path": str(path), "kind": "segment", "bytes": size_of([path])}
    try:
        reader = SegmentReader.open(files, path)
    except Damaged as error:
        with contextlib.suppress(Damaged):
            described |= _of_info(read_info(files, path))
        return {**described, "damage": [{"position": 0, "reason": str(error)}]}
    return {
        **described,
        "format_version": reader.version,
        "store_id": str(reader.store_id),
        **_of_info(reader.info),
        "streams": [_stream(reader, number) for number in range(len(reader.streams))],
        "schemas": [
            _schema(slot, schema) for slot in reader.slots for schema in reader.schemas(slot)
        ],
        "damage": [asdict(damage) for damage in reader.verify()],
        "manifest": [_bundle(reader, index) for index in range(min(bundles, len(reader)))],
    }


def _of_info(info: SegmentInfo) -> dict[str, Any]:
    return {
        "segment_seq": info.segment_seq,
        "sealed_at": time_text(info.sealed_at_ns),
        "first_offset": info.first_offset,
        "end_offset": info.end_offset,
        "first_ingested_at": time_text(info.first_ingested_at_ns),
        "last_ingested_at": time_text(info.last_ingested_at_ns),
        "bundles": info.bundles,
        "items": info.items,
    }


def _stream(reader: SegmentReader, number: int) -> dict[str, Any]:
    entry = reader.streams[number]
    described = {
        "stream": entry.id,
        "slot": OTAP.name(entry.slot),
        "rows": entry.rows,
        "chunks": entry.chunks,
        "position": entry.position,
        "length": entry.length,
        "fingerprint": entry.fingerprint.hex(),
    }
    if entry.omitted:
        names = reader.schema(entry.slot).names
        described["omitted"] = [names[column] for column in entry.omitted]
    if entry.event_times_ns is not None:
        described["first_event"], described["last_event"] = map(time_text, entry.event_times_ns)
    return described


def _schema(slot: int, schema: pa.Schema) -> dict[str, Any]:
    columns = [f"{field.name}: {field.type}" for field in schema]
    return {"slot": OTAP.name(slot), "columns": columns}


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


def describe_ack_log(path: Path, events: int) -> dict[str, Any]:
    """Its first events, its damage, and the state that it proves by itself."""
    described: dict[str, Any] = {"path": str(path), "kind": "acknowledgement log"}
    file = LocalFiles().open(path)
    try:
        described["bytes"] = file.size()
        try:
            header, bad_copies = read_header(file)
        except FormatError as error:
            return {**described, "header": str(error)}
        described |= {
            "format_version": log_format.VERSION,
            "log_id": str(header.log_id),
            "created_at": time_text(header.created_at_ns),
            "damaged_header_copies": bad_copies,
            "first_event": header.first_offset,
        }
        at = log_format.HEADER_BYTES
        walk = scan_frames(file, header.seed, at, header.first_offset, None)
        return described | _describe_events(walk, events)
    finally:
        file.close()


def _describe_events(walk: Iterator[Run | Gap | End], events: int) -> dict[str, Any]:
    state, count, shown, damage = StoreState(), 0, list[dict[str, Any]](), list[dict[str, Any]]()
    last = End(0, 0)
    for item in walk:
        if isinstance(item, Run):
            count += len(item.messages)
            for number, message in enumerate(item.messages, item.first_offset):
                said = _apply(state, message)
                if len(shown) < events:
                    shown.append({"event": number, **said})
        elif isinstance(item, Gap):
            where = {"position": item.position, "first_event": item.first_offset}
            damage.append({**where, "end_event": item.end_offset})
        else:
            last = item
    state.advance()
    return {
        "end_event": last.offset,
        "events": count,
        "torn_bytes": last.torn_bytes,
        "damage": damage,
        **describe_state(state),
        "frames": shown,
    }


def _apply(state: StoreState, message: bytes) -> dict[str, Any]:
    try:
        event = decode_event(message)
        state.apply(event)
    except (FormatError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"kind": "unreadable", "reason": str(error)}
    return {"kind": type(event).__name__.lower(), **_fields(event)}


def _fields(event: Event) -> dict[str, Any]:
    if isinstance(event, Snapshot):
        document = event.state
        return {key: len(document[key]) for key in ("segments", "subscribers")}
    if isinstance(event, Sealed):
        return {"segment_seq": event.info.segment_seq, "bundles": event.info.bundles}
    fields = asdict(event)
    if "time_ns" in fields:
        fields["time"] = time_text(fields.pop("time_ns"))
    return {
        key: value.name.lower() if key in {"outcome", "reason"} else value
        for key, value in fields.items()
    }


def describe_state(state: StoreState) -> dict[str, Any]:
    """Segments and subscribers."""
    now_ns = SystemClock().wall_ns()
    each = [subscriber_status(state, one, 0, now_ns) for one in state.subscribers.values()]
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
                "lag_bundles": one.lag_bundles,
                "acked": one.acked,
                "nacked": one.nacked,
                "rejected": one.rejected,
                "dropped": one.dropped,
                "lost": one.lost,
            }
            for one in each
        ],
    }


def describe_ack_checkpoint(path: Path) -> dict[str, Any]:
    """It is JSON already; what is added is that its checksum holds."""
    data = path.read_bytes()
    StoreState().load(decode_document(CHECKPOINT_KIND, CHECKPOINT_VERSION, data))
    return {"path": str(path), "kind": CHECKPOINT_KIND, "checksum": "good", **json.loads(data)}


# --- other files and folders -------------------------------------------------------------------


def describe_budget(path: Path) -> dict[str, Any] | None:
    """Who claims how much; None for a file that is no budget."""
    claims = read_claims(LocalFiles(), path)
    if claims is None:
        return None
    described = {"path": str(path), "kind": "disk budget", "bytes": size_of([path])}
    used, held = sum(c.used_bytes for c in claims), sum(c.held_bytes for c in claims)
    return {**described, "used_bytes": used, "held_bytes": held, "claims": [*map(_claim, claims)]}


def _claim(claim: Claim) -> dict[str, Any]:
    fields = asdict(claim)
    return {
        "key": fields.pop("key").hex(),
        "asked_at": time_text(fields.pop("asked_at_ns")),
        **fields,
    }


def describe_aside(path: Path) -> dict[str, Any]:
    """A message that could not be decoded, and why not."""
    data = path.read_bytes()
    described = {"path": str(path), "kind": "message set aside", "bytes": len(data)}
    described |= {"offset": int(path.stem), "preview": preview(data)}
    if decode_raw(data) is None:
        try:
            decode_bundle(data)
        except PenstockError as error:
            described["reason"] = str(error)
    return described


def describe_store(path: Path) -> dict[str, Any]:
    """A partition's folder: what its acknowledgement log proves."""
    found = survey_store(LocalFiles(), path)
    return {
        "path": str(path),
        "kind": "store",
        "bytes": found.state.segment_bytes,
        **describe_state(found.state),
        "problems": [str(problem) for problem in found.problems],
    }


def describe_segments(path: Path) -> dict[str, Any]:
    """The folder of sealed segments."""
    numbers = [
        seq for name in LocalFiles().names(path) if (seq := segment_seq_of(name)) is not None
    ]
    size = size_of(path.glob("*.seg"))
    described = {"path": str(path), "kind": "segments", "files": len(numbers), "bytes": size}
    return {**described, "segment_seqs": numbers[:1] + numbers[-1:]}


def time_text(ns: int) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="milliseconds")
