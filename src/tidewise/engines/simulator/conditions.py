"""What a job works under at a moment: its capacity, and whether it is down, impaired or still warming up."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.core import JobStatus
from tidewise.engines.simulator.profile import WarmUp


@dataclass(slots=True)
class Conditions:
    """Set by the deployment at every event, read by the flow of records at every second."""

    capacity_per_s: float = 0.0
    """At full speed, with the executors that are there."""
    cores: float = 0.0
    """Of these executors."""
    down_until_s: float = 0.0
    status: JobStatus = JobStatus.RUNNING
    """Why it is down, while it is."""
    warm_from_s: float = 0.0
    warm_until_s: float = 0.0
    warm_share: float = 1.0
    cold_s_per_record: float = 0.0
    impaired_until_s: float = 0.0
    """Until a failure that has happened is noticed."""
    impaired_share: float = 1.0

    def go_down(
        self, at_s: float, duration_s: float, status: JobStatus, warm_up: WarmUp, *, same_processes: bool
    ) -> None:
        """Stop processing; a job that is down already stays down for the longer of the two.

        With the same processes afterwards, a warming up that was not over goes on; new ones warm up on their own.
        """
        share, duration_left_s = warm_up.share, warm_up.duration_s
        if same_processes and at_s < self.warm_until_s:
            share = min(share, self.speed_at(max(at_s, self.warm_from_s), impaired=False))
            duration_left_s = max(duration_left_s, self.warm_until_s - max(at_s, self.warm_from_s))
        self.down_until_s = max(self.down_until_s, at_s + duration_s)
        self.status = status
        self.warm_from_s = self.down_until_s
        self.warm_until_s = self.down_until_s + duration_left_s
        self.warm_share = share
        self.cold_s_per_record = warm_up.cold_s_per_record  # of processes that go on, the share tells how cold they are
        self.impaired_until_s = min(self.impaired_until_s, at_s)

    def impair(self, at_s: float, until_s: float, share: float) -> None:
        """Work at a share of the speed for a while; a second trouble makes it worse, never better."""
        if at_s < self.impaired_until_s:
            share, until_s = min(share, self.impaired_share), max(until_s, self.impaired_until_s)
        self.impaired_share, self.impaired_until_s = share, until_s

    def status_at(self, time_s: float) -> JobStatus:
        return self.status if time_s < self.down_until_s else JobStatus.RUNNING

    def speed_at(self, time_s: float, *, impaired: bool = True) -> float:
        """Share of the capacity that there is at this moment, were the job up."""
        share = 1.0
        if self.warm_from_s <= time_s < self.warm_until_s:
            done = (time_s - self.warm_from_s) / (self.warm_until_s - self.warm_from_s)
            share = self.warm_share + (1.0 - self.warm_share) * done
            share /= 1.0 + share * self.cold_s_per_record * (1.0 - done) * self.capacity_per_s
        if impaired and time_s < self.impaired_until_s:
            share *= self.impaired_share
        return share
