"""`penstock demo`: a guided tour that ends by itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.common import human_bytes, json_option, print_json, print_table
from penstock.cli.demo_writer import PRODUCERS, message_for
from penstock.log import Log
from penstock.log.inventory import file_name
from penstock.log.verify import repair_log, verify_log
from penstock.model import SystemClock, Topic
from penstock.model.errors import PenstockError
from penstock.storage import DataDirectory, LocalFiles

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_TOPIC = Topic("default", "traces")


@dataclass(frozen=True)
class Kill:
    """What one killed writer left."""

    acknowledged: int
    end_offset: int
    recovery_ms: int


@dataclass(frozen=True)
class Summary:
    """What the tour found."""

    sent: int
    acknowledged: int
    found: int
    wrong_content: int
    lost: int
    flipped_byte_found: bool
    repaired: bool
    kills: list[Kill]

    @property
    def good(self) -> bool:
        """Whether Penstock kept its word."""
        damage_handled = self.flipped_byte_found and self.repaired
        return damage_handled and not self.lost and not self.wrong_content


@click.command()
@click.option("--keep", is_flag=True, help="Leave the data directory for a look around.")
@click.option("--kills", type=click.IntRange(1, 20), default=3, show_default=True)
@click.option("--seconds", type=click.FloatRange(0.2, 30), default=1.5, show_default=True)
@json_option
def demo(keep: bool, kills: int, seconds: float, as_json: bool) -> None:
    """Show that nothing acknowledged is lost.

    A writer is killed with SIGKILL in the middle of its work, several times over; then a byte on
    disk is flipped, found and repaired. Ends with a table of what was sent, acknowledged, found
    and lost; exits with 1 if anything was.

    Example: penstock demo --kills 5
    """
    scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    root = scratch / "data"
    try:
        summary = _Tour(scratch, DataDirectory(root), quiet=as_json).run(kills, seconds)
        if as_json:
            print_json(asdict(summary) | ({"data_dir": str(root)} if keep else {}))
        elif keep:
            click.echo(f"\nThe data directory is {root}. Try:")
            click.echo(f"  penstock topics --data-dir {root}")
            click.echo(f"  penstock tail --data-dir {root} --from earliest --count 5 {_TOPIC}")
            click.echo(f"  penstock fsck {root}")
    finally:
        if not keep:
            shutil.rmtree(scratch)
    if not summary.good:
        raise PenstockError("the demo lost or changed messages, or did not mend the damage")


class _Tour:
    def __init__(self, scratch: Path, directory: DataDirectory, *, quiet: bool) -> None:
        directory.create()
        self._scratch = scratch
        self._sent = scratch / "sent"
        self._folder = directory.partition(_TOPIC).log_folder
        self._quiet = quiet

    def run(self, kills: int, seconds: float) -> Summary:
        self._step(1, f"{PRODUCERS} producers append to {_TOPIC}; each waits for its fdatasync")
        acknowledged: set[int] = set()
        rows = []
        for _ in range(kills):
            acked = self._write_until_killed(seconds)
            acknowledged |= acked
            rows.append(self._recover(len(acked)))
        self._step(2, "what the log holds, message by message")
        found, wrong = self._check_messages()
        self._step(3, "a bit on disk is flipped")
        flipped_found, repaired = self._flip_and_repair()
        lost = len(acknowledged - found)
        counts = (self._sent.stat().st_size, len(acknowledged), len(found), wrong, lost)
        self._step(4, "summary")
        if not self._quiet:
            print_table(["sent", "acknowledged", "found", "wrong content", "lost"], [counts])
        return Summary(*counts, flipped_found, repaired, rows)

    def _write_until_killed(self, seconds: float) -> set[int]:
        """Runs the writer process and kills it; returns the offsets that it acknowledged."""
        start = "from penstock.cli.demo_writer import main; main()"
        command = [sys.executable, "-c", start, str(self._folder), str(self._sent)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603 - our own
            assert writer.stdout is not None
            chunks = [writer.stdout.readline()]
            with self._progress(seconds) as bar:
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

    def _recover(self, acknowledged: int) -> Kill:
        started = time.perf_counter()
        with Log.open(self._folder) as log:
            took_ms = round((time.perf_counter() - started) * 1000)
            end = log.end_offset
        self._say(f"   kill -9: {acknowledged} acknowledged; recovered in {took_ms} ms, end {end}")
        return Kill(acknowledged, end, took_ms)

    def _check_messages(self) -> tuple[set[int], int]:
        found: set[int] = set()
        wrong = 0
        with Log.open(self._folder) as log:
            for message in log.read("earliest"):
                found.add(message.offset)
                wrong += message.data != message_for(message.offset)
            size, files = human_bytes(log.size), len(log.sealed_files)
        self._say(f"   {len(found)} messages, {size}, {files} files")
        return found, wrong

    def _flip_and_repair(self) -> tuple[bool, bool]:
        """Damages a copy of the log, so that the summary stays that of the kills."""
        copy = self._scratch / "damaged-copy"
        shutil.copytree(self._folder, copy)
        path = copy / file_name(0)
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)
        report = verify_log(LocalFiles(), copy)
        for damage in report.damage:
            where = f"{damage.file} at byte {damage.position}: {damage.detail}"
            self._say(f"   fsck: {where}, 1 message lost (offset {damage.first_offset})")
        repair_log(LocalFiles(), copy, SystemClock())
        after = verify_log(LocalFiles(), copy)
        state = "sound" if after.sound else "still damaged"
        self._say(f"   repaired: {after.messages} of {report.messages + 1} readable, {state}")
        shutil.rmtree(copy)
        return [damage.messages_lost for damage in report.damage] == [1], after.sound

    def _progress(self, seconds: float) -> ProgressBar[int]:
        """Shown on a terminal, and not where output is piped."""
        hidden = self._quiet or not sys.stdout.isatty()
        return click.progressbar(length=int(seconds * 100), label="   appending", hidden=hidden)

    def _step(self, number: int, text: str) -> None:
        if not self._quiet:
            click.secho(f"\n{number}. {text}", bold=True)

    def _say(self, text: str) -> None:
        if not self._quiet:
            click.echo(text)
