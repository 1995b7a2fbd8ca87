"""A process is only ever taken for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tidewise.core import BadInputError
from tidewise.host import processes
from tidewise.host.processes import ProcessIdentity, TreeCpu, descendants, find, wait_until

MARK = "tidewise-test-process-mark"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", MARK])
    yield process
    process.kill()
    process.wait()


def identity_of(process: subprocess.Popen[bytes]) -> ProcessIdentity:
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    return identity


def test_a_process_is_alive_until_it_is_killed_and_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    assert identity.is_alive()
    assert identity.kill()
    # Nobody has waited for it yet: its number still exists.
    os.kill(sleeper.pid, 0)
    assert not identity.is_alive()
    assert not identity.signal(signal.SIGTERM)


def test_a_reused_number_is_not_the_same_process(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    assert identity.started_ticks is not None
    earlier = replace(identity, started_ticks=identity.started_ticks - 1)
    assert not earlier.is_alive()
    assert not earlier.is_stopped()
    assert not earlier.signal(signal.SIGKILL)
    assert earlier.kill()
    assert identity.is_alive()


def test_a_frozen_process_is_stopped_and_alive(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    assert not identity.is_stopped()
    assert identity.signal(signal.SIGSTOP)
    assert wait_until(identity.is_stopped, deadline_s=10)
    assert identity.is_alive()
    assert identity.signal(signal.SIGCONT)
    assert wait_until(lambda: not identity.is_stopped(), deadline_s=10)


def test_an_identity_survives_being_written_down(sleeper: subprocess.Popen[bytes]) -> None:
    identity = identity_of(sleeper)
    assert ProcessIdentity.from_dict(identity.to_dict()) == identity


@pytest.mark.parametrize("wrong", [{}, {"pid": "1", "started_ticks": 1}, {"pid": 1, "started_ticks": 1.5}, {"pid": 0}])
def test_what_is_no_identity_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadInputError, match="process"):
        ProcessIdentity.from_dict(wrong)


def test_nobody_has_a_number_that_is_not_in_use(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert ProcessIdentity.of(sleeper.pid) is None


def test_processes_are_found_by_their_command_line(sleeper: subprocess.Popen[bytes]) -> None:
    (found,) = [one for one in find(lambda argv: argv[-1] == MARK) if one.identity.pid == sleeper.pid]
    assert found.identity == identity_of(sleeper)
    assert found.option("-c") == "import time; time.sleep(60)"
    assert found.option(MARK) is None
    assert found.option("--absent") is None
    assert str(found.folder) == os.getcwd()  # noqa: PTH109 - what the system says, not what a path means
    identity_of(sleeper).kill()
    assert not [one for one in find(lambda argv: argv[-1] == MARK) if one.identity.pid == sleeper.pid]


def test_descendants_are_children_and_theirs() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sh -c 'sleep 60; :'; :"]) as parent:
        assert wait_until(lambda: len(descendants(parent.pid)) == 2, deadline_s=10)
        below = descendants(parent.pid)
        assert all(each.is_alive() for each in below)
        parent.kill()
        for each in below:
            assert each.kill()
    assert descendants(parent.pid) == ()


_BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"


def test_the_cpu_time_below_a_process_counts_those_that_have_ended() -> None:
    cpu = TreeCpu(os.getpid())
    with subprocess.Popen([sys.executable, "-c", _BUSY]) as child:
        identity = identity_of(child)
        assert wait_until(lambda: not identity.is_alive(), deadline_s=30)
        unasked_s = cpu.used_s()
    asked_s = cpu.used_s()
    assert unasked_s is not None
    assert asked_s is not None
    assert unasked_s >= 0.25, "it is counted in hundredths of a second"
    assert asked_s >= unasked_s
    assert TreeCpu(child.pid).used_s() is None


@pytest.mark.parametrize("told", ["SIG_DFL", "SIG_IGN"])
def test_a_child_that_ends_takes_nothing_away_from_what_the_others_use(told: str) -> None:
    """Whether its parent waits for it or ignores its end, what it had used before is not part of it."""
    child = f"{_BUSY}print('did', flush=True)\nimport sys; sys.stdin.readline()"
    parent = (
        f"import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.{told})\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\nchild.wait()\n"
        "print('over', flush=True)\nsys.stdin.readline()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", parent], text=True, **pipes) as family:  # type: ignore[call-overload]
        assert family.stdout.readline() == "did\n"
        cpu = TreeCpu(family.pid)
        family.stdin.write("\n")
        family.stdin.flush()
        assert family.stdout.readline() == "over\n"
        used_s = cpu.used_s()
        family.stdin.write("\n")
    assert used_s is not None
    assert 0.0 <= used_s < 0.25, "the 0.3 s were before"


def test_without_proc_the_number_must_do(monkeypatch: pytest.MonkeyPatch, sleeper: subprocess.Popen[bytes]) -> None:
    monkeypatch.setattr(processes, "can_find", lambda: False)
    identity = identity_of(sleeper)
    assert identity.started_ticks is None
    assert identity.is_alive()
    assert not identity.is_stopped()
    assert find(lambda _: True) == ()
    assert descendants(os.getpid()) == ()
    assert identity.signal(signal.SIGKILL)
    sleeper.wait()
    assert not identity.is_alive()
    assert ProcessIdentity.of(sleeper.pid) is None


def test_waiting_ends_at_the_deadline() -> None:
    asked: list[int] = []
    assert not wait_until(lambda: bool(asked.append(1)), deadline_s=0.0)  # type: ignore[func-returns-value]  # None is false
    assert asked == [1]
