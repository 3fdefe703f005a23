"""What holds for every test: no order is promised, and nothing is left to the next one."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
import pytest

from tests.leftovers import nothing_running, unchanged_settings

hypothesis.settings.register_profile(
    "at any speed",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("at any speed")


LONG: Final = {
    f"tests/{name}.py"
    for name in (
        "cli/test_demo",
        "cli/test_pipeline",
        "cli/test_up",
        "pipeline/flush/test_kill",
        "pipeline/flush/test_stream",
        "pipeline/jobs/test_rollup",
        "pipeline/test_cluster",
        "pipeline/test_connect",
        "pipeline/test_stream",
        "server/test_hostile",
        "server/test_serve",
        "test_notebook",
    )
}
"""They begin first: at the end of a run each would keep one process busy alone."""
QUICK_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every Java that a command starts: one that lives for seconds need not become fast."""
SPARK: Final = {"session", "spark"}
"""Fixtures that are one Java for all tests of a process."""
JAVAS: Final = 2
"""So many processes share the files with such tests: one would be busy when all others are done."""


# --- the order -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seed`, to have an order again; `--load`, to be slow."""
    parser.addoption("--load", type=int, default=0, help="run beside so many busy processes")
    parser.addoption(
        "--seed", type=int, help="of the order of tests; 0: as they stand in the files"
    )


def pytest_configure(config: pytest.Config) -> None:
    """One seed for all processes: the first one throws the dice."""
    if (given := getattr(config, "workerinput", None)) is not None:
        config.option.seed = given["seed"]
    elif config.option.seed is None:
        config.option.seed = random.SystemRandom().randrange(1, 10**6)
    _hear_signals()
    os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Another process of xdist."""
    node.workerinput["seed"] = node.config.option.seed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files in any order, and so the tests of a file, which share servers and stay together."""
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(_file_of(item.nodeid), []).append(item)
    if config.option.seed:
        order = random.Random(config.option.seed)
        chosen = sorted(order.sample([*files], len(files)), key=lambda file: file not in LONG)
        files = {file: order.sample(files[file], len(files[file])) for file in chosen}
        items[:] = [item for tests in files.values() for item in tests]
    groups = itertools.cycle(f"spark {number}" for number in range(JAVAS))
    for tests in files.values():
        if any(not SPARK.isdisjoint(getattr(each, "fixturenames", ())) for each in tests):
            group = next(groups)
            for each in tests:
                each.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup` a group of files shares a process, and so does a file without one."""
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):  # type: ignore[misc] # as xdist has it
        def _split_scope(self, nodeid: str) -> str:
            group: str = super()._split_scope(nodeid)
            return _file_of(group)

    return ByFile(config, log) if config.getvalue("dist") == "loadgroup" else None


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def pytest_report_header(config: pytest.Config) -> str:
    """Above the tests."""
    return f"random order: --seed {config.option.seed}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Below them too: with -q there is nothing above."""
    terminalreporter.write_line(pytest_report_header(terminalreporter.config))


def _hear_signals() -> None:
    """As in a terminal: what `nohup` or a job in the background ignores is ignored by children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


# --- the load ------------------------------------------------------------------------------------

_BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"
"""Ends when nobody is left to end it."""


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """All tests, beside processes that only use the cores; the first process of xdist has them."""
    count = 0 if hasattr(session.config, "workerinput") else session.config.option.load
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            stack.callback(busy.kill)
        return (yield)


# --- what is left --------------------------------------------------------------------------------


@pytest.fixture(autouse=True, scope="module")
def _module_leaves_no_trace() -> Iterator[None]:
    """What a fixture of a module changes it restores."""
    with unchanged_settings(pytest.fail):
        yield


@pytest.fixture(autouse=True)
def _test_leaves_no_trace() -> Iterator[None]:
    """What a test changes it restores; what it starts it ends."""
    with unchanged_settings(pytest.fail), nothing_running(pytest.fail):
        yield
