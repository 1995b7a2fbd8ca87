"""The simulator as an engine: one load, one profile, one seed, and a clock that jumps."""

from __future__ import annotations

import numpy as np

from tidewise.core import ChangeCost, Configuration, Mechanism, PermanentError
from tidewise.core.checks import require
from tidewise.engines.simulator.copies import Copier
from tidewise.engines.simulator.job import SimulatedJob
from tidewise.engines.simulator.latency import Floats
from tidewise.engines.simulator.profile import SimulatorProfile


class SimulatedClock:
    """Time that passes only when somebody waits for it, and then at once."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._jobs: list[SimulatedJob] = []

    def now_s(self) -> float:
        return self._now_s

    def wait_until(self, time_s: float) -> None:
        if time_s <= self._now_s:
            return
        self._now_s = time_s
        for job in self._jobs:
            job.advance(int(time_s))

    def carry(self, job: SimulatedJob) -> None:
        """Let this job live by this clock."""
        self._jobs.append(job)


class Simulator:
    """An engine that models a cluster. Everything it says is simulated, and its name says so."""

    def __init__(
        self,
        *,
        profile: SimulatorProfile,
        rates_per_s: Floats,
        seed: int,
        report_every_s: int = 10,
        controlled: bool = True,
        deployed_for: Mechanism | None = None,
    ) -> None:
        """`controlled`: whether the controller's own resources are paid for as well.

        `deployed_for`: the mechanism by which the job is going to be changed, where it has to be deployed for that.
        """
        require(len(rates_per_s) > 0, "the simulator needs a load of at least one second")
        require(
            bool(np.isfinite(rates_per_s).all()) and float(rates_per_s.min()) >= 0.0,
            "the rates of a load must be finite and not negative",
        )
        require(report_every_s >= 1, f"reports can come every second at most, not every {report_every_s} s")
        self._profile = profile
        self._rates = np.asarray(rates_per_s, dtype=np.float64)
        self._seed = seed
        self._report_every_s = report_every_s
        self._controlled = controlled
        self._deployed_for = deployed_for
        self._clock = SimulatedClock()

    @property
    def name(self) -> str:
        return f"simulator ({self._profile.name})"

    @property
    def changes(self) -> tuple[ChangeCost, ...]:
        return self._profile.changes

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(self._profile.failures)

    @property
    def clock(self) -> SimulatedClock:
        return self._clock

    def launch(self, configuration: Configuration) -> SimulatedJob:
        """Start the job; the load begins when the clock stands at 0, so there is one job to a simulator."""
        if self._clock.now_s() > 0.0:
            raise PermanentError("the load of this simulator has begun: make a new simulator for another job")
        copier = Copier(
            profile=self._profile, rates_per_s=self._rates, seed=self._seed, deployed_for=self._deployed_for
        )
        job = SimulatedJob(
            profile=self._profile,
            rates_per_s=self._rates,
            configuration=configuration,
            seed=self._seed,
            report_every_s=self._report_every_s,
            controlled=self._controlled,
            deployed_for=self._deployed_for,
            profiler=lambda request: copier.measure(request, int(self._clock.now_s())),
        )
        self._clock.carry(job)
        return job
