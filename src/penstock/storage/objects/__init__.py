"""Object storage: S3, GCS, Azure, a local folder or memory behind one small interface."""

from penstock.storage.objects.model import Data, Fetched, ObjectInfo, ObjectStore, Upload, Version
from penstock.storage.objects.urls import open_objects

__all__ = ["Data", "Fetched", "ObjectInfo", "ObjectStore", "Upload", "Version", "open_objects"]
