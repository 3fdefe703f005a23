"""What a look at the tiers has to say besides rows.

What is missing makes an answer partial, which nobody gets without asking for it. A note is worth
knowing and takes nothing away: the server did not answer and its log was read instead; a message
was lost for good and set aside, which `penstock fsck` tells of too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.model.errors import AnswerIncomplete

_NAMED: Final = 5
"""Of what is missing, in the message of an error."""


@dataclass(frozen=True, slots=True)
class Lack:
    """Something that should be in the answer and cannot be read."""

    text: str
    """Names it."""
    end_offset: int | None = None
    """Of the log's messages: another tier may have those before this offset."""


@dataclass(slots=True)
class Findings:
    """Of one look; added to as it goes on."""

    notes: list[str] = field(default_factory=list)
    missing: list[Lack] = field(default_factory=list)

    def note(self, text: str) -> None:
        """The answer is whole all the same."""
        self.notes.append(text)

    def lack(self, text: str, end_offset: int | None = None) -> None:
        """The answer is without it."""
        self.missing.append(Lack(text, end_offset))

    def add(self, other: Findings) -> None:
        """All that another one has."""
        self.notes += other.notes
        self.missing += other.missing

    def check(self, *, partial: bool) -> None:
        """AnswerIncomplete where something is missing and a partial answer was not asked for."""
        lacks = self.lacks
        if lacks and not partial:
            named = "; ".join(lacks[:_NAMED])
            more = f"; and {len(lacks) - _NAMED} more" if len(lacks) > _NAMED else ""
            raise AnswerIncomplete(f"not everything can be read: {named}{more}")

    @property
    def lacks(self) -> list[str]:
        """What is missing, each once."""
        return list(dict.fromkeys(lack.text for lack in self.missing))

    @property
    def warnings(self) -> list[str]:
        """All of it, each once; what is missing first."""
        return list(dict.fromkeys([*self.lacks, *self.notes]))
