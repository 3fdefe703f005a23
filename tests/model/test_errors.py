"""Errors cross threads and processes whole, and their tree is as drawn."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import TYPE_CHECKING

import pytest

from penstock.model import errors
from penstock.model.errors import (
    BatchUnreadable,
    LeaseHeld,
    LogLocked,
    OffsetUnavailable,
    PenstockError,
    Retryable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, Exception) and cls.__module__ == errors.__name__
]


def attributes_for(cls: type[PenstockError]) -> dict[str, object]:
    """What the class carries beside its message, with values unlike the defaults."""
    if issubclass(cls, LeaseHeld):
        return {"retry_after_s": 2.5, "owner": "a", "epoch": 3}
    if issubclass(cls, Retryable):
        return {"retry_after_s": 2.5}
    if issubclass(cls, LogLocked):
        return {"pid": 4321}
    if issubclass(cls, OffsetUnavailable):
        return {"earliest": 7, "end": 42}
    if issubclass(cls, BatchUnreadable):
        return {"sequence": 7, "location": "ingest/1.batch"}
    return {}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "carry",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],  # noqa: S301 - our own bytes
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_keep_message_and_attributes(
    cls: type[PenstockError], carry: Callable[[PenstockError], PenstockError]
) -> None:
    """Each waiter of a commit raises a copy, and worker processes send theirs."""
    attributes = attributes_for(cls)
    carried = carry(cls("what happened", **attributes))
    assert type(carried) is cls
    assert str(carried) == "what happened"
    assert {name: getattr(carried, name) for name in attributes} == attributes


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_attribute_is_carried(cls: type[PenstockError]) -> None:
    """An attribute added to an error needs its line in `attributes_for`."""
    assert set(vars(cls("what happened"))) == set(attributes_for(cls))


def test_tree_in_the_docstring_is_the_class_tree() -> None:
    """The drawing names every error, under the one that catches it."""
    drawn: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"    ([│├└─ ]*)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            above = [*above[:depth], match[2]]
            drawn[match[2]] = above[depth - 1] if depth else "Exception"
    assert drawn == {cls.__name__: cls.__bases__[0].__name__ for cls in CLASSES}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_says_when_it_is_raised(cls: type[PenstockError]) -> None:
    """And one root catches them all."""
    assert cls.__doc__
    assert issubclass(cls, PenstockError)
