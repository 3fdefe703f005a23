"""Every file that Penstock writes, recognised in one place: who explains it, and what verifies it.

Names decide, as docs/formats/data-directory.md has them; what has none of these is looked into.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.cli.common import installed
from penstock.model.errors import FormatError, PenstockError

if TYPE_CHECKING:
    from pathlib import Path


class FileKind(NamedTuple):
    """Files of one form."""

    name: str
    """A pattern for the end of the path, from a `/` on."""
    explainer: str
    """A function (path, how many parts to show) that says what is in such a file: `module:name`.

    It raises FormatError where the file is damaged.
    """
    extra: str = "objects"
    """What has to be installed for it."""
    is_record: bool = False
    """Whether it is a small file that says by itself if it is whole: explaining it verifies it."""


_KINDS: Final = (
    FileKind(r"[^/]*\.wal", "explain_store:log_file"),
    FileKind(r"log\.ckpt", "explain_store:log_checkpoint"),
    FileKind(r"penstock\.json", "explain_store:identity"),
    FileKind(r"[^/]*\.seg", "explain_store:segment"),
    FileKind(r"ack\.log", "explain_store:ack_log"),
    FileKind(r"ack\.ckpt", "explain_store:ack_checkpoint"),
    FileKind(r"[0-9]{20}\.msg", "explain_store:aside"),
    FileKind(r"[^/]+\.sock", "explain_records:unread"),
    FileKind(r"checkpoints/.+", "explain_records:unread"),
    FileKind(r"pipeline/reserve", "explain_records:unread"),
    FileKind(r"\.penstock/locks/[^/]+", "explain_records:unread"),
    FileKind(r"[^/]+\.db-(wal|shm|journal)", "explain_records:unread"),
    FileKind(r"[^/]+\.tmp", "explain_records:unread"),
    FileKind(r"[^/]*\.lock", "explain_records:lock"),
    FileKind(r"[^/]+\.run", "explain_records:run", is_record=True),
    FileKind(r"repeats(-[0-9]+)?\.tbl", "explain_records:requests", is_record=True),
    FileKind(r"seen/[^/]+\.json", "explain_records:seen", is_record=True),
    FileKind(
        r"(server|registrations|delivered|delivered-before|progress)\.json|archive\.ckpt",
        *("explain_records:document", "objects", True),
    ),
    FileKind(r"budget", "explain_records:budget", is_record=True),
    FileKind(r"metadata\.db", "explain_places:metadata_file"),
    FileKind(r"catalog\.db", "explain_lake:catalog", "query"),
    FileKind(r"[^/]+\.parquet", "explain_lake:parquet", "query"),
    FileKind(r"[^/]+\.metadata\.json", "explain_lake:table_metadata", "query"),
    FileKind(r"[^/]+\.avro", "explain_lake:manifest", "query"),
    FileKind(r".*", "explain_objects:by_its_content"),
)


def kind_of(path: Path) -> FileKind:
    """By its name, without what was added when it was set aside."""
    name = f"{path.absolute().parent.as_posix()}/{path.name.partition('.damaged')[0]}"
    return next(kind for kind in _KINDS if re.search(f"/({kind.name})$", name))


def explain(path: Path, shown: int = 0) -> dict[str, Any]:
    """What is in a file, with the first `shown` of its parts; FormatError where it is damaged."""
    kind = kind_of(path)
    module, _, name = kind.explainer.partition(":")
    with installed(kind.extra):
        function = getattr(importlib.import_module(f"penstock.cli.{module}"), name)
    try:
        found = function(path, shown)
    except FormatError as error:
        raise (error if str(path) in str(error) else type(error)(f"{path}: {error}")) from None
    if found is None:
        raise PenstockError(f"{path} is no file that Penstock writes")
    return {"path": str(path), "kind": "", "bytes": path.stat().st_size, **found}
