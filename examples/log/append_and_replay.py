"""Appends a few messages, waits until they are durable, and replays them from an offset."""

import tempfile
from pathlib import Path

from penstock import Log
from penstock.model import Topic
from penstock.storage import DataDirectory


def main() -> None:
    """Writes, closes, opens again and reads, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        directory = DataDirectory(Path(folder) / "data")
        directory.create()
        partition = directory.partition(Topic.parse("/default/traces"))

        with Log.open(partition.log_folder) as log:
            first = log.append_durable(b"span 0")  # returns after fdatasync
            rest = log.append_many([b"span 1", b"span 2", b"span 3"])  # returns at once
            rest.durable.wait()  # all three, or an error for all three
            print(f"durable: offsets {first} to {rest.offset + 2}")

        with Log.open(partition.log_folder) as log:
            print(f"reopened: offsets {log.start_offset} to {log.end_offset - 1}")
            for message in log.read(2):
                print(f"replayed: {message.offset} {message.data.decode()}")


if __name__ == "__main__":
    main()
