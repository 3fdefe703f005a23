"""Which tests share a process, when they are run by several: those that share something dear."""

from __future__ import annotations

import pytest

_SHARED = {
    "spark": {"spark", "session"},
    "notebook": {"ran"},
    "servers": {"s3", "etcd"},
}
"""By group: the fixtures. A session of Spark takes ten seconds, and is slow at first."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks them; `--dist loadgroup` does the rest."""
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        group = next((group for group, shared in _SHARED.items() if names & shared), None)
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))
