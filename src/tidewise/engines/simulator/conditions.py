"""What a job works under at a moment: its capacity, and whether it is down, impaired or still warming up."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core import JobStatus
from tidewise.engines.simulator.profile import WarmUp


@dataclass(slots=True)
class Conditions:
    """Set by the job at every event, read by the flow of records at every second."""

    capacity_per_s: float = 0.0
    """At full speed, with the executors that are there."""
    down_until_s: float = 0.0
    status: JobStatus = JobStatus.RUNNING
    """Why it is down, while it is."""
    warm_from_s: float = 0.0
    warm_until_s: float = 0.0
    warm_share: float = 1.0
    impaired_until_s: float = 0.0
    """Until a failure that has happened is noticed."""
    impaired_share: float = 1.0

    def go_down(self, at_s: float, duration_s: float, status: JobStatus, warm_up: WarmUp) -> None:
        """Stop processing; a job that is down already stays down for the longer of the two."""
        self.down_until_s = max(self.down_until_s, at_s + duration_s)
        self.status = status
        self.warm_from_s = self.down_until_s
        self.warm_until_s = self.down_until_s + warm_up.duration_s
        self.warm_share = warm_up.share
        self.impaired_until_s = min(self.impaired_until_s, at_s)

    def status_at(self, time_s: float) -> JobStatus:
        return self.status if time_s < self.down_until_s else JobStatus.RUNNING

    def speed_at(self, time_s: float) -> float:
        """Share of the capacity that there is at this moment, were the job up."""
        share = 1.0
        if self.warm_from_s <= time_s < self.warm_until_s:
            done = (time_s - self.warm_from_s) / (self.warm_until_s - self.warm_from_s)
            share = self.warm_share + (1.0 - self.warm_share) * done
        if time_s < self.impaired_until_s:
            share *= self.impaired_share
        return share
