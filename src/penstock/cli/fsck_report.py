"""What `penstock fsck` found, whatever it looked at: as JSON and for people."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.cli.common import human_bytes, say


@dataclass(slots=True)
class Findings:
    """Counts of what was read, and what is wrong with it."""

    path: str
    logs: int = 0
    stores: int = 0
    lakes: int = 0
    tables: int = 0
    archives: int = 0
    """Partitions in archives."""
    queues: int = 0
    records: int = 0
    """Small files in which servers, pipelines and queries note things."""
    files_checked: int = 0
    bytes_checked: int = 0
    messages: int = 0
    segments: int = 0
    bundles: int = 0
    batches: int = 0
    """Of queues; their entries count as messages."""
    rows: int = 0
    """Of tables."""
    damage: list[dict[str, Any]] = field(default_factory=list)
    known_losses: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether all is as it was written."""
        return not self.damage

    @property
    def is_empty(self) -> bool:
        """Whether there was nothing to look at."""
        places = self.logs or self.stores or self.lakes or self.archives or self.queues
        return not (places or self.records)

    def add_damage(
        self,
        file: str,
        detail: str,
        *,
        kind: str,
        position: int = 0,
        first_offset: int | None = None,
        messages_lost: int = 0,
        rows_lost: int = 0,
    ) -> None:
        """One thing that is wrong, by the file that it is in."""
        self.damage.append(
            {
                "file": file,
                "position": position,
                "kind": kind,
                "detail": detail,
                "first_offset": first_offset,
                "messages_lost": messages_lost,
                "rows_lost": rows_lost,
            }
        )

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        lost = {
            f"{what}_lost": sum(row[f"{what}_lost"] for row in self.damage)
            for what in ("messages", "rows")
        }
        return {"path": self.path, "sound": self.sound, **asdict(self), **lost}


def print_findings(found: Findings, after: Findings | None, *, kept: str | None = None) -> None:
    """For people: what was read, what is wrong with it, and the verdict in the last line."""
    say(f"{found.path}: {_held(found)}")
    for row in found.damage:
        lost = "".join(f", {text} lost" for text in _lost(row))
        where = f"{row['file']} at byte {row['position']}"
        say(f"  damaged: {where}: {row['detail']}{lost}")
    for row in found.known_losses:
        say(f"  lost earlier: {_messages(row)} in {row['folder']}")
    for note in found.notes:
        say(f"  note: {note}")
    if kept is not None:
        say(f"  not repaired: {kept}")
    say(_verdict(found, after))


def _verdict(found: Findings, after: Findings | None) -> str:
    if found.sound:
        return "sound"
    if after is not None and after.damage != found.damage:
        state = "sound now" if after.sound else f"{len(after.damage)} still damaged"
        held = f"{after.messages} messages"
        held += f" and {counted(after.bundles, 'bundle')}" if after.stores else ""
        return f"repaired: {held} readable; {state}"
    document = found.document()
    lost = counted(document["messages_lost"], "message")
    lost += f" and {counted(document['rows_lost'], 'row')}" if found.tables else ""
    return f"{counted(len(found.damage), 'damaged place')}, {lost} lost"


def _held(found: Findings) -> str:
    parts = [f"{found.files_checked} files", human_bytes(found.bytes_checked)]
    if not found.lakes or found.logs or found.stores:
        parts.append(f"{found.messages} messages")
    parts += [counted(found.segments, "segment")] if found.stores else []
    parts += [counted(found.bundles, "bundle")] if found.stores else []
    parts += [counted(found.batches, "batch", "batches")] if found.queues else []
    if found.lakes:
        parts += [counted(found.tables, "table"), counted(found.rows, "row")]
    return ", ".join(parts)


def _lost(row: dict[str, Any]) -> list[str]:
    messages = [_messages(row)] if row["messages_lost"] else []
    return messages + ([counted(row["rows_lost"], "row")] if row["rows_lost"] else [])


def _messages(row: dict[str, Any]) -> str:
    count, first = row["messages_lost"], row["first_offset"]
    if first is None:
        return counted(count, "message")
    return f"1 message (offset {first})" if count == 1 else f"{count} messages from offset {first}"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """`1 file`, `2 files`."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
