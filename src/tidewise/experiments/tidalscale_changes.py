"""Which change of a job is on and when the last one ended, told from its reports alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from tidewise.core import Configuration, JobStatus, Observation

PERFORMING = (
    "executors",
    "slots_per_executor",
    "cores_per_executor",
    "memory_mib_per_executor",
    "commit_interval_s",
)
"""What the table of all jobs knows of a configuration."""
CONFIGURATION = (*PERFORMING, "state_partitions")
"""What reports tell of it."""


class Changes:
    """Which change is on and when the last one ended, as far as reports show it."""

    def __init__(self, *, within_s: float) -> None:
        """`within_s`: a change takes no longer, and executors that are missing for longer are not coming back."""
        self._within_s = within_s
        self.intended: Configuration | None = None
        self.asked: Configuration | None = None
        self.finished_s: float | None = None
        self._since_s: float | None = None
        """Since when something else runs than is intended."""

    def ask(self, target: Configuration, now_s: float) -> None:
        """A change was decided."""
        self.asked, self._since_s = target, now_s

    def see(self, observation: Observation) -> None:
        """What the next report shows."""
        runs, now_s = observation.configuration, observation.time_s
        if self.finished_s is not None:
            self.finished_s = min(self.finished_s, now_s)  # where the clock was set back
        if self.asked is not None:
            arrived = runs == self.asked and observation.status is JobStatus.RUNNING
            if arrived or self._waited(now_s):
                self._end(runs, now_s)
        elif self.intended is None or runs == self.intended:
            self.intended, self._since_s = runs, None
        elif runs.with_executors(1) != self.intended.with_executors(1) or runs.executors > self.intended.executors:
            self._end(runs, now_s)  # somebody else has changed it
        else:
            self._since_s = now_s if self._since_s is None else self._since_s
            if self._waited(now_s):
                self.intended, self._since_s = runs, None

    def to_plain(self) -> dict[str, object]:
        """All of it as numbers and lists."""
        return {
            "intended": None if self.intended is None else _plain(self.intended),
            "asked": None if self.asked is None else _plain(self.asked),
            "finished_s": self.finished_s,
            "since_s": self._since_s,
        }

    def from_plain(self, plain: Mapping[str, object]) -> None:
        """Go on where `to_plain` stood; KeyError, TypeError or ValueError where it is something else."""
        intended, asked, finished_s, since_s = (plain[name] for name in ("intended", "asked", "finished_s", "since_s"))
        self.intended = None if intended is None else Configuration(**dict(intended))  # type: ignore[call-overload]  # checked by trying
        self.asked = None if asked is None else Configuration(**dict(asked))  # type: ignore[call-overload]  # checked by trying
        self.finished_s = None if finished_s is None else float(finished_s)  # type: ignore[arg-type]  # checked by trying
        self._since_s = None if since_s is None else float(since_s)  # type: ignore[arg-type]  # checked by trying

    def _waited(self, now_s: float) -> bool:
        return self._since_s is not None and abs(now_s - self._since_s) > self._within_s

    def _end(self, runs: Configuration, now_s: float) -> None:
        self.intended, self.asked, self._since_s, self.finished_s = runs, None, None, now_s


def _plain(configuration: Configuration) -> dict[str, object]:
    # Reports do not tell any other settings.
    return {name: value for name, value in asdict(configuration).items() if name in CONFIGURATION}
