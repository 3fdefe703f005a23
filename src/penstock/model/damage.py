"""What verifying found: one report for logs, stores, archives, queues, lakes and small files.

Every `verify_…` makes one, the reports of several places add up, and `penstock fsck` prints them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is not as it was written."""

    file: str
    """By which `penstock inspect` takes it: a path, or the key of an object."""
    position: int
    kind: str
    detail: str
    first_offset: int | None = None
    messages_lost: int = 0
    rows_lost: int = 0


@dataclass(frozen=True, slots=True)
class KnownLoss:
    """Messages that an earlier repair gave up, and that nobody waits for: damage no more."""

    folder: str
    first_offset: int
    messages_lost: int


@dataclass(slots=True)
class DamageReport:
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
    """Of tables: in files that are whole, without those that were deleted."""
    damage: list[Damage] = field(default_factory=list)
    known_losses: list[KnownLoss] = field(default_factory=list)
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

    @property
    def messages_lost(self) -> int:
        return sum(each.messages_lost for each in self.damage)

    @property
    def rows_lost(self) -> int:
        return sum(each.rows_lost for each in self.damage)

    def read(self, size: int) -> None:
        """Counts a file of so many bytes."""
        self.files_checked += 1
        self.bytes_checked += size

    def add_damage(
        self,
        file: str,
        position: int,
        kind: str,
        detail: str,
        first_offset: int | None = None,
        messages_lost: int = 0,
    ) -> None:
        """Something that is wrong with a file below the path."""
        path = f"{self.path.rstrip('/')}/{file}" if self.path else file
        self.damage.append(Damage(path, position, kind, detail, first_offset, messages_lost))

    def note(self, text: str) -> None:
        """What is no damage, and worth to know of the place."""
        self.notes.append(f"{self.path}: {text}")

    def add(self, other: DamageReport) -> None:
        """Takes in what was found at another place."""
        for each in fields(self)[1:]:
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        lost = {"messages_lost": self.messages_lost, "rows_lost": self.rows_lost}
        return {"path": self.path, "sound": self.sound, **asdict(self), **lost}
