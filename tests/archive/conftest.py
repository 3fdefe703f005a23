"""What the tests of the archive share."""

from __future__ import annotations

from tests.servers.fixtures import etcd, s3

__all__ = ["etcd", "s3"]
