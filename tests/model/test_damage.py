"""One report: what was found at several places adds up, and says the same fields of each."""

from __future__ import annotations

from penstock.model.damage import Damage, DamageReport, KnownLoss


def test_reports_add_up() -> None:
    """Counts are summed, findings stand one behind the other, the name stays."""
    log, lake = DamageReport("log", logs=1, messages=7), DamageReport("lake", lakes=1, rows=5)
    log.add_damage("1.wal", 40, "frames", "12 damaged bytes", 3, 2)
    log.known_losses.append(KnownLoss("log", 1, 1))
    lake.damage.append(Damage("a.parquet", 0, "pages", "torn", rows_lost=9))
    lake.note("something")
    both = DamageReport("data")
    for each in (log, lake):
        each.read(100)
        both.add(each)
    assert (both.path, both.logs, both.lakes, both.messages, both.rows) == ("data", 1, 1, 7, 5)
    assert (both.files_checked, both.bytes_checked) == (2, 200)
    assert [damage.file for damage in both.damage] == ["log/1.wal", "a.parquet"]
    assert (both.messages_lost, both.rows_lost) == (2, 9)
    assert (both.known_losses, both.notes) == (log.known_losses, ["lake: something"])


def test_sound_is_what_has_no_damage() -> None:
    """Losses that are known, and notes, are none; empty is where nothing was looked at."""
    report = DamageReport("data")
    assert (report.sound, report.is_empty) == (True, True)
    report.known_losses.append(KnownLoss("log", 1, 1))
    report.note("something")
    report.logs += 1
    assert (report.sound, report.is_empty) == (True, False)
    report.add_damage("log.ckpt", 0, "checkpoint", "torn")
    assert not report.sound


def test_json_has_every_field_of_every_damage() -> None:
    """As `penstock fsck --json` promises them, whatever is damaged."""
    report = DamageReport("s3://bucket/prefix/")
    report.add_damage("ingest/manifest", 0, "manifest", "it is gone")
    document = report.document()
    assert document["damage"] == [
        {
            "file": "s3://bucket/prefix/ingest/manifest",
            "position": 0,
            "kind": "manifest",
            "detail": "it is gone",
            "first_offset": None,
            "messages_lost": 0,
            "rows_lost": 0,
        }
    ]
    places = {"logs", "stores", "lakes", "tables", "archives", "queues", "records"}
    held = {"messages", "segments", "bundles", "batches", "rows", "files_checked", "bytes_checked"}
    found = {"path", "sound", "damage", "known_losses", "notes", "messages_lost", "rows_lost"}
    assert set(document) == places | held | found
