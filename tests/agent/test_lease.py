"""A checkpoint has one writer at a time, whatever applications do and in whatever order they die."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tidewise_agent import lease as lease_module
from tidewise_agent.lease import Lease, LeaseRefusedError, bookkeeping_folder, local_path

NAMES = st.sampled_from(["a", "b", "c", "d"])


class LeaseMachine(RuleBasedStateMachine):
    """Applications claim, let go, write and die; the model knows which of them may write."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name) / "checkpoint" / "_tidewise"
        self.leases: dict[str, Lease] = {}
        self.writer: str | None = None
        """Who holds the lease by the rules."""
        self.known_dead: set[str] = set()
        self.fenced: set[str] = set()
        """Those that were declared dead and overtaken, and are in truth only frozen."""
        self.epochs: list[int] = []
        self.born = 0

    def teardown(self) -> None:
        self._folder.cleanup()

    def lease(self, name: str) -> Lease:
        return self.leases.setdefault(name, Lease(self.folder, application=name))

    @rule(name=NAMES)
    def claim(self, name: str) -> None:
        if name in self.known_dead:
            return  # the dead do nothing
        free = self.writer in (None, name) or self.writer in self.known_dead
        if not free:
            with pytest.raises(LeaseRefusedError, match=f"held by the application {self.writer} "):
                self.lease(name).claim(gone=frozenset(self.known_dead))
            return
        before = self.epochs[-1] if self.epochs else 0
        held_already = self.writer == name
        epoch = self.lease(name).claim(gone=frozenset(self.known_dead))
        assert epoch == (before if held_already else before + 1)
        if self.writer not in (None, name):
            self.fenced.add(self.writer or "")
        self.writer = name
        self.epochs.append(epoch)

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        self.lease(name).release()
        if self.writer == name:
            self.writer = None

    @rule(name=NAMES)
    def write(self, name: str) -> None:
        if self.writer == name:
            self.lease(name).check()
        else:
            with pytest.raises(LeaseRefusedError, match="the batch is not written"):
                self.lease(name).check()

    @rule(name=NAMES)
    def confirm_death(self, name: str) -> None:
        self.known_dead.add(name)

    @rule(name=NAMES)
    def replace_the_dead(self, name: str) -> None:
        """A successor has a name of its own; here names are few, so one that nobody holds is used again."""
        if name in self.known_dead and self.writer != name and name not in self.fenced:
            self.known_dead.discard(name)
            self.leases.pop(name, None)

    @rule(name=NAMES)
    def restart_of_the_object(self, name: str) -> None:
        """Another look at the same file decides the same, except that what it held it must claim again."""
        holder = Lease(self.folder, application=name).holder()
        if self.writer is not None:
            assert holder is not None
            assert (holder.application, holder.released) == (self.writer, False)

    @invariant()
    def one_holder(self) -> None:
        able = []
        for name, lease in self.leases.items():
            try:
                lease.check()
            except LeaseRefusedError:
                continue
            able.append(name)
        assert able == ([] if self.writer is None else [self.writer])

    @invariant()
    def epochs_only_grow(self) -> None:
        assert self.epochs == sorted(self.epochs)
        holder = Lease(self.folder, application="onlooker").holder()
        if self.epochs:
            assert holder is not None
            assert holder.epoch == self.epochs[-1]

    @invariant()
    def the_fenced_stay_fenced(self) -> None:
        for name in self.fenced:
            with pytest.raises(LeaseRefusedError):
                self.lease(name).check()


LeaseMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLeaseMachine = LeaseMachine.TestCase


def test_a_release_by_one_that_was_overtaken_takes_nothing_away(tmp_path: Path) -> None:
    frozen, successor = Lease(tmp_path, application="frozen"), Lease(tmp_path, application="successor")
    frozen.claim()
    successor.claim(gone=frozenset({"frozen"}))
    frozen.release()
    successor.check()
    assert frozen.epoch is None
    assert successor.epoch == 2


def test_whoever_never_claimed_may_not_write(tmp_path: Path) -> None:
    with pytest.raises(LeaseRefusedError, match="nobody does"):
        Lease(tmp_path, application="a").check()


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=60)
    return child.pid


def test_what_a_dead_run_left_behind_may_be_taken_after_its_executors_have_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    driver = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    left = Lease(tmp_path, application="left", run="old", processes=(driver.pid,))
    left.claim()
    later = Lease(tmp_path, application="later", run="new")
    with pytest.raises(LeaseRefusedError, match=r"if you know that it is, remove .*lease\.json"):
        later.claim()
    driver.communicate(timeout=60)
    monkeypatch.setattr(time, "sleep", slept.append)
    with pytest.raises(LeaseRefusedError):  # within a run the controller says who is dead
        Lease(tmp_path, application="sibling", run="old").claim()
    assert later.claim() == 2
    assert slept == [lease_module.EXECUTORS_LEAVE_S]
    with pytest.raises(LeaseRefusedError):
        left.check()


@pytest.mark.parametrize("unknown", ["another host", "no processes", "one lives"])
def test_death_that_cannot_be_seen_is_not_taken_for_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: str
) -> None:
    dead = dead_process()
    processes = {"no processes": (), "one lives": (dead, os.getpid())}.get(unknown, (dead,))
    with monkeypatch.context() as patch:
        if unknown == "another host":
            patch.setattr(socket, "gethostname", lambda: "elsewhere")
        Lease(tmp_path, application="left", run="old", processes=processes).claim()
    with pytest.raises(LeaseRefusedError, match="not known to be dead"):
        Lease(tmp_path, application="later", run="new").claim()


def test_a_number_that_was_given_again_is_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    Lease(tmp_path, application="left", run="old", processes=(os.getpid(),)).claim()
    path = tmp_path / "lease.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["processes"] = [[os.getpid(), content["processes"][0][1] - 1]]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert Lease(tmp_path, application="later", run="new").claim() == 2


def _claim(folder: str, name: str, won: multiprocessing.Queue[str]) -> None:
    try:
        Lease(Path(folder), application=name).claim()
    except LeaseRefusedError:
        return
    won.put(name)


def test_of_several_processes_at_once_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    won: multiprocessing.Queue[str] = context.Queue()
    racers = [context.Process(target=_claim, args=(str(tmp_path), f"r{number}", won)) for number in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join(timeout=60)
        assert racer.exitcode == 0
    winner = won.get(timeout=10)
    assert won.empty()
    content = json.loads((tmp_path / "lease.json").read_text(encoding="utf-8"))
    assert (content["application"], content["epoch"], content["released"]) == (winner, 1, False)
    won.close()
    won.join_thread()


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/c", "/data/c"),
        ("file:/data/c", "/data/c"),
        ("file:///data/c", "/data/c"),
        ("s3a://bucket/c", None),
        ("hdfs://name/c", None),
    ],
)
def test_local_places_are_told_from_others(location: str, path: str | None) -> None:
    assert local_path(location) == (None if path is None else Path(path))


def test_a_relative_place_is_where_the_program_runs() -> None:
    assert local_path("c") == Path("c").absolute()


def test_books_are_kept_in_the_checkpoint_or_with_the_job() -> None:
    assert bookkeeping_folder("/data/c", state_folder="/job") == Path("/data/c/_tidewise")
    far = bookkeeping_folder("s3a://bucket/c-1", state_folder="/job")
    assert far.parent == Path("/job/checkpoints")
    assert far != bookkeeping_folder("s3a://bucket/c-2", state_folder="/job")
