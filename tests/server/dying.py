"""Stands in for the function that decodes, and dies of some messages."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from penstock.server.decoding import decode_in_child

POISON = b"kill the decoder"
SLOW = b"wait in the decoder "
"""The path of a file follows: it is made when the message is being decoded for the first time."""


def decode(signal: Any, messages: list[bytes]) -> Any:
    """Takes the place of `decode_in_child`; runs in the decoder's process."""
    for message in messages:
        if POISON in message:
            os._exit(9)
        if SLOW in message:
            marker = Path(message.partition(SLOW)[2].split(b"|")[0].decode())
            if not marker.exists():
                marker.write_text(str(os.getpid()))
                time.sleep(60)
    return decode_in_child(signal, messages)
