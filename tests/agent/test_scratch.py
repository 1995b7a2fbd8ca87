"""A clone of a checkpoint is complete as of its last commit, and the original never notices it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.agent.checkpoints import write_batch
from tidewise_agent.scratch import clear_up, clone_checkpoint, note_scratch, remove


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    for batch in range(4):
        write_batch(folder, batch)
    write_batch(folder, 4, committed=False)
    (folder / "metadata").write_text('{"id":"q"}', encoding="utf-8")
    for name in ("state/0/0/1.delta", "state/0/1/1_ab.zip", "sources/0/0"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}", encoding="utf-8")
    (folder / "_tidewise").mkdir()
    (folder / "_tidewise" / "lease.json").write_text("{}", encoding="utf-8")
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_it_holds_everything_up_to_the_last_commit_and_nothing_of_ours(checkpoint: Path, tmp_path: Path) -> None:
    assert clone_checkpoint(checkpoint, tmp_path / "clone") == 3
    cloned = content(tmp_path / "clone")
    expected = {
        name: bytes_
        for name, bytes_ in content(checkpoint).items()
        if name != "offsets/4" and not name.startswith("_tidewise")
    }
    assert cloned == expected


def test_what_spark_does_to_a_clone_leaves_the_original_alone(checkpoint: Path, tmp_path: Path) -> None:
    before = content(checkpoint)
    clone = tmp_path / "clone"
    clone_checkpoint(checkpoint, clone)
    # As Spark does: new files by rename, old ones by removal, nothing in place.
    fresh = clone / "commits" / ".3.tmp"
    fresh.write_text("another", encoding="utf-8")
    fresh.replace(clone / "commits" / "3")
    (clone / "state/0/0/2.delta").write_text("new", encoding="utf-8")
    (clone / "offsets" / "0").unlink()
    shutil.rmtree(clone / "sources")
    assert content(checkpoint) == before
    remove(clone)
    assert not clone.exists()
    assert content(checkpoint) == before
    remove(clone)  # again, and nothing happens


def test_a_checkpoint_without_a_commit_gives_an_empty_start(tmp_path: Path) -> None:
    write_batch(tmp_path / "checkpoint", 0, committed=False)
    assert clone_checkpoint(tmp_path / "checkpoint", tmp_path / "one") == -1
    assert clone_checkpoint(tmp_path / "not-there-yet", tmp_path / "two") == -1
    assert list((tmp_path / "one").iterdir()) == list((tmp_path / "two").iterdir()) == []


def test_a_clone_that_is_there_already_is_not_mixed_up(checkpoint: Path, tmp_path: Path) -> None:
    clone_checkpoint(checkpoint, tmp_path / "clone")
    with pytest.raises(FileExistsError):
        clone_checkpoint(checkpoint, tmp_path / "clone")


def test_the_owner_goes_on_meanwhile(checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.link

    def link(source: Path, target: Path) -> None:
        if source.name == "metadata":
            # Between listing the commits and linking: a batch is committed, old files are thrown away.
            write_batch(checkpoint, 4)
            for name in ("offsets/0", "commits/0", "state/0/0/1.delta"):
                (checkpoint / name).unlink()
        real(source, target)

    monkeypatch.setattr(os, "link", link)
    assert clone_checkpoint(checkpoint, tmp_path / "clone") == 3
    cloned = content(tmp_path / "clone")
    assert "commits/4" not in cloned
    assert "offsets/4" not in cloned
    assert {"commits/3", "offsets/3", "state/0/1/1_ab.zip"} <= cloned.keys()


def test_a_file_system_without_links_gets_copies(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(_source: Path, _target: Path) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    assert clone_checkpoint(checkpoint, tmp_path / "clone") == 3
    assert content(tmp_path / "clone")["commits/3"] == content(checkpoint)["commits/3"]


def test_what_was_noted_is_cleared_up_and_nothing_else(tmp_path: Path) -> None:
    home, kept = tmp_path / "application", tmp_path / "warm-relatively"
    home.mkdir()
    clear_up(home)  # nothing was ever noted
    made = [tmp_path / "c" / "_tidewise" / name for name in ("copy-a", "copy-a-out", "warm-b", "lease", "copy-other")]
    for folder in (*made, kept):
        folder.mkdir(parents=True)
    for name in ("copy-a", "warm-b", "warm-never-made"):
        note_scratch(home, tmp_path / "c" / "_tidewise" / name)
    with (home / "scratch.txt").open("a", encoding="utf-8") as notes:
        notes.write(f"{tmp_path / 'c'}\nwarm-relatively\n\n{tmp_path / 'c' / '_tid'}")  # nonsense, and a line cut short
    clear_up(home)
    clear_up(home)
    assert sorted(path.name for path in (tmp_path / "c" / "_tidewise").iterdir()) == ["copy-other", "lease"]
    assert kept.is_dir()


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_note_that_was_cut_short_does_not_cost_a_checkpoint(tmp_path: Path, ending: str) -> None:
    """As a full disk leaves it: of .../copy-orders/_tidewise/copy-K only .../copy-orders is there."""
    home, checkpoint = tmp_path / "application", tmp_path / "copy-orders"
    for folder in (home, checkpoint / "commits", checkpoint / "_tidewise" / "copy-K"):
        folder.mkdir(parents=True)
    (home / "scratch.txt").write_text(f"{checkpoint}{ending}", encoding="utf-8")
    clear_up(home)
    # Not even one that would be right: the rest of its name may be missing.
    (home / "scratch.txt").write_text(str(checkpoint / "_tidewise" / "copy-K"), encoding="utf-8")
    clear_up(home)
    assert (checkpoint / "commits").is_dir()
    assert (checkpoint / "_tidewise" / "copy-K").is_dir()


def test_a_clone_is_there_as_a_whole_or_not_at_all(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, clone = tmp_path / "application", tmp_path / "c" / "_tidewise" / "copy-a"
    home.mkdir()
    note_scratch(home, clone)
    real = os.link

    def link(source: Path, target: Path) -> None:
        if source.name == "2":
            raise KeyboardInterrupt
        real(source, target)

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", link)
            with pytest.raises(KeyboardInterrupt):
                clone_checkpoint(checkpoint, clone)
        assert not clone.exists(), "half a clone would be gone on from"
    assert clone_checkpoint(checkpoint, clone) == 3
    assert [path.name for path in clone.parent.iterdir()] == ["copy-a"]
    clone.rename(clone.with_name("copy-a-new"))
    clear_up(home)
    assert list(clone.parent.iterdir()) == []
