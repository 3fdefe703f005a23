"""Starts the Java that Spark runs in, and ends it without a trace.

Nothing is left in the current folder, and this process's environment is as it was.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped] # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.pipeline.java import find_java
from penstock.pipeline.noise import Relay, write_log_settings
from penstock.storage.access import mask
from penstock.storage.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DRIVER_MEMORY: Final = "2g"
LOOPBACK: Final = "127.0.0.1"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_END_S: Final = 20.0

_scratch: Scratch | None = None
"""Where this process's Java has its settings and what it writes without being asked."""


def start(master: str, app: str, settings: Mapping[str, str]) -> SparkSession:
    """A session on that master, in a Java that is started unless a stopped session left one."""
    conf = _conf(master, app, settings, _scratch_folder())
    with _environment(_variables(master)):
        gateway = SparkContext._gateway or _launched(conf)  # noqa: SLF001 - no other way to ask
        SparkContext(conf=conf, gateway=gateway)
        return SparkSession.builder.getOrCreate()


def running() -> SparkSession | None:
    """The session of this process, whoever started it. One whose Java has died is none."""
    context = SparkContext._active_spark_context  # noqa: SLF001 - no other way to ask
    if context is None:
        return None
    java = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001
    if java is None or java.poll() is None:
        return SparkSession.active()
    _let_go(context)
    return None


def stop(spark: SparkSession) -> None:
    """Ends the session, its Java and its files. Idempotent."""
    context = spark.sparkContext
    if context is SparkContext._active_spark_context:  # noqa: SLF001
        with contextlib.suppress(OSError, Py4JError):  # Java has died: there is less to do
            spark.stop()
    _let_go(context)


def _let_go(context: SparkContext) -> None:
    """Of a session that is stopped, or whose Java has died."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that Java has died
        with contextlib.suppress(OSError, Py4JError):
            context.stop()
        context.stop()  # goes on where the first was stopped by a dead Java
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - pyspark leaves its Java running
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        with contextlib.suppress(OSError, Py4JError):
            gateway.shutdown()
        if gateway.proc is not None:
            _end_process(gateway.proc)
    _remove_scratch_folder()


def sentence(error: Exception) -> str:
    """What an error of Spark says, without the stack behind it."""
    return str(error).strip().partition("\n")[0]


def _launched(conf: SparkConf) -> Any:
    relay = Relay()
    # Java lives a little longer than a Python that is killed: the folder is in use until then.
    handles = (_scratch.fileno(),) if _scratch is not None else ()
    options = {"stdout": relay.write_end, "stderr": relay.write_end, "pass_fds": handles}
    try:
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call] # nor has this
    except PySparkException as error:
        why = relay.given_up(_END_S) or sentence(error)
        raise PenstockError(f"Spark does not start: {why}") from error
    relay.started()
    return gateway


def _end_process(java: subprocess.Popen[bytes]) -> None:
    assert java.stdin is not None
    with contextlib.suppress(OSError):
        java.stdin.close()  # that is what it waits for
    try:
        java.wait(_END_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()


# --- settings ----------------------------------------------------------------------------------


def _conf(master: str, app: str, settings: Mapping[str, str], scratch: Path) -> SparkConf:
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app)
    log_settings = write_log_settings(scratch).as_uri()
    temporary = scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    # The temporary folder is where Spark has its blocks and its files, unless it is told otherwise
    # by `spark.local.dir`, and what it unpacks. Killed, it leaves all of that.
    own = (
        f'"-Dlog4j2.configurationFile={log_settings}" "-Dderby.system.home={scratch}" '
        f'"-Djava.io.tmpdir={temporary}"'
    )
    chosen = {
        **_defaults(master),
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        **settings,
        _JAVA_OPTIONS: f"{own} {settings.get(_JAVA_OPTIONS, '')}".strip(),
    }
    for key, value in chosen.items():
        conf.set(key, value)
    return conf


def _defaults(master: str) -> dict[str, str]:
    chosen = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.hadoop.fs.permissions.umask-mode": f"{mask():03o}",  # it does not ask the process
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        chosen["spark.sql.shuffle.partitions"] = str(_cores(master))
    if _is_here(master):
        chosen |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return chosen


def _cores(master: str) -> int:
    """How many tasks a local master runs at once."""
    match = re.match(r"local\[([0-9]+)", master)
    if match:
        return max(1, int(match[1]))
    return 1 if master == "local" else os.cpu_count() or 1


def _is_here(master: str) -> bool:
    return master.startswith(("local", f"spark://{LOOPBACK}:", "spark://localhost:"))


# --- the environment ---------------------------------------------------------------------------


def _variables(master: str) -> dict[str, str]:
    """What Java finds in its environment, and the Python workers that it starts."""
    chosen = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "PYTHONPATH": _python_path(),
    }
    if _is_here(master):
        chosen["SPARK_LOCAL_IP"] = LOOPBACK
    return chosen


def _python_path() -> str:
    """Workers import this very package, however this process came to find it."""
    own = str(Path(__file__).parents[2])
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join([own, *(folder for folder in others if folder not in {"", own})])


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _scratch_folder() -> Path:
    global _scratch  # noqa: PLW0603 - a process has one Java, and that one folder
    if _scratch is None:
        _scratch = Scratch("spark")
        atexit.register(_remove_scratch_folder)
    return _scratch.path


def _remove_scratch_folder() -> None:
    global _scratch  # noqa: PLW0603
    if _scratch is not None:
        _scratch.remove()
        _scratch = None
