"""The options of the format: what they mean, and what is refused."""

from __future__ import annotations

import pytest

from penstock.archive.settings import DEFAULT_ROOT
from penstock.model.errors import InvalidArgument
from penstock.model.settings import MIB
from penstock.pipeline import options
from penstock.pipeline.batches import Admission
from penstock.pipeline.options import NAMES, SourceOptions
from penstock.queue.settings import MANIFEST_PATH


def parse(**given: str) -> SourceOptions:
    """The options, with a path."""
    return SourceOptions.parse({"path": "/data", **given})


def test_defaults_read_every_span_from_the_beginning() -> None:
    """Without a bound, and not silent about what is lost."""
    assert parse() == SourceOptions(
        path="/data",
        source="directory",
        manifest=MANIFEST_PATH,
        metadata="",
        root=DEFAULT_ROOT,
        objects={},
        rows="table",
        table="spans",
        tiers=frozenset({"hot", "warm", "cold"}),
        topics=None,
        namespaces=None,
        starting_offsets="earliest",
        admission=Admission(),
        fail_on_data_loss=True,
        partition_bytes=8 * MIB,
    )


def test_names_have_no_case() -> None:
    """Spark hands them over in lower case."""
    found = parse(maxsegmentspertrigger="3", MAXBYTESPERTRIGGER="4", FailOnDataLoss="False")
    assert found.admission == Admission(3, 4)
    assert not found.fail_on_data_loss


def test_several_topics_and_namespaces_can_be_named() -> None:
    """With commas between them."""
    found = parse(topics="traces, /shop/logs,", namespaces="default")
    assert found.topics == {"traces", "/shop/logs"}
    assert found.namespaces == {"default"}


def test_path_may_be_an_address() -> None:
    """As Spark users write it."""
    assert parse(path="file:///srv/data").path == "/srv/data"
    assert parse(path="s3://bucket/queue", source="queue").path == "s3://bucket/queue"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows", "bundles"),
        ("table", "spams"),
        ("topics", " , "),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"/default/traces/0": 3}'),
        ("maxSegmentsPerTrigger", "0"),
        ("maxSegmentsPerTrigger", "-1"),
        ("maxBytesPerTrigger", "25 MB"),
        ("failOnDataLoss", "no"),
        ("partitionBytes", "½"),
        ("maxFilesPerTrigger", "3"),
    ],
)
def test_option_that_means_nothing_is_refused(name: str, text: str) -> None:
    """A typing mistake must not read everything, or nothing."""
    with pytest.raises(InvalidArgument):
        parse(**{name: text})


def test_path_is_needed() -> None:
    """There is no default data directory."""
    with pytest.raises(InvalidArgument, match="load"):
        SourceOptions.parse({})


def test_every_option_stands_in_the_table() -> None:
    """That the module begins with."""
    rows = [line for line in (options.__doc__ or "").splitlines() if line.startswith("| `")]
    named = [row.split("`")[1] for row in rows]
    assert [name for name in named if not name.startswith("objects.")] == list(NAMES)
