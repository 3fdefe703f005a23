"""Where bytes rest: files, objects, and small facts that many processes share.

    files        local files: synced, renamed, locked; a test puts its own in their place
    access       who may read them
    directory    the layout of a data directory
    documents    small JSON files that say by themselves whether they are whole
    scratch      folders of use only while a process lives
    objects/     S3, GCS, Azure, a folder or memory: one interface with compare-and-swap
    metadata/    ordered keys with revisions, in a local file or etcd; leases on top of them

Everything above asks for durability here and nowhere else: a write that returned is on disk, or in
the store, as its docstring says. `objects` alone imports obstore, `metadata.etcd` alone aetcd.
"""

from penstock.storage.directory import DEFAULT_DATA_DIR, DataDirectory, Partition
from penstock.storage.files import File, Files, LocalFiles

__all__ = ["DEFAULT_DATA_DIR", "DataDirectory", "File", "Files", "LocalFiles", "Partition"]
