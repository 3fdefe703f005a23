"""Who may come in."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.model.errors import InvalidSetting
from penstock.server.auth import Gate, Role, digest_of, read_tokens
from penstock.server.refusals import Cause, Refusal

SHOP, ALL = "shop-secret-1", "all-secret-22"
TEXT = f"""# comments and empty lines are passed over

{SHOP} checkout,payment   # those of the shop
  {ALL}\t*
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two tokens."""
    path = tmp_path / "tokens"
    path.write_text(TEXT)
    return path


def cause_of(gate: Gate, authorization: str | None, namespace: str | None = None) -> Cause:
    """Why the request is refused."""
    with pytest.raises(Refusal) as refused:
        gate.admit(authorization, namespace)
    return refused.value.cause


def test_without_a_file_everybody_comes_in() -> None:
    """With the namespace asked for, or `default`."""
    gate = Gate(None)
    assert not gate.wants_tokens
    assert gate.admit(None, None).namespace == "default"
    assert gate.admit("Bearer whatever", "checkout").namespace == "checkout"
    gate.refresh()


@pytest.mark.parametrize("line", [f"Bearer {SHOP}", f"bearer {SHOP}", f"BEARER   {SHOP} "])
def test_known_token_comes_in(path: Path, line: str) -> None:
    """The scheme is read without regard to case, as HTTP says."""
    assert Gate(path).admit(line, "payment").namespace == "payment"


@pytest.mark.parametrize(
    "line",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        SHOP,
        f"Basic {SHOP}",
        f"Bearer {SHOP}x",
        f"Bearer {SHOP[:-1]}",
        f"Bearer {SHOP} {ALL}",
        f"Bearer {SHOP.upper()}",
        "Bearer *",
        "Bearer #",
        "Bearer \xff\xfe",
    ],
)
def test_anything_else_stays_out(path: Path, line: str | None) -> None:
    """UNAUTHENTICATED, whatever the namespace."""
    assert cause_of(Gate(path), line) is Cause.UNAUTHENTICATED
    assert cause_of(Gate(path), line, "checkout") is Cause.UNAUTHENTICATED


def test_token_is_bound_to_its_namespaces(path: Path) -> None:
    """FORBIDDEN is told from UNAUTHENTICATED; `*` means any."""
    gate = Gate(path)
    assert cause_of(gate, f"Bearer {SHOP}", "default") is Cause.FORBIDDEN
    assert cause_of(gate, f"Bearer {SHOP}", "*") is Cause.FORBIDDEN
    assert gate.admit(f"Bearer {ALL}", "checkout").namespace == "checkout"


@pytest.mark.parametrize("namespace", [None, ""])
def test_request_without_a_namespace_takes_the_tokens_first(
    path: Path, namespace: str | None
) -> None:
    """Or `default` where it may; an empty header is none."""
    assert Gate(path).admit(f"Bearer {SHOP}", namespace).namespace == "checkout"
    assert Gate(path).admit(f"Bearer {ALL}", namespace).namespace == "default"
    assert Gate(None).admit(None, namespace).namespace == "default"


def test_refusal_repeats_little_of_a_long_namespace(path: Path) -> None:
    """Trailers of gRPC are short, or the client sees another error."""
    with pytest.raises(Refusal) as refused:
        Gate(path).admit(f"Bearer {SHOP}", "n" * 10_000)
    assert len(refused.value.message) < 300


def test_changed_file_is_read_again(path: Path) -> None:
    """New tokens come in, those that are gone stay out."""
    gate = Gate(path)
    path.write_text("another-secret default\n")
    gate.refresh()
    assert gate.admit("Bearer another-secret", None).namespace == "default"
    assert cause_of(gate, f"Bearer {ALL}") is Cause.UNAUTHENTICATED


def test_replaced_file_is_read_again(path: Path) -> None:
    """By a rename, as careful people and Kubernetes do it, even with the same time and size."""
    gate, new = Gate(path), path.with_name("new")
    new.write_text(TEXT.replace(SHOP, "shop-secret-2"))
    found = path.stat()
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    new.replace(path)
    gate.refresh()
    assert gate.admit("Bearer shop-secret-2", None).namespace == "checkout"


@pytest.mark.parametrize(
    "broken", [b"short\n", b"", b"\xff\xfe\x00binary", b"a-good-secret two three\n"]
)
def test_broken_file_lets_nobody_in(
    path: Path, broken: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It is complained about once, not with every look; a good one is taken again."""
    gate = Gate(path)
    path.write_bytes(broken)
    with caplog.at_level(logging.ERROR):
        gate.refresh()
        gate.refresh()
    assert cause_of(gate, f"Bearer {ALL}") is Cause.UNAVAILABLE
    assert gate.problem is not None
    assert len(caplog.records) == 1
    path.write_text("another-secret\n")
    gate.refresh()
    assert gate.problem is None
    assert gate.admit("Bearer another-secret", None).namespace == "default"


