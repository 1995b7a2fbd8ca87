"""Fits a simulator profile to a recorded run: the one under which the same load, changes and failures look the same.

What the run shows directly (CPU, memory, changes, failures) is read off it. What decides how late records are
(capacity, the fixed cost of a batch, the latency at rest) is found by replaying the run until the replay looks like it,
held loosely by another profile: what a run cannot tell stays as it is there, and is listed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tidewise.core import BadInputError, Configuration, JobStatus, Observation
from tidewise.engines.simulator import SimulatorProfile, load_profile, shipped_profiles
from tidewise.engines.simulator.physics import capacity_per_s
from tidewise.experiments.spark_batch_fit import neat
from tidewise.experiments.whatif_parts import (
    Parts,
    Place,
    Value,
    put_changes,
    put_cpu,
    put_failures,
    put_memory,
    put_standing,
    put_warm_up,
    running,
    value_at,
    with_value,
)
from tidewise.experiments.whatif_recording import Recording
from tidewise.experiments.whatif_replay import (
    Figure,
    Floats,
    Misfit,
    batch_period_s,
    disturbed,
    in_batches,
    misfit,
    replay,
    window_s,
    windows_of,
)
from tidewise.experiments.whatif_search import (
    CONTENTION,
    LOG_SDS,
    OFF,
    RECORDS,
    SEED,
    TINY,
    Found,
    Search,
    within,
    without_noise,
)
from tidewise.host.threads import on_one_thread
from tidewise.qos.candidates import Candidates
from tidewise.qos.evidence import Evidence, Stretches
from tidewise.qos.fit import fit
from tidewise.qos.physics import Usual, log_capacity

DRAWS = 7
HALF = 0.5
"""Of the run: what is fitted when the rest is to be foretold."""
_SPEED_SD = 1.0
"""How far off the speed may be that the CPU of records tells: the spread of its logarithm."""
_SETTLE_S = 30.0
_STRETCH_S = 60.0
_HIGH_SDS = 1.645
"""Between the middle and the end of an interval that holds 90 %."""
_LARGEST_NOISE = 0.4
_NORMAL = 1.4826
"""Standard deviation of a normal spread over its median absolute deviation."""
_FEWEST_FOR_NOISE = 10

_SHAPE: tuple[Place, ...] = (
    ("capacity", "cores_per_slot"),
    ("capacity", "slot_contention"),
    CONTENTION,
    ("capacity", "coherence"),
)
_SHAPE_SDS = (0.3, 1.0, 1.5, 2.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RunFit:
    """A profile that explains a run, others that explain it nearly as well, and how well they do."""

    profile: SimulatorProfile
    draws: tuple[SimulatorProfile, ...]
    values: tuple[Value, ...]
    assumed: tuple[str, ...]
    """What the run does not show, taken from the other profile."""
    usual: str
    """The name of that profile."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Explained:
    """How well a run is explained: all of it, and its second half by what the first one shows."""

    whole: Misfit
    second_half: Misfit
    """With outages and gaps as long as they were: how far the job itself is known."""
    calm: Misfit
    """The same, of the windows in which nothing had broken or been changed lately."""
    foretold: Misfit
    """The second half with its outages and gaps foretold as well: each failure as long as it was in the first half."""
    left_out: int
    """Recorded changes that the simulated job could not take."""


def usual_profile(recording: Recording, named: str | None) -> SimulatorProfile:
    """The profile that stands in for what a run does not show."""
    if named is not None:
        return load_profile(named)
    if not recording.is_simulated:
        return load_profile("spark-local")
    if recording.profile in shipped_profiles():
        return load_profile(recording.profile or "")
    raise BadInputError(
        f"{recording.name} was simulated with the profile {recording.profile}, which does not come with Tidewise; name "
        f"one like it: --profile FILE.toml, or one of {', '.join(shipped_profiles())}"
    )


