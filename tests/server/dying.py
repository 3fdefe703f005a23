"""Stands in for the process that decodes, and dies of some messages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from penstock.server.keeping import decoder

POISON = b"kill the decoder"
SLOW = b"wait in the decoder "
"""The path of a file follows: it is made when the message is being decoded for the first time."""


def decode(signal: Any, messages: Any) -> Any:
    """Takes the place of the decoder's own; runs in its process."""
    for message in map(bytes, messages):
        if POISON in message:
            os._exit(9)
        if SLOW in message:
            marker = Path(message.partition(SLOW)[2].split(b"|")[0].decode())
            if not marker.exists():
                marker.write_text(str(os.getpid()))
                time.sleep(60)
    return decoder.decode(signal, messages)


if __name__ == "__main__":
    decoder.serve(decode)