def test_missing_file_lets_nobody_in(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """They are asked to come again: exporters throw away what is refused for good."""
    gate = Gate(path)
    path.unlink()
    with caplog.at_level(logging.ERROR):
        gate.refresh()
        gate.refresh()
    assert cause_of(gate, f"Bearer {ALL}") is Cause.UNAVAILABLE
    assert len(caplog.records) == 1
    path.write_text(TEXT)
    gate.refresh()
    assert gate.admit(f"Bearer {ALL}", None).namespace == "default"


def test_token_has_its_roles_in_their_namespaces(path: Path) -> None:
    """And no other anywhere; a digest stands for its token."""
    path.write_text(
        f"{SHOP} ingest=checkout,payment query=checkout\nsha256:{digest_of(ALL).hex()} admin=*\n"
    )
    gate = Gate(path)
    shop, boss = (gate.caller(f"Bearer {token}") for token in (SHOP, ALL))
    assert shop.namespace(Role.INGEST, "payment") == "payment"
    assert shop.readable([Role.QUERY], None) == {"checkout"}
    assert shop.readable([Role.QUERY, Role.INGEST], None) == {"checkout", "payment"}
    for role, asked in ((Role.QUERY, "payment"), (Role.SUBSCRIBE, "checkout"), (Role.ADMIN, None)):
        with pytest.raises(Refusal) as refused:
            shop.readable([role], asked)
        assert refused.value.cause is Cause.FORBIDDEN
    assert (shop.oversees, boss.oversees) == (False, True)
    assert cause_of(gate, f"Bearer {ALL}") is Cause.FORBIDDEN  # admin does not send


def test_token_of_the_first_release_has_what_it_had(path: Path) -> None:
    """Everything but `admin`; one of all namespaces oversees them as before."""
    shop, other = (Gate(path).caller(f"Bearer {token}") for token in (SHOP, ALL))
    for role in (Role.INGEST, Role.QUERY, Role.SUBSCRIBE):
        assert shop.readable([role], None) == {"checkout", "payment"}
    assert Role.ADMIN not in shop.grants
    assert (shop.oversees, other.oversees) == (False, True)


def test_withdrawn_or_changed_token_is_noticed(path: Path) -> None:
    """By whoever was let in with it; the others go on."""
    gate = Gate(path)
    shop, other = (gate.caller(f"Bearer {token}") for token in (SHOP, ALL))
    path.write_text(TEXT.replace("checkout,payment", "checkout"))
    gate.check(other)
    with pytest.raises(Refusal, match="withdrawn or changed"):
        gate.check(shop)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing but words\n",
        "short\n",
        "good-secret a b\n",
        "good-secret a, b\n",
        "good-secret ,\n",
        "good-secret a,,b\n",
        "good-secret a/b\n",
        "good-secret qurey=a\n",
        "good-secret query=a b\n",
        "good-secret query=\n",
        "good-secret query=a query=b\n",
    ],
)
def test_file_that_makes_no_sense_is_an_error(path: Path, text: str) -> None:
    """At the start, before anybody comes in by mistake."""
    path.write_text(text)
    with pytest.raises(InvalidSetting):
        read_tokens(path)
    assert cause_of(Gate(path), "Bearer good-secret") is Cause.UNAVAILABLE


def test_error_of_a_line_does_not_repeat_it(path: Path) -> None:
    """Errors end up in logs."""
    path.write_text(f"{ALL}\nvery-secret with three words\n")
    with pytest.raises(InvalidSetting, match="line 2") as error:
        read_tokens(path)
    assert "very-secret" not in str(error.value)


def test_number_sign_within_a_token_belongs_to_it(path: Path) -> None:
    """A token is never cut short."""
    path.write_text("long-enough#and-more\n")
    gate = Gate(path)
    assert cause_of(gate, "Bearer long-enough") is Cause.UNAUTHENTICATED
    assert gate.admit("Bearer long-enough#and-more", None).namespace == "default"


def test_mark_of_utf8_is_no_part_of_a_token(path: Path) -> None:
    """Some editors put it at the start of a file."""
    path.write_bytes(b"\xef\xbb\xbfgood-secret\n")
    assert Gate(path).admit("Bearer good-secret", None).namespace == "default"


def test_tokens_are_not_kept(path: Path) -> None:
    """Nothing that the gate holds shows one."""
    gate = Gate(path)
    assert SHOP not in repr(vars(gate))


def test_every_token_is_compared_to_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever it is, the same work is done: the time tells nothing."""
    compared = []
    monkeypatch.setattr(
        "penstock.server.auth.hmac.compare_digest", lambda a, b: compared.append(1) or a == b
    )
    gate = Gate(path)
    gate.admit(f"Bearer {SHOP}", None)
    gate.admit(f"Bearer {ALL}", None)
    assert len(compared) == 4