@on_one_thread
def fit_run(
    recording: Recording, usual: SimulatorProfile, *, until_s: float | None = None, draws: int = DRAWS, seed: int = 1
) -> RunFit:
    """The profile for what was recorded up to this time, the whole run if not given."""
    end_s = float(recording.duration_s) if until_s is None else until_s
    parts = Parts(profile=usual.model_copy(update={"name": "fitted", "description": _description(recording)}))
    put_standing(parts, recording)
    speed_sd = _SPEED_SD if put_cpu(parts, recording, end_s) else LOG_SDS[RECORDS]
    put_memory(parts, recording, end_s)
    _put_shape(parts, recording, end_s)
    put_changes(parts, recording, end_s)
    put_failures(parts, recording, end_s)
    if in_batches(recording, parts.profile):
        put_warm_up(parts)
    found = Search(recording, parts.profile, end_s, speed_sd=speed_sd).found()
    for path, log, variance in zip(found.paths, found.logs, np.diag(found.covariance), strict=True):
        parts.put(path, math.exp(log), log_sd=math.sqrt(variance), basis=f"replays of {found.windows} windows")
    _put_noise(parts, recording, end_s)
    return RunFit(
        profile=_valid(parts.profile),
        draws=tuple(_draws(parts, found, _usually_ran(recording, end_s), count=draws, seed=seed)),
        values=tuple(parts.values),
        assumed=tuple(dict.fromkeys(parts.assumed)),
        usual=usual.name,
    )


