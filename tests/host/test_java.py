"""The Java that Spark will run on, or a sentence that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidewise.core import BadInputError
from tidewise.host.java import find_java


def fake_java(home: Path, answer: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\n", encoding="utf-8")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("answer", "major"),
    [('openjdk version "17.0.15" 2025-04-15', 17), ('openjdk version "21" 2023', 21), ('java version "25-ea"', 25)],
)
def test_java_home_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, major: int) -> None:
    home = fake_java(tmp_path / "jdk", answer)
    monkeypatch.setenv("JAVA_HOME", str(home))
    java = find_java()
    assert (java.home, java.major, java.program) == (home, major, home / "bin" / "java")


def test_else_the_one_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java().home == home


def test_no_java_names_the_command_that_installs_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInputError, match=r"there is none here: .*apt-get install openjdk-17-jre-headless"):
        find_java()


@pytest.mark.parametrize(("answer", "major"), [('openjdk version "11.0.2"', 11), ('java version "1.8.0_392"', 8)])
def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, major: int) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", answer)))
    with pytest.raises(BadInputError, match=rf"Java 17 or newer, but JAVA_HOME is .*jdk, which is Java {major}: "):
        find_java()


def test_a_wrong_java_home_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BadInputError, match="no program bin/java in it: correct JAVA_HOME"):
        find_java()


def test_what_is_no_java_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "hello")))
    with pytest.raises(BadInputError, match="does not tell a version"):
        find_java()
