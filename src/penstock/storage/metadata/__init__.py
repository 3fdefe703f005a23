"""Small facts that many processes share, with compare-and-swap: in a local file, or in etcd.

model            what is asked of a store; urls: which one a URL names
embedded, etcd   the two stores
format, leases   one owner at a time, known to all; who was replaced is fenced by revision
"""

from penstock.storage.metadata.leases import Lease, Leases
from penstock.storage.metadata.model import Entry, Metadata
from penstock.storage.metadata.urls import open_metadata

__all__ = ["Entry", "Lease", "Leases", "Metadata", "open_metadata"]
