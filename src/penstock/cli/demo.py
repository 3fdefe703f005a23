"""`penstock demo`: a guided tour that ends by itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.common import human_bytes, print_table
from penstock.cli.demo_writer import PRODUCERS, message_for
from penstock.log import Log
from penstock.log.inventory import file_name
from penstock.log.verify import repair_log, verify_log
from penstock.model import SystemClock, Topic
from penstock.model.errors import PenstockError
from penstock.storage import DataDirectory, LocalFiles, Partition

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_TOPIC = Topic("default", "traces")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the data directory for a look around.")
@click.option("--kills", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.2, 30), default=1.5, show_default=True)
def demo(keep: bool, kills: int, seconds: float) -> None:
    """Show that nothing acknowledged is lost.

    A writer is killed with SIGKILL in the middle of its work, several times over; then a byte on
    disk is flipped, found and repaired. Ends with a table of what was sent, acknowledged, found
    and lost; exits with 1 if anything was.

    Example: penstock demo --kills 5
    """
    root = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        _tour(DataDirectory(root), kills, seconds)
        if keep:
            click.echo(f"\nThe data directory is {root}. Try:")
            click.echo(f"  penstock topics --data-dir {root}")
            click.echo(f"  penstock tail --data-dir {root} --from earliest --count 5 {_TOPIC}")
            click.echo(f"  penstock fsck {root}")
    finally:
        if not keep:
            shutil.rmtree(root)


def _tour(directory: DataDirectory, kills: int, seconds: float) -> None:
    directory.create()
    partition = directory.partition(_TOPIC)
    _step(1, f"{PRODUCERS} producers append to {_TOPIC}; each waits for its fdatasync")
    acknowledged: set[int] = set()
    rows: list[list[object]] = []
    for kill in range(1, kills + 1):
        acked = _write_until_killed(directory, partition, seconds)
        acknowledged |= acked
        opened = time.perf_counter()
        log = Log.open(partition.log_folder)
        took = (time.perf_counter() - opened) * 1000
        rows.append([f"kill -9 no. {kill}", len(acked), log.end_offset, f"{took:.0f} ms"])
        log.close()
        click.echo(f"   killed; {len(acked)} acknowledged; reopened in {took:.0f} ms")
    _step(2, "what the log holds, message by message")
    found, wrong = _check_messages(partition)
    lost = len(acknowledged - found)
    print_table(["", "acknowledged", "end offset after recovery", "recovery"], rows)
    _step(3, "a byte on disk is flipped")
    _flip_and_repair(partition)
    _step(4, "summary")
    sent = (directory.root / "sent").stat().st_size
    print_table(
        ["sent", "acknowledged", "found", "wrong content", "lost"],
        [[sent, len(acknowledged), len(found), wrong, lost]],
    )
    if lost or wrong:
        raise PenstockError(f"{lost} acknowledged messages were lost and {wrong} were wrong")


def _write_until_killed(directory: DataDirectory, partition: Partition, seconds: float) -> set[int]:
    """Runs the writer process and kills it; returns the offsets that it acknowledged."""
    start = "from penstock.cli.demo_writer import main; main()"
    arguments = [str(partition.log_folder), str(directory.root / "sent")]
    command = [sys.executable, "-c", start, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603 - our own module
        assert writer.stdout is not None
        chunks = [writer.stdout.readline()]
        with _progress(seconds) as bar:
            until = time.monotonic() + seconds
            while (left := until - time.monotonic()) > 0:
                data = os.read(writer.stdout.fileno(), 65536)
                chunks.append(data)
                bar.update(max(0, int((seconds - left) * 100) - bar.pos))
                if not data:
                    break
        writer.send_signal(signal.SIGKILL)
        chunks.append(writer.stdout.read())
    lines = b"".join(chunks).split(b"\n")
    return {int(line) for line in lines[:-1]}  # the last line may be cut off


def _check_messages(partition: Partition) -> tuple[set[int], int]:
    with Log.open(partition.log_folder) as log:
        messages = list(log.read("earliest"))
        wrong = sum(message.data != message_for(message.offset) for message in messages)
        size = human_bytes(log.size)
        click.echo(f"   {len(messages)} messages, {size}, {len(log.sealed_files)} files\n")
    return {message.offset for message in messages}, wrong


def _flip_and_repair(partition: Partition) -> None:
    """Damages a copy of the log, so that the summary stays that of the kills."""
    copy = partition.folder / "damaged-copy"
    shutil.copytree(partition.log_folder, copy)
    path = copy / file_name(0)
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at] ^= 0x10
    path.write_bytes(data)
    report = verify_log(LocalFiles(), copy)
    for damage in report.damage:
        click.echo(
            f"   fsck: {damage.file} at byte {damage.position}: {damage.detail}, "
            f"{damage.messages_lost} message lost (offset {damage.first_offset})"
        )
    repair_log(LocalFiles(), copy, SystemClock())
    after = verify_log(LocalFiles(), copy)
    state = "sound" if after.sound else "still damaged"
    click.echo(f"   repaired: {after.messages} of {report.messages + 1} readable, {state}")
    shutil.rmtree(copy)
    if len(report.damage) != 1 or not after.sound:
        raise PenstockError("the flipped byte was not found, or not repaired")


def _progress(seconds: float) -> ProgressBar[int]:
    """Shown on a terminal, and not where output is piped."""
    hidden = not sys.stdout.isatty()
    return click.progressbar(length=int(seconds * 100), label="   appending", hidden=hidden)


def _step(number: int, text: str) -> None:
    click.secho(f"\n{number}. {text}", bold=True)
