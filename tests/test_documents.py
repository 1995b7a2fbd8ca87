"""The documents tell the truth: their commands run, their examples work, their links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise, tidewise

__all__ = ["tidewise"]

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


def _write_files(page: Path, folder: Path) -> None:
    """Every block that begins with the name of a file is that file."""
    for language in ("toml", "python"):
        for block in _blocks(page, language):
            name = re.match(r"# (\S+\.(?:toml|py))\n", block)
            if name:
                (folder / name[1]).write_text(block, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_run_as_they_stand(
    page: Path, tidewise: Tidewise, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _write_files(page, tmp_path)
    for block in _blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            if words[0] == "make":
                made = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, check=False)
                assert made.returncode == 0, line
                continue
            assert words[0] == "tidewise", f"{line!r} is a command that this test does not know"
            # In this process, like all tests of commands: to start one takes longer than most commands.
            code, _, err = tidewise(*words[1:])
            assert code == 0, f"{line}: {err}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_example_of_a_policy_passes_its_suite(tmp_path: Path) -> None:
    _write_files(ROOT / "docs" / "plugins.md", tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_readme_shows_what_the_simulated_demo_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidewise.cli", "demo", "--simulated"],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "110"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    (shown,) = _blocks(ROOT / "README.md", "text")
    ours = re.compile(r"tidewise\W+(?:at )?([\d.]+) USD")
    # What fits of models come to may differ in the last digits from machine to machine, and decisions with it.
    plain = [line for line in shown.splitlines() if line.startswith((" static", " best-fixed", " ds2", " reactive"))]
    assert len(plain) == 4
    assert all(line in done.stdout for line in plain)
    told, printed = (list(map(float, ours.findall(text))) for text in (shown, done.stdout))
    assert len(told) == 2
    assert printed == pytest.approx(told, rel=0.05)
    # Before the figures, a reader has to know that they are simulated, and of which run the others are.
    before, _, _ = (ROOT / "README.md").read_text(encoding="utf-8").partition("```text")
    assert "--simulated" in before
    assert "example run" in before


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout: nobody knows which files are the project's")
def test_nothing_of_a_machine_is_in_the_project() -> None:
    """No absolute path of anybody's machine, and no address that packages are fetched from, in any file."""
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    forbidden = re.compile(
        "|".join(["/ro" + "ot/", "/ho" + "me/", "/wo" + "rk/", "pypi" + r"\.org", "maven" + r"\.org"])
    )
    for name in names:
        path = ROOT / name
        if path.suffix in {".md", ".py", ".toml", ".txt", ".css", ".html", ""} and path.is_file():
            found = forbidden.findall(path.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found}"
