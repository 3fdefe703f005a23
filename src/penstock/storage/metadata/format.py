"""What a lease looks like in the metadata: two keys of JSON. See docs/formats/archive.md."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.model.errors import Damaged, UnsupportedVersion

LEASE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lease; written once for each epoch, so its revision is the fence."""

    epoch: int
    owner: str
    nonce: str
    """Of the one acquisition, so that its maker knows it again when the answer was lost."""
    ttl_s: float


@dataclass(frozen=True, slots=True)
class Beat:
    """That the holder lives; its revision changes with each renewal."""

    epoch: int
    count: int
    released: bool


def encode_holder(holder: Holder) -> bytes:
    """The value of the key `…/lease`."""
    fields = {"epoch": holder.epoch, "owner": holder.owner, "nonce": holder.nonce}
    return _encode({**fields, "ttl_s": holder.ttl_s})


def decode_holder(data: bytes) -> Holder:
    """Damaged where it is none."""
    fields = _decode(data)
    try:
        return Holder(
            int(fields["epoch"]), str(fields["owner"]), str(fields["nonce"]), float(fields["ttl_s"])
        )
    except (KeyError, TypeError, ValueError):
        raise Damaged("not a lease") from None


def encode_beat(beat: Beat) -> bytes:
    """The value of the key `…/lease/beat`."""
    return _encode({"epoch": beat.epoch, "count": beat.count, "released": beat.released})


def decode_beat(data: bytes) -> Beat:
    """Damaged where it is none."""
    fields = _decode(data)
    try:
        return Beat(int(fields["epoch"]), int(fields["count"]), bool(fields["released"]))
    except (KeyError, TypeError, ValueError):
        raise Damaged("not the beat of a lease") from None


def _encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"version": LEASE_VERSION, **fields}, separators=(",", ":")).encode()


def _decode(data: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(data)
        version = fields["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Damaged("not a lease") from None
    if version != LEASE_VERSION:
        raise UnsupportedVersion(f"lease version {version}, this Penstock reads {LEASE_VERSION}")
    return dict(fields)
