"""Keeps a controller alive: starts it as a process of its own, starts it again when it dies, passes the end on."""

from __future__ import annotations

import logging
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import PermanentError
from tidewise.core.checks import require, require_finite
from tidewise.experiments.signals import asked_to_stop

_LOG = logging.getLogger(__name__)

TRY_AGAIN = 75
"""The exit code of a controller that could not go on now, and might later."""
_FINAL = frozenset({0, 2, 130})
"""Done; refused for a reason that stays; stopped at once. Any other end is a death."""
_POLL_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How often and how long."""

    restarts_most: int = 5
    restarts_within_s: float = 600.0
    """A controller that dies more often than this is not started again."""
    wait_first_s: float = 0.5
    """Before the first restart; doubles with every death that is still remembered."""
    wait_most_s: float = 60.0
    stop_within_s: float = 180.0
    """How long a graceful stop may take before it becomes one at once."""
    kill_within_s: float = 60.0
    """How long a stop at once may take before the controller is killed."""

    def __post_init__(self) -> None:
        require(self.restarts_most >= 0, f"restarts_most must be at least 0, not {self.restarts_most}")
        for name in ("restarts_within_s", "wait_first_s", "wait_most_s", "stop_within_s", "kill_within_s"):
            require_finite(name, getattr(self, name), above=0.0)


class Supervisor:
    """Runs one controller until it ends in order; `run` belongs to the main thread, which gets the signals.

    The first SIGINT, SIGTERM or SIGHUP is passed on as one SIGTERM (end in order), the second as another (end now). A
    controller that has been asked to end is not started again, however it ends.
    """

    def __init__(self, command: Sequence[str], *, patience: Patience | None = None) -> None:
        self._command = tuple(command)
        self._patience = patience or Patience()
        self._deaths_s: deque[float] = deque()
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._passed_on = 0
        self._asked_at_s = 0.0
        self._woken = threading.Event()
        self.restarts = 0
        """How often the controller was started again."""

    def run(self) -> int:
        """The exit code of the controller, negative where a signal ended it; PermanentError where it died too often."""
        with asked_to_stop(self._ask):
            while True:
                code = self._run_once()
                if code in _FINAL or self._asked:
                    return code
                now_s = time.monotonic()
                self._deaths_s.append(now_s)
                while now_s - self._deaths_s[0] > self._patience.restarts_within_s:
                    self._deaths_s.popleft()
                if len(self._deaths_s) > self._patience.restarts_most:
                    raise PermanentError(
                        f"the controller died {len(self._deaths_s)} times within "
                        f"{self._patience.restarts_within_s:.0f} s (at last {_how(code)}) and is not started again"
                    )
                wait_s = min(self._patience.wait_most_s, self._patience.wait_first_s * 2.0 ** (len(self._deaths_s) - 1))
                _LOG.warning("The controller %s; it is started again in %.1f s", _how(code), wait_s)
                if self._woken.wait(timeout=wait_s):
                    return code
                self.restarts += 1

    def _run_once(self) -> int:
        # In a session of its own: the terminal's Ctrl-C is ours to pass on, and our death is not its death.
        child = subprocess.Popen(self._command, start_new_session=True)  # noqa: S603 -- our own command
        self._child, self._passed_on = child, 0
        while True:
            try:
                return child.wait(timeout=_POLL_S)
            except subprocess.TimeoutExpired:
                self._pass_on(child)

    def _pass_on(self, child: subprocess.Popen[bytes]) -> None:
        if not self._asked:
            return
        waited_s = time.monotonic() - self._asked_at_s
        if self._asked == 1 and waited_s > self._patience.stop_within_s:
            _LOG.warning("The controller has not ended within %.0f s and is told to end now", waited_s)
            self._ask()
        elif self._asked > 1 and waited_s > self._patience.kill_within_s:
            _LOG.warning("The controller has not ended within %.0f s and is killed", waited_s)
            child.kill()
        while self._passed_on < min(self._asked, 2):
            child.send_signal(signal.SIGTERM)
            self._passed_on += 1

    def _ask(self) -> None:
        self._asked += 1
        self._asked_at_s = time.monotonic()
        self._woken.set()


def _how(code: int) -> str:
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
