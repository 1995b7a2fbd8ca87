"""The clock of real runs; simulated runs bring their own."""

from __future__ import annotations

import threading
import time


class SystemClock:
    """Seconds since the run began, on a clock that never goes back; implements `core.Clock`.

    A controller that starts again after a crash continues the run's time with `SystemClock.since` and the wall-clock
    time at which the run began. `wake` may be called by any thread.
    """

    def __init__(self, *, start_s: float = 0.0) -> None:
        self._offset_s = start_s - time.monotonic()
        self._condition = threading.Condition()
        self._woken = False

    @classmethod
    def since(cls, began_unix_s: float, *, at_least_s: float = 0.0) -> SystemClock:
        """The clock of a run that began at this time of the wall clock, which is read once, here.

        `at_least_s`: how far the run is known to be, for a wall clock that was put back meanwhile.
        """
        return cls(start_s=max(at_least_s, time.time() - began_unix_s))

    def now_s(self) -> float:
        return time.monotonic() + self._offset_s

    def wait_until(self, time_s: float) -> None:
        """Return when this time has come, or when `wake` was called since the last wait: look at `now_s`."""
        with self._condition:
            while not self._woken:
                left_s = time_s - self.now_s()
                if left_s <= 0.0:
                    break
                self._condition.wait(timeout=left_s)
            self._woken = False

    def wake(self) -> None:
        """End the wait that is on, or else the next one, at once."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()
