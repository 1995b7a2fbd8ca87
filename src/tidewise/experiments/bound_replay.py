"""A sequence of configurations run in the simulator, without a controller: what it really takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import (
    ChangeRequest,
    ImpossibleChangeError,
    Origin,
    Prices,
    Reason,
    TemporaryError,
    total,
)
from tidewise.engines.simulator import Simulator, SimulatorProfile
from tidewise.experiments.bound_path import Stage
from tidewise.experiments.fixed_run import series_of
from tidewise.experiments.measures import bad_seconds, recoveries_of
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.series import FloatArray

_REASON = Reason(code="hindsight", sentence="This is the cheapest for the load and the failures that are to come.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a sequence took and gave in the simulator."""

    stages: tuple[Stage, ...]
    """Those that came about: a change that is asked for while another is on is not heard."""
    core_hours: float
    """Everything included."""
    gib_hours: float
    money: float
    bad_s: int
    recovery_s: float
    """The longest, as far as it was seen; 0: nothing failed, or nothing was felt."""

    @property
    def changes(self) -> int:
        return len(self.stages) - 1


def replay(
    stages: Sequence[Stage],
    *,
    profile: SimulatorProfile,
    rates_per_s: FloatArray,
    faults: Sequence[FaultRecord],
    seed: int,
    limit_s: float,
    on_p95: bool,
    prices: Prices,
    controlled: bool = True,
) -> Replayed:
    """Run a sequence; `limit_s`: the latency up to which a second is good."""
    mechanisms = {stage.mechanism for stage in stages if stage.mechanism is not None}
    simulator = Simulator(
        profile=profile,
        rates_per_s=rates_per_s,
        seed=seed,
        report_every_s=len(rates_per_s) + 1,
        controlled=controlled,
        deployed_for=next(iter(mechanisms)) if len(mechanisms) == 1 else None,
    )
    job = simulator.launch(stages[0].configuration)
    happenings: list[tuple[float, int, Stage | FaultRecord]] = [(fault.at_s, 0, fault) for fault in faults]
    happenings += [(stage.requested_at_s, 1, stage) for stage in stages[1:]]
    made = [stages[0]]
    for at_s, _, what in sorted(happenings, key=lambda one: one[:2]):
        simulator.clock.wait_until(at_s)
        if isinstance(what, FaultRecord):
            job.inject(what.kind)
        elif what.mechanism is not None and what.configuration != job.observed():
            request = ChangeRequest(
                request_id=f"change-{len(made)}",
                origin=Origin.POLICY,
                source=job.observed(),
                target=what.configuration,
                mechanism=what.mechanism,
                requested_at_s=at_s,
                deadline_s=float(len(rates_per_s)) + at_s,
                reason=_REASON,
            )
            try:
                job.change(request)
            except (TemporaryError, ImpossibleChangeError):
                continue
            made.append(what)
    simulator.clock.wait_until(float(len(rates_per_s)))
    series = series_of(job.series())
    latency_s = series.latency_p95_s if on_p95 else series.latency_p50_s
    bad = bad_seconds(series, latency_s, limit_s)
    used = total(job.meter())
    return Replayed(
        stages=tuple(made),
        core_hours=used.core_s / 3600,
        gib_hours=used.memory_mib_s / 1024 / 3600,
        money=prices.cost(core_s=used.core_s, memory_mib_s=used.memory_mib_s),
        bad_s=int(bad.sum()),
        recovery_s=max((recovery.at_least_s for recovery in recoveries_of(faults, series)), default=0.0),
    )
