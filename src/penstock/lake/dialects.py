"""What DuckDB and Spark write differently in SQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Dialect:
    """What engines write differently."""

    name: str
    quote: str
    instant: str
    """A time, from nanoseconds."""
    each: str
    """What `{each}` makes of every `e` of a list; an empty list for none."""
    no_strings: str
    """An empty map."""
    no_items: str
    double: str

    def identifier(self, name: str) -> str:
        """A name, whatever is in it."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def strings(self, column: str) -> str:
        """A map that is never null."""
        return f"coalesce({column}, {self.no_strings})"

    def items(self, column: str) -> str:
        """A list that is never null."""
        return f"coalesce({column}, {self.no_items})"

    def at(self, column: str) -> str:
        """A time that the tables have in nanoseconds."""
        return self.instant.format(nanos=column)

    def of_each(self, column: str, expression: str) -> str:
        """A list with `expression` for every `e` of the column."""
        return self.items(self.each.format(column=column, expression=expression))


DUCKDB: Final = Dialect(
    name="duckdb",
    quote='"',
    instant="make_timestamptz({nanos} // 1000)",
    each="list_transform({column}, lambda e: {expression})",
    no_strings="MAP([]::VARCHAR[], []::VARCHAR[])",
    no_items="[]",
    double="DOUBLE",
)
SPARK: Final = Dialect(
    name="spark",
    quote="`",
    instant="timestamp_micros({nanos} div 1000)",
    each="transform({column}, e -> {expression})",
    no_strings="cast(map() AS map<string, string>)",
    no_items="array()",
    double="double",
)
