"""No two topics share a folder, and no name leads out of the data directory."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from penstock.model import Topic
from penstock.model.errors import InvalidTopic
from penstock.model.topics import MAX_PART_BYTES, decode_part, encode_part

ANY_TEXT = st.text(st.characters(), max_size=80)  # lone surrogates included
SIMILAR_TEXT = st.text("aAzZéE\u0301.%2e-_ ßſ\u212a\u0131", min_size=1, max_size=6)
FOLDER_TEXT = st.text("aA0_.%-2e/\\\x00é", max_size=12)
SAFE = re.compile(r"[a-z0-9_.%-]+")
WINDOWS_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?")


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("traces", Topic("default", "traces")),
        ("/default/traces", Topic("default", "traces")),
        ("/team a/Größe.v2", Topic("team a", "Größe.v2")),
        ("..", Topic("default", "..")),
    ],
)
def test_parse_takes_a_bare_name_or_namespace_and_name(text: str, topic: Topic) -> None:
    """A bare name lies in the namespace `default`."""
    assert Topic.parse(text) == topic


@pytest.mark.parametrize(
    "text", ["", "/", "//", "/a", "a/b", "/a/", "//b", "/a/b/c", "/a/b/", "a/", "/../../etc"]
)
def test_parse_refuses_every_other_form(text: str) -> None:
    """A slash separates namespace and name, and does nothing else."""
    with pytest.raises(InvalidTopic):
        Topic.parse(text)


@settings(deadline=None)  # a slow machine is no failure
@given(SIMILAR_TEXT, SIMILAR_TEXT)
def test_str_is_read_back_by_parse(namespace: str, name: str) -> None:
    """What is printed can be typed in again."""
    topic = Topic(namespace, name)
    assert Topic.parse(str(topic)) == topic


@settings(deadline=None)
@given(ANY_TEXT)
@example("..")
@example("con")
@example("é" * 100)
def test_any_text_is_refused_or_encoded_safely_and_back(name: str) -> None:
    """The folder name is short, plain ASCII without capitals, and says which name it stands for."""
    try:
        folder = encode_part(name)
    except InvalidTopic:
        return
    assert SAFE.fullmatch(folder)
    assert len(folder) <= MAX_PART_BYTES == 200
    assert not folder.startswith(".")
    assert not folder.endswith(".")
    assert not WINDOWS_RESERVED.fullmatch(folder)
    assert decode_part(folder) == name


@settings(deadline=None)
@given(SIMILAR_TEXT, SIMILAR_TEXT)
@example("Traces", "traces")
@example("\u00e9", "e\u0301")
@example("\u212a", "k")
@example("%2e", ".")
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    """Neither a file system that ignores case nor one that normalises Unicode makes them one."""
    assume(one != other)
    for form in ("NFC", "NFD"):
        folders = {unicodedata.normalize(form, encode_part(name)).lower() for name in (one, other)}
        assert len(folders) == 2


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("traces", "traces"),
        ("Traces", "%54races"),
        ("TRACES", "%54%52%41%43%45%53"),
        (".", "%2e"),
        ("..", "%2e%2e"),
        ("...", "%2e.%2e"),
        (".hidden", "%2ehidden"),
        ("v1.2", "v1.2"),
        ("%2e", "%252e"),
        ("%2E", "%252%45"),
        ("con", "%63on"),
        ("nul.txt", "%6eul.txt"),
        ("com1", "%63om1"),
        ("console", "console"),
        ("a b", "a%20b"),
        ("é", "%c3%a9"),
        ("a" * 200, "a" * 200),
    ],
)
def test_hostile_names_get_a_folder_of_their_own(name: str, folder: str) -> None:
    """What a shell or a file system reads specially is encoded; folder names are a format."""
    assert encode_part(name) == folder
    assert decode_part(folder) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\0",
        "a\0b",
        "a/b",
        "/",
        "../x",
        "a\\b",
        "\\\\server\\share",
        "a\nb",
        "\x1b[31m",
        "\x7f",
        "\x85",
        "\ud800",
        "ok\udfff",
        "a" * 201,
        "A" * 67,
        "é" * 34,
        "a" * 100_000,
    ],
)
def test_names_without_a_safe_folder_are_refused(name: str) -> None:
    """Empty, control characters, slashes, no Unicode, or too long once encoded."""
    for parts in ((name, "traces"), ("default", name)):
        with pytest.raises(InvalidTopic):
            Topic(*parts)


@pytest.mark.parametrize(
    "folder",
    [
        "",
        ".",
        "..",
        ".hidden",
        "trailing.",
        "Traces",
        "%54RACES",
        "%2E",
        "%2",
        "%",
        "%zz",
        "%61",
        "%00",
        "%2f",
        "%5c",
        "%ff",
        "%c3",
        "%ed%a0%80",
        "%c0%ae",
        "con",
        "nul.txt",
        "a b",
        "é",
        "a/b",
        "a\n",
        "\ud800",
        "a" * 201,
        "a\u0661",
    ],
)
def test_decode_refuses_folders_that_encode_never_makes(folder: str) -> None:
    """One name, one folder: no second spelling is read as the same topic."""
    with pytest.raises(InvalidTopic):
        decode_part(folder)


@settings(deadline=None)
@given(FOLDER_TEXT)
def test_whatever_decodes_is_canonical(folder: str) -> None:
    """A folder is read as a topic only if that topic is stored in exactly this folder."""
    try:
        name = decode_part(folder)
    except InvalidTopic:
        return
    assert encode_part(name) == folder


def test_topics_sort_and_hash_by_their_names() -> None:
    """Equal topics are one key, and lists of topics have an order."""
    topics = [Topic("b", "a"), Topic("a", "z"), Topic("a", "b")]
    assert list(map(str, sorted(topics))) == ["/a/b", "/a/z", "/b/a"]
    assert len({Topic("a", "b"), Topic.parse("/a/b")}) == 1
