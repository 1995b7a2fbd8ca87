"""One at a time in a folder, also when one comes in the very moment in which another leaves."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TextIO

import pytest

from tidewise.core import BadInputError, PermanentError
from tidewise.experiments.claim import CLAIM_FILE, claimed, read_token


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_no_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked: list[int] = []

    def lock(file: TextIO, how: int) -> None:
        if not locked:
            (tmp_path / CLAIM_FILE).unlink()  # the holder before leaves between our opening and our lock
        locked.append(how)
        fcntl_flock(file, how)

    fcntl_flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lock)
    with claimed(tmp_path) as token:
        assert len(locked) == 2
        assert read_token(tmp_path) == token
        with pytest.raises(BadInputError, match="another experiment is writing"), claimed(tmp_path):
            pass
        assert read_token(tmp_path) == token, "whoever is refused leaves it as it is"
    assert read_token(tmp_path) is None


def test_a_folder_that_was_made_for_nothing_goes_again(tmp_path: Path) -> None:
    with claimed(tmp_path / "runs" / "mine"):
        pass
    assert list(tmp_path.iterdir()) == []
    with claimed(tmp_path / "runs" / "mine"):
        (tmp_path / "runs" / "mine" / "run").mkdir()
    assert (tmp_path / "runs" / "mine" / "run").is_dir()
    (tmp_path / "empty").mkdir()
    with claimed(tmp_path / "empty"):
        pass
    assert (tmp_path / "empty").is_dir()


def test_a_place_where_no_folder_can_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PermanentError, match="cannot be written to"), claimed(tmp_path / "file" / "runs"):
        pass
