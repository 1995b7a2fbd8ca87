"""Which Java Spark will run on, found before anything is started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tidewise.core import BadInputError, TemporaryError

OLDEST_MAJOR = 17
_INSTALL = "install one (Debian, Ubuntu: apt-get install openjdk-17-jre-headless) or let JAVA_HOME name it"
_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """An installed Java: its home folder and its major version."""

    home: Path
    major: int

    @property
    def program(self) -> Path:
        return self.home / "bin" / "java"

    def to_dict(self) -> dict[str, object]:
        return {"home": str(self.home), "major": self.major}

    @classmethod
    def from_dict(cls, value: object) -> Self:
        """What `to_dict` wrote; KeyError, TypeError or ValueError where it did not."""
        if not isinstance(value, dict):
            raise TypeError("a Java is an object")
        return cls(home=Path(value["home"]), major=int(value["major"]))


def find_java() -> Java:
    """The Java that JAVA_HOME names, else the one on the PATH.

    Raises BadInputError when there is none or it is too old for Spark.
    """
    home, origin = _home()
    program = home / "bin" / "java"
    if not os.access(program, os.X_OK):
        raise BadInputError(
            f"{origin} is {home}, but there is no program bin/java in it: correct JAVA_HOME or unset it"
        )
    major = _major(program)
    if major < OLDEST_MAJOR:
        raise BadInputError(
            f"Spark needs Java {OLDEST_MAJOR} or newer, but {origin} is {home}, which is Java {major}: {_INSTALL}"
        )
    return Java(home=home, major=major)


def _home() -> tuple[Path, str]:
    named = os.environ.get("JAVA_HOME")
    if named:
        return Path(named).absolute(), "JAVA_HOME"
    on_path = shutil.which("java")
    if on_path is None:
        raise BadInputError(f"Spark needs Java {OLDEST_MAJOR} or newer, and there is none here: {_INSTALL}")
    return Path(on_path).resolve().parent.parent, "the home of the java on the PATH"


def _major(program: Path) -> int:
    try:
        told = subprocess.run(  # noqa: S603 - the program that the user's own JAVA_HOME or PATH names
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TemporaryError(f"{program} did not tell its version within {_DEADLINE_S:g} s") from error
    except OSError as error:
        raise BadInputError(f"{program} cannot be run ({error.strerror}): {_INSTALL}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    if version is None:
        raise BadInputError(f"{program} does not tell a version as Java does: {_INSTALL}")
    return int(version[1])


if __name__ == "__main__":
    # `make` asks this way, before anything that needs Java is begun.
    try:
        find_java()
    except BadInputError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(2)
