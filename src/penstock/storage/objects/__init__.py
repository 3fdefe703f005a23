"""Object storage: S3, GCS, Azure, a local folder or memory behind one small interface.

model            what is asked of a store; urls: which one a URL names
cloud, answers   by obstore, and what each answer of a server means
folder           a local folder, synced, with the compare-and-swap that obstore's lacks
"""

from penstock.storage.objects.model import Data, Fetched, ObjectInfo, ObjectStore, Upload, Version
from penstock.storage.objects.urls import open_objects

__all__ = ["Data", "Fetched", "ObjectInfo", "ObjectStore", "Upload", "Version", "open_objects"]
