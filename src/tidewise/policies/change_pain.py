"""How many late seconds a change that is said to cost nothing really brings, from the reports after each."""

from __future__ import annotations

from collections import deque

from tidewise.core import JobStatus, Observation, Promises

_WATCHED_S = 30.0
"""For how long after a change its late seconds are counted."""
_FADES = 0.7
_KEPT = 64


class ChangePain:
    """Follows what comes of executors that join and leave.

    What was promised is only known when it is asked, so the reports around changes are kept until then.
    """

    def __init__(self) -> None:
        self._last: Observation | None = None
        self._open: list[Observation] | None = None
        self._before: Observation | None = None
        self._kept: deque[tuple[Observation, tuple[Observation, ...]]] = deque(maxlen=_KEPT)

    def learn(self, observation: Observation) -> None:
        """Take one report in; a change that another one or a failure follows at once tells nothing."""
        last, self._last = self._last, observation
        if observation.status is not JobStatus.RUNNING or last is None or last.status is not JobStatus.RUNNING:
            self._open = None
            return
        if observation.configuration != last.configuration:
            self._before, self._open = last, []
        if self._open is None or self._before is None:
            return
        self._open.append(observation)
        if sum(each.window_s for each in self._open) >= _WATCHED_S:
            self._kept.append((self._before, tuple(self._open)))
            self._open = None

    def felt(self) -> None:
        """A failure that no report saw was on when the latest change came: what is late is not the change's."""
        self._open = None

    @property
    def is_watching(self) -> bool:
        """Whether what is late now is counted as a change's."""
        return self._open is not None

    def late_s(self, promises: Promises) -> float:
        """Of a usual change, the last few counting most; 0 before there was any."""
        late_s = 0.0
        for before, after in self._kept:
            if promises.broken_by(before):
                continue  # what was late before a change is not late because of it
            broken_s = sum(each.window_s for each in after if promises.broken_by(each))
            late_s = _FADES * late_s + (1.0 - _FADES) * broken_s
        return late_s
