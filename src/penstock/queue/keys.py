"""Where the objects of a queue are.

<data_path_prefix>/<ULID>.batch       a batch
<manifest_path>                       the manifest
<manifest_path>.id                    the identity: says that there is a manifest
<manifest_path>.chunks/<20 digits>    a chunk of the manifest
"""

from __future__ import annotations

from typing import Final

from penstock.queue.ulid import Ulid, parse_ulid, ulid_text

BATCH_SUFFIX: Final = ".batch"


def batch_key(prefix: str, batch_id: Ulid) -> str:
    """The key of a batch."""
    return f"{prefix}/{ulid_text(batch_id)}{BATCH_SUFFIX}"


def batch_id_of(key: str) -> Ulid | None:
    """The ULID in the key of a batch; None for any other key."""
    name = key.rpartition("/")[2]
    return parse_ulid(name.removesuffix(BATCH_SUFFIX)) if name.endswith(BATCH_SUFFIX) else None


def identity_key(manifest_path: str) -> str:
    """The key of the identity."""
    return f"{manifest_path}.id"


def owner_key(prefix: str) -> str:
    """The key of what says whose batches lie below the prefix."""
    return f"{prefix}/owner.id"


def chunk_folder(manifest_path: str) -> str:
    """What the keys of all chunks begin with."""
    return f"{manifest_path}.chunks/"


def chunk_key(manifest_path: str, chunk: int) -> str:
    """The key of a chunk."""
    return f"{chunk_folder(manifest_path)}{chunk:020d}"


def chunk_of(manifest_path: str, key: str) -> int | None:
    """The number in the key of a chunk; None for any other key."""
    digits = key.removeprefix(chunk_folder(manifest_path))
    return int(digits) if digits != key and len(digits) == 20 and digits.isdecimal() else None
