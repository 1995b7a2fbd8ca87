"""How the tests call the commands, as a user would."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
import typer
from typer.testing import CliRunner

from tidewise.cli import main
from tidewise.core import TidewiseError


class Tidewise(Protocol):
    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """The exit code, standard output and standard error of `tidewise ARGUMENTS`."""


@pytest.fixture
def tidewise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tidewise:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["tidewise", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        code = ended.value.code
        return code if isinstance(code, int) else 0, told.out, told.err

    return run


Invoke = Callable[..., str]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[typer.Typer], Invoke]:
    """Some of the commands by themselves, in a folder of their own; their errors come out as they are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def of(commands: typer.Typer) -> Invoke:
        def call(*arguments: str) -> str:
            result = CliRunner().invoke(commands, list(arguments))
            if isinstance(result.exception, TidewiseError):
                raise result.exception
            assert result.exit_code == 0, result.output
            return result.stdout

        return call

    return of
