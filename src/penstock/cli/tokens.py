"""`penstock tokens`: who may come in, in a file that a running server reads again."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.common import json_option, print_json, print_table, say
from penstock.model.errors import InvalidSetting, PenstockError
from penstock.storage.files import LocalFiles, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.server.auth import Caller

_TOKEN_BYTES = 32
file_argument = click.argument(
    "file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False)
)


@click.group()
def tokens() -> None:
    """Make, list and withdraw the tokens of a server.

    FILE is what auth.tokens_file names. A server that runs reads it again by itself.

    Example: penstock tokens list tokens
    """


@tokens.command()
@file_argument
@click.argument("rights", metavar="ROLE=NAMESPACE[,NAMESPACE]...", nargs=-1, required=True)
@click.option("--comment", metavar="TEXT", help="Whose it is; stands behind it in the file.")
@json_option
def add(file: Path, rights: tuple[str, ...], comment: str | None, as_json: bool) -> None:
    """Make a token and print it, this once; the file gets its digest alone.

    A role is ingest, query, subscribe or admin, each with the namespaces where it holds; * is any.
    The file is made where there is none.

    Example: penstock tokens add tokens ingest=checkout,payment query=checkout
    """
    from penstock.server.auth import DIGEST, digest_of, read_grants

    try:
        if not all("=" in right for right in rights):
            raise InvalidSetting("every right is a role, = and namespaces")
        read_grants(rights)
    except InvalidSetting as error:
        raise click.BadParameter(str(error), param_hint="ROLE=NAMESPACE") from None
    if comment is not None and not comment.isprintable():
        raise click.BadParameter("a comment is one printable line", param_hint="--comment")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    words = [f"{DIGEST}{digest_of(token).hex()}", *rights, *([f"# {comment}"] if comment else [])]
    _write(file, [*_lines(file), " ".join(words)])
    made = next(each for each in _callers(file) if each.digest == digest_of(token))
    if as_json:
        print_json({"token": token, **_row(made)})
    else:
        say(token)


@tokens.command("list")
@file_argument
@json_option
def list_tokens(file: Path, as_json: bool) -> None:
    """List the tokens of a file by their ids, with what each may do.

    An id is the beginning of a token's digest; it opens nothing.

    Example: penstock tokens list tokens
    """
    rows = [_row(caller) for caller in _callers(file)]
    if as_json:
        print_json(rows)
        return
    print_table(["id", "rights"], [[row["id"], _said(row["rights"])] for row in rows])


@tokens.command()
@file_argument
@click.argument("id", metavar="ID")
@json_option
def remove(file: Path, id: str, as_json: bool) -> None:  # noqa: A002 - the argument's name
    """Withdraw a token: streams that are open with it end, too.

    The last one cannot be withdrawn: a server without any lets nobody in.

    Example: penstock tokens remove tokens 5e884898da280471
    """
    callers = _callers(file)
    gone = [caller for caller in callers if caller.identity == id]
    if not gone:
        raise PenstockError(f"{file} has no token with the id {id}")
    if len(gone) == len(callers):
        raise PenstockError(f"{id} is the only token of {file}; add another first")
    _write(file, [line for line in _lines(file) if not _is_of(line, id)])
    if as_json:
        print_json(_row(gone[-1]))
    else:
        say(f"removed {id}")


def _callers(file: Path) -> tuple[Caller, ...]:
    from penstock.server.auth import read_tokens

    return read_tokens(file)


def _lines(file: Path) -> list[str]:
    """Those of a file that makes sense; none where there is no file, or nothing in it."""
    if not file.exists() or not file.read_text(encoding="utf-8-sig").strip():
        return []
    _callers(file)
    return file.read_text(encoding="utf-8-sig").splitlines()


def _is_of(line: str, identity: str) -> bool:
    from penstock.server.auth import read_line

    caller = read_line(line)
    return caller is not None and caller.identity == identity


def _write(file: Path, lines: Iterable[str]) -> None:
    """By a rename: a server that reads meanwhile sees all of the old or all of the new."""
    write_atomically(LocalFiles(), file, ("\n".join(lines) + "\n").encode())


def _row(caller: Caller) -> dict[str, Any]:
    rights = {role.value: list(names) for role, names in caller.grants.items()}
    return {"id": caller.identity, "rights": rights}


def _said(rights: dict[str, list[str]]) -> str:
    return " ".join(f"{role}={','.join(names)}" for role, names in rights.items())
