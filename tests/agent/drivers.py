"""A real driver with the agent in it, and a controller that only listens and asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tidewise_agent
from tidewise.engines.spark.switchboard import Message, Switchboard
from tidewise.host.processes import ProcessIdentity, find, wait_until
from tidewise_agent.spec import OWNER_VARIABLE, SPEC_VARIABLE, AgentSpec

LONG_S = 90.0
TOKEN = "the-token"  # noqa: S105 -- made up
AGENT_PATH = Path(tidewise_agent.__file__).parent / "path"
PROGRAMS = Path(__file__).parent / "programs"


class Ear:
    """What agents have told, in order."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.news = threading.Condition()

    def __call__(self, application: str, message: Message) -> None:
        with self.news:
            self.messages.append({"application": application, **message})
            self.news.notify_all()

    def of_kind(self, kind: str) -> list[Message]:
        with self.news:
            return [message for message in self.messages if message["kind"] == kind]

    def wait_for(self, kind: str, wanted: Callable[[Message], bool] = lambda _: True, *, count: int = 1) -> Message:
        """The last of so many messages of a kind; AssertionError, with what was told instead, where none come."""

        def found() -> list[Message]:
            return [message for message in self.of_kind(kind) if wanted(message)]

        with self.news:
            in_time = self.news.wait_for(lambda: len(found()) >= count, timeout=LONG_S)
            told = [message for message in self.messages if message["kind"] in ("problem", "terminated", "ending")]
            assert in_time, f"no {kind} was told: {told}"
            return found()[count - 1]


@dataclass
class Driver:
    """A program that runs."""

    process: subprocess.Popen[str]
    folder: Path
    ear: Ear
    board: Switchboard
    told: list[str] = field(default_factory=list)
    """What the program has said, line by line."""

    def ask(self, operation: str, arguments: Mapping[str, Any] | None = None, **more: Any) -> Message:  # noqa: ANN401 -- as the board takes them
        return self.board.ask("app", operation, arguments, within_s=LONG_S, **more)

    def cue(self, name: str) -> None:
        (self.folder / name).touch()

    def wait_to_say(self, start: str) -> str:
        self.wait_until(lambda: any(line.startswith(start) for line in self.told), f"the program never said {start!r}")
        return next(line for line in self.told if line.startswith(start))

    def wait_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """AssertionError, with the program's last words, where it does not come true or the program ends before."""
        wait_until(lambda: condition() or self.process.poll() is not None, deadline_s=LONG_S)
        errors = (self.folder / "errors").read_text(encoding="utf-8")[-2_000:]
        assert condition(), f"{otherwise}; exit code {self.process.poll()}, it said {self.told} and {errors}"

    def wait_for_end(self) -> int:
        return self.process.wait(timeout=LONG_S)

    def commits(self, checkpoint: str) -> list[int]:
        folder = self.folder / checkpoint / "commits"
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())

    def wait_for_commits(self, checkpoint: str, *, more: int) -> None:
        """So many batches from now on."""
        path = self.folder / checkpoint / "commits"
        self.wait_until(path.exists, f"{checkpoint} has no commits")
        before = max(self.commits(checkpoint), default=-1)
        self.wait_until(
            lambda: max(self.commits(checkpoint), default=-1) >= before + more,
            f"{checkpoint} stands still at batch {before}",
        )


@contextmanager
def driver(
    program: str,
    folder: Path,
    *,
    python: str = sys.executable,
    python_path: tuple[Path, ...] = (),
    **settings: Any,  # noqa: ANN401 -- of the agent
) -> Iterator[Driver]:
    """Run a program with the agent; in the end neither it nor anything that it started is left."""
    ear = Ear()
    board = Switchboard(token=TOKEN, heard=ear)
    spec = AgentSpec(
        application="app",
        host=board.host,
        port=board.port,
        token=TOKEN,
        state_folder=str(folder),
        identity_file=str(folder / "identity.json"),
        **settings,
    )
    spec.write(folder / "agent.json")
    process = start(program, folder, python=python, python_path=python_path)
    running = Driver(process=process, folder=folder, ear=ear, board=board)
    reading = threading.Thread(target=_read, args=(process, running.told), daemon=True)
    reading.start()
    try:
        yield running
    finally:
        end(process)
        reading.join(timeout=LONG_S)
        if process.stdout is not None:
            process.stdout.close()
        running.board.close()


def start(
    program: str,
    folder: Path,
    *,
    python: str = sys.executable,
    flags: tuple[str, ...] = (),
    python_path: tuple[Path, ...] = (),
    spec: Path | None = None,
    agent: bool = True,
) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name not in (SPEC_VARIABLE, OWNER_VARIABLE)}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
    if agent:
        environment[SPEC_VARIABLE] = str(spec or folder / "agent.json")
        environment["PYTHONPATH"] = os.pathsep.join(str(part) for part in (AGENT_PATH, *python_path))
    with (folder / "errors").open("ab") as errors:
        return subprocess.Popen(
            [python, *flags, str(PROGRAMS / program), str(folder)],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )


def end(process: subprocess.Popen[str]) -> None:
    """End the program and all that it has started."""
    ours = [one.identity for one in _of_session(process.pid)]
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=LONG_S)
    for one in (*ours, *(one.identity for one in _of_session(process.pid))):
        one.kill()
    assert wait_until(lambda: not _of_session(process.pid), deadline_s=LONG_S), "a process was left"


def _of_session(session: int) -> list[Any]:
    def in_session(identity: ProcessIdentity) -> bool:
        try:
            return os.getsid(identity.pid) == session
        except ProcessLookupError:
            return False

    return [one for one in find(lambda _: True) if in_session(one.identity)]


def _read(process: subprocess.Popen[str], told: list[str]) -> None:
    assert process.stdout is not None
    told.extend(line.rstrip("\n") for line in process.stdout)


def settled(seconds: float) -> None:
    """Long enough for something to happen that must not."""
    time.sleep(seconds)
