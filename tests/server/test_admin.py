"""The web port, without a network and without workers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.server.auth import Gate
from penstock.server.configuration.config import Config
from penstock.server.web.admin import Admin
from penstock.server.web.routing import Router
from tests.server.asgi import call

if TYPE_CHECKING:
    from tests.server.running import Answer

WELL: dict[str, Any] = {
    "id": 7,
    "worker": 0,
    "pid": 17,
    "failures": [],
    "pressure": None,
    "disk_full": False,
}
METRICS = {"metrics": "# HELP x y\n# TYPE x counter\nx 2\n"}


class Child:
    """Stands in for a worker."""

    def __init__(self, number: int, report: dict[str, Any] | None, *, ready: bool = True) -> None:
        self.title = f"worker {number}"
        self.restarts = 0
        self.report = report
        self.asked: list[str] = []
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()

    async def ask(self, what: str, _: float = 0) -> dict[str, Any] | None:
        """As `Guarded.ask`."""
        self.asked.append(what)
        return METRICS if what == "metrics" and self.report is not None else self.report


def ask(method: str, path: str, *children: Child, tokens: Path | None = None) -> Answer:
    """What the web port says while the workers are these."""
    admin = Admin(Config(), children)  # type: ignore[arg-type]
    router = Router(admin.routes(), Gate(tokens), Config().limits)
    answer = asyncio.run(call(router, method, path))
    assert answer is not None
    return answer


def test_health_is_green_while_all_is_well() -> None:
    """200 and nothing to complain of."""
    answer = ask("GET", "/healthz", Child(0, WELL), Child(1, WELL))
    assert (answer.status, answer.json) == (200, {"healthy": True, "problems": []})


@pytest.mark.parametrize(
    ("child", "problem"),
    [
        (Child(1, {**WELL, "failures": ["the log is poisoned"]}), "the log is poisoned"),
        (Child(1, {**WELL, "disk_full": True}), "the disk is full"),
        (Child(1, None), "worker 1 does not answer"),
        (Child(1, WELL, ready=False), "worker 1 does not answer"),
    ],
    ids=["poisoned", "full", "silent", "starting"],
)
def test_health_is_red_where_one_worker_is_not_well(child: Child, problem: str) -> None:
    """503, with what is wrong."""
    answer = ask("GET", "/healthz", Child(0, WELL), child)
    assert (answer.status, answer.json) == (503, {"healthy": False, "problems": [problem]})
    assert answer.headers["retry-after"]


def test_readiness_waits_for_every_worker() -> None:
    """Others may take requests already; a balancer waits for all."""
    assert ask("GET", "/readyz", Child(0, WELL)).json == {"ready": True}
    answer = ask("GET", "/readyz", Child(0, WELL), Child(1, WELL, ready=False))
    assert (answer.status, answer.json) == (503, {"ready": False})


def test_metrics_are_those_of_all_workers_together() -> None:
    """Those that do not answer have none."""
    answer = ask("GET", "/metrics", Child(0, WELL), Child(1, WELL), Child(2, None))
    assert "x 4" in answer.body.decode().splitlines()


def test_status_lists_the_workers() -> None:
    """Without their metrics, which are elsewhere."""
    [worker] = ask("GET", "/api/v1/status", Child(0, WELL)).json["workers"]
    assert worker["pid"] == 17
    assert not {"metrics", "id"} & worker.keys()


def test_flush_asks_every_worker() -> None:
    """And says which of them could not."""
    children = Child(0, WELL), Child(1, WELL)
    answer = ask("POST", "/api/v1/flush", *children)
    assert (answer.status, answer.json) == (200, {"flushed": True, "errors": []})
    assert [child.asked for child in children] == [["flush"], ["flush"]]
    failed = ask("POST", "/api/v1/flush", Child(0, {**WELL, "error": "stopped"}), Child(1, None))
    assert failed.status == 503
    assert failed.json == {"flushed": False, "errors": ["stopped", "no answer"]}


def test_head_is_get_without_a_body() -> None:
    """As probes of some balancers ask."""
    answer = ask("HEAD", "/healthz", Child(0, WELL))
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(("method", "path"), [("POST", "/metrics"), ("DELETE", "/healthz")])
def test_other_methods_are_refused(method: str, path: str) -> None:
    """With the one that is right."""
    answer = ask(method, path, Child(0, WELL))
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


def test_token_guards_all_but_the_probes(tmp_path: Path) -> None:
    """Also what is not there."""
    tokens = tmp_path / "tokens"
    tokens.write_text("a-good-secret\n")
    for path in ("/metrics", "/api/v1/status", "/nowhere", "/healthz/", "/readyz/x"):
        answer = ask("GET", path, Child(0, WELL), tokens=tokens)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    answer = ask("GET", "/healthz", Child(0, None), tokens=tokens)
    assert (answer.status, answer.json) == (503, {"healthy": False})
