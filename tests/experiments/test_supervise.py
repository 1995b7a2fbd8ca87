"""A controller that dies is started again, within limits; Ctrl-C once and twice reach it; nobody is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from tidewise.core import PermanentError
from tidewise.experiments.supervise import TRY_AGAIN, Patience, Supervisor

QUICK = Patience(wait_first_s=0.01, wait_most_s=0.05, restarts_most=3)


def fake(folder: Path, *, body: str) -> list[str]:
    """A controller that notes its number in `folder/starts` and then does as the body says."""
    program = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        f"starts = Path({str(folder / 'starts')!r})\n"
        "number = len(starts.read_text()) + 1 if starts.exists() else 1\n"
        "starts.write_text('x' * number)\n"
        f"ready = Path({str(folder / 'ready')!r})\n" + body
    )
    return [sys.executable, "-c", program]


WAITS = """
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
ready.touch()
end = time.monotonic() + 30
while time.monotonic() < end:
    time.sleep(0.01)
    if len(asked) >= {needed}:
        sys.exit({code})
"""


def starts(folder: Path) -> int:
    return len((folder / "starts").read_text(encoding="utf-8"))


def signals_once_ready(folder: Path, count: int) -> threading.Thread:
    """Send ourselves Ctrl-C so often, as soon as the controller listens."""

    def send() -> None:
        end_s = time.monotonic() + 20
        while not (folder / "ready").exists() and time.monotonic() < end_s:
            time.sleep(0.01)
        for _ in range(count):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_a_controller_that_ends_in_order_is_not_started_again(tmp_path: Path) -> None:
    assert Supervisor(fake(tmp_path, body="sys.exit(0)"), patience=QUICK).run() == 0
    assert starts(tmp_path) == 1


def test_a_refusal_that_stays_is_not_tried_again(tmp_path: Path) -> None:
    assert Supervisor(fake(tmp_path, body="sys.exit(2)"), patience=QUICK).run() == 2
    assert starts(tmp_path) == 1


@pytest.mark.parametrize(
    "death", ["os.kill(os.getpid(), signal.SIGKILL)", "raise SystemError", f"sys.exit({TRY_AGAIN})"]
)
def test_a_controller_that_dies_is_started_again(tmp_path: Path, death: str) -> None:
    supervisor = Supervisor(fake(tmp_path, body=f"if number < 3: {death}"), patience=QUICK)
    assert supervisor.run() == 0
    assert starts(tmp_path) == 3
    assert supervisor.restarts == 2


def test_a_controller_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"died 4 times .*was killed by signal 9"):
        Supervisor(fake(tmp_path, body="os.kill(os.getpid(), signal.SIGKILL)"), patience=QUICK).run()
    assert starts(tmp_path) == 4


def test_ctrl_c_once_reaches_the_controller_once(tmp_path: Path) -> None:
    sender = signals_once_ready(tmp_path, 1)
    assert Supervisor(fake(tmp_path, body=WAITS.format(needed=1, code=0)), patience=QUICK).run() == 0
    sender.join()
    assert starts(tmp_path) == 1


def test_ctrl_c_twice_reaches_the_controller_twice(tmp_path: Path) -> None:
    sender = signals_once_ready(tmp_path, 2)
    assert Supervisor(fake(tmp_path, body=WAITS.format(needed=2, code=130)), patience=QUICK).run() == 130
    sender.join()


def test_a_controller_that_was_asked_to_end_is_not_started_again_however_it_ends(tmp_path: Path) -> None:
    sender = signals_once_ready(tmp_path, 1)
    assert Supervisor(fake(tmp_path, body=WAITS.format(needed=1, code=1)), patience=QUICK).run() == 1
    sender.join()
    assert starts(tmp_path) == 1


def test_a_controller_that_does_not_end_is_told_again_and_then_killed(tmp_path: Path) -> None:
    impatient = Patience(stop_within_s=0.2, kill_within_s=0.5)
    sender = signals_once_ready(tmp_path, 1)
    assert Supervisor(fake(tmp_path, body=WAITS.format(needed=99, code=0)), patience=impatient).run() == -signal.SIGKILL
    sender.join()


def test_the_handlers_of_whoever_calls_are_put_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    Supervisor(fake(tmp_path, body="sys.exit(0)"), patience=QUICK).run()
    assert signal.getsignal(signal.SIGINT) is before