def explain(recording: Recording, whole: RunFit, usual: SimulatorProfile) -> Explained:
    """Replay the run with what all of it shows, and its second half with what the first one shows."""
    middle_s = HALF * recording.duration_s
    first = fit_run(recording, usual, until_s=middle_s, draws=0)
    width_s = window_s(recording)
    recorded = windows_of(
        recording.observations,
        width_s=width_s,
        seconds=recording.duration_s,
        in_batches=in_batches(recording, usual),
    )
    of_whole = _expected(whole.profile, recording)
    of_half = _expected(first.profile, recording)
    foretold = _expected(first.profile, recording, known_until_s=middle_s)
    second = np.arange(len(recorded[Figure.BACKLOG])) >= math.ceil(middle_s / width_s)
    calm = ~disturbed(recording, width_s=width_s)
    return Explained(
        whole=misfit(recorded, of_whole.windows),
        second_half=misfit(recorded, of_half.windows, counts=second),
        calm=misfit(recorded, of_half.windows, counts=second & calm),
        foretold=misfit(recorded, foretold.windows, counts=second),
        left_out=of_whole.left_out,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Expected:
    windows: dict[Figure, Floats]
    left_out: int


def _expected(profile: SimulatorProfile, recording: Recording, *, known_until_s: float = math.inf) -> _Expected:
    """What is to be expected of each window: without noise."""
    replayed = replay(without_noise(profile), recording, seed=SEED, known_until_s=known_until_s)
    windows = windows_of(
        replayed.observations,
        width_s=window_s(recording),
        seconds=recording.duration_s,
        in_batches=in_batches(recording, profile),
    )
    return _Expected(windows=windows, left_out=replayed.left_out)


def _description(recording: Recording) -> str:
    return f"Fitted to the run {recording.name}"


# The shape of the capacity ----------------------------------------------------------------------------------------


def _put_shape(parts: Parts, recording: Recording, until_s: float) -> None:
    """How the capacity grows with executors, cores and slots, from what the settled job showed of it."""
    capacity = parts.profile.capacity
    evidence = [one for one in _evidence(recording, until_s) if one.full_rate_per_s is not None]
    different = {one.configuration for one in evidence}
    usual = (
        Usual(median=capacity.records_per_core_s, log_sd=LOG_SDS[RECORDS]),
        *(
            Usual(median=max(TINY, value_at(parts.profile, path)), log_sd=log_sd)
            for path, log_sd in zip(_SHAPE, _SHAPE_SDS, strict=True)
        ),
    )
    if evidence:
        candidates = Candidates.listing([one.configuration for one in evidence])
        seen = np.log([one.full_rate_per_s or 1.0 for one in evidence])
        law = fit(
            lambda logs: log_capacity(candidates, logs),
            seen,
            np.full(len(seen), OFF),
            usual,
            is_bound=np.array([one.at_least for one in evidence]),
        )
        if not in_batches(recording, parts.profile):
            parts.profile = with_value(parts.profile, RECORDS, math.exp(law.logs[0]))
        if len(different) > 1:
            for path, log, log_sd in zip(_SHAPE, law.logs[1:], np.sqrt(np.diag(law.covariance))[1:], strict=True):
                if value_at(parts.profile, path) > 0.0:
                    basis = f"{len(different)} configurations"
                    parts.put(path, math.exp(log), log_sd=float(log_sd), basis=basis)
    if len({one.executors for one in recording.configurations}) < 2:
        parts.assumed.append("how the capacity grows with executors: only one number of them was seen")
    if len({one.slots_per_executor for one in recording.configurations}) < 2:
        parts.assumed.append("what further slots on an executor bring")


def _evidence(recording: Recording, until_s: float) -> list[Evidence]:
    gathered = Stretches(settle_s=0.0 if recording.is_simulated else _SETTLE_S, shortest_s=_STRETCH_S)
    found = (gathered.add(one) for one in recording.observations if one.time_s <= until_s)
    return [one for one in found if one is not None]


# Noise ------------------------------------------------------------------------------------------------------------


def _put_noise(parts: Parts, recording: Recording, until_s: float) -> None:
    """What jumps from one report to the next beyond what the replay without noise does."""
    quiet = without_noise(parts.profile)
    made = replay(quiet, recording, seed=SEED, until_s=math.floor(until_s)).observations
    seen = running(recording, until_s)
    recorded, simulated = _jumps(seen), _jumps(made)
    if recorded is None:
        parts.assumed.append("how much latencies vary from one report to the next")
        return
    excess = math.sqrt(max(0.0, recorded**2 - (simulated or 0.0) ** 2))
    noise = {"capacity": 0.0, "latency": excess}
    if parts.profile.batch is not None:
        late = [(one.latency_p50_s, batch_period_s(one)) for one in seen if one.latency_p50_s is not None]
        batch_share = float(
            np.median([max(0.2, 1.0 - 0.5 * period_s / p50_s) for p50_s, period_s in late if p50_s > 0])
        )
        noise = {"capacity": 0.0, "latency": 0.0, "batch": excess / batch_share}
    else:
        noise["capacity"] = parts.profile.capacity.noise_share
    for part, share in noise.items():
        parts.profile = with_value(parts.profile, (part, "noise_share"), min(_LARGEST_NOISE, share))


def _jumps(reports: Sequence[Observation]) -> float | None:
    """Spread of the logarithm of the median latency around its neighbours; None where too few are known."""
    steps = [
        math.log(later.latency_p50_s / earlier.latency_p50_s)
        for earlier, later in pairwise(reports)
        if earlier.latency_p50_s
        and later.latency_p50_s
        and earlier.status is later.status is JobStatus.RUNNING
        and earlier.configuration == later.configuration
    ]
    if len(steps) < _FEWEST_FOR_NOISE:
        return None
    return _NORMAL * float(np.median(np.abs(steps))) / math.sqrt(2.0)


# Draws ------------------------------------------------------------------------------------------------------------


def _draws(parts: Parts, found: Found, usually_ran: Configuration, *, count: int, seed: int) -> list[SimulatorProfile]:
    """Profiles that explain the run about as well: what was searched for together, the rest each for itself."""
    random, paths = np.random.default_rng([seed, 7]), found.paths
    drawn = []
    for number in range(1, count + 1):
        profile = parts.profile.model_copy(update={"name": f"fitted-{number}"})
        for path, log in zip(paths, random.multivariate_normal(found.logs, found.covariance), strict=True):
            profile = with_value(profile, path, within(path, math.exp(log)))
        searched = profile
        for value in parts.values:
            if value.path not in paths:
                factor = math.exp(value.log_sd * float(random.standard_normal()))
                profile = with_value(profile, value.path, within(value.path, value.value * factor))
        drawn.append(_valid(_as_fast(profile, searched, usually_ran)))
    return drawn


def _as_fast(profile: SimulatorProfile, searched: SimulatorProfile, configuration: Configuration) -> SimulatorProfile:
    """With the capacity that was searched for where it was seen: what slots bring moves that of others only."""
    now, before = (capacity_per_s(one.capacity, configuration, configuration.executors) for one in (profile, searched))
    return with_value(profile, RECORDS, value_at(profile, RECORDS) * before / now)


def _usually_ran(recording: Recording, until_s: float) -> Configuration:
    """The configuration of most reports."""
    return Counter(one.configuration for one in recording.observations if one.time_s <= until_s).most_common(1)[0][0]


def _valid(profile: SimulatorProfile) -> SimulatorProfile:
    """The same profile with no more digits than a run bears, checked like one that was read from a file."""
    return SimulatorProfile.model_validate(_neat(profile.model_dump()))


def _neat(value: object) -> object:
    if isinstance(value, dict):
        return {name: _neat(inner) for name, inner in value.items()}
    if isinstance(value, float):
        return neat(value, digits=4)
    return [_neat(inner) for inner in value] if isinstance(value, list | tuple) else value


def interval(value: Value) -> tuple[float, float]:
    """Between which two values a parameter lies with 90 %."""
    factor = math.exp(_HIGH_SDS * value.log_sd)
    return within(value.path, value.value / factor), within(value.path, value.value * factor)
