"""Texts that others chose, where people and line by line formats meet them.

Terminals obey control characters, and readers of lines end one at characters that are no newline.
So whatever a name, a message or a value holds, it is shown with those escaped, by this and nothing
else; and a name that is given from now on has none (`check_printable`). Names that are older stay
as they are, in files and in answers.
"""

from __future__ import annotations

from typing import Final

from penstock.model.errors import InvalidArgument

_SHOWN: Final = 80


def printable(text: str) -> str:
    r"""The text in one line, each character that is not printable as `\x1b`, `\n` or `\u2028`.

    Nothing in it moves a cursor, ends a line or turns the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escaped(each) for each in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines, which stay lines."""
    return "\n".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """The same for a JSON text, which goes on saying what it said: such characters are in texts."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _in_json(each) for each in text)


def check_printable(name: str, what: str) -> None:
    """InvalidArgument where a new name holds what could not be shown as it is."""
    if not name.isprintable():
        shown = printable(name[:_SHOWN])
        raise InvalidArgument(f"{what} is made of printable characters, not {shown!r}")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _in_json(character: str) -> str:
    r"""As `\u2028`; beyond 16 bits as a pair of them."""
    code = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
