"""A plan made concrete: the profile, the space, the loads and the policies it names, checked before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidewise.core import (
    BadInputError,
    Configuration,
    ConfigurationSpace,
    Forecaster,
    Mechanism,
    Policy,
    Prices,
    Promises,
)
from tidewise.engines.simulator import SimulatorProfile, load_profile
from tidewise.experiments.fixed_run import fault_schedule
from tidewise.experiments.hindsight import Hindsight
from tidewise.experiments.plan import LoadTable, Plan, PolicyTable, check_start, read_plan, with_files
from tidewise.experiments.plan_checks import (
    able_to_scale,
    check_failure_kinds,
    check_failure_times,
    check_label,
    check_policy,
    named_mechanism,
    start_of,
)
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.toml_file import TomlFile
from tidewise.forecast import Naive, make_forecaster
from tidewise.policies import BestFixed, Static, Tidewise, make_policy
from tidewise.workload import Load, Rates


@dataclass(frozen=True, kw_only=True, eq=False)
class Ground:
    """A load of the plan, and the job that it is offered to."""

    table: LoadTable
    load: Load
    profile: SimulatorProfile
    promises: Promises
    space: ConfigurationSpace
    load_digest: str
    """Names these very rates, so that two loads of one name can be told apart."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One load with one seed and its failures, the same for every policy."""

    ground: Ground
    seed: int
    rates_per_s: Rates
    faults: tuple[FaultRecord, ...]
    hindsight: Hindsight


class Experiment:
    """Everything a plan needs; building it finds what is wrong with the plan, with the line in its file.

    It can be pickled: whoever runs a part of it elsewhere takes all of it along.
    """

    def __init__(self, path: Path, *, files: Mapping[str, Path] | None = None) -> None:
        """`files`: traces to read instead of what the plan says, by the name of the load."""
        self._file = TomlFile(path)
        self.plan: Plan = with_files(read_plan(self._file), files or {})
        if self.plan.engine != "simulator":
            raise self._file.wrong(("engine",), "this plan is for real Spark, and cannot be simulated as it is")
        self.prices: Prices = self.plan.prices.prices()
        self._grounds = {
            table.name: self._ground(index, table, path.parent) for index, table in enumerate(self.plan.loads)
        }
        space = next(iter(self._grounds.values())).space  # those of other loads differ in their mechanisms only
        with self._file.at("start"):
            self.start: Configuration = self.plan.start.configuration(space)
        check_start(self._file, self.start, space, self.plan.control)
        self._check_failures()
        for index, policy in enumerate(self.plan.policies):
            with self._file.at("policies", index):
                self._check_policy(policy)

    @property
    def duration_s(self) -> int:
        return int(self.plan.duration)

    @property
    def run_count(self) -> int:
        return len(self.plan.loads) * len(self.plan.seeds) * len(self.plan.policies)

    def ground(self, load: str) -> Ground:
        """The load of this name, with its job."""
        return self._grounds[load]

    def trial(self, load: str, seed: int) -> Trial:
        """The load with everything that this seed makes of it."""
        ground = self._grounds[load]
        rates = ground.load.rates_per_s(self.duration_s, seed)
        faults = self.faults(seed)
        return Trial(
            ground=ground,
            seed=seed,
            rates_per_s=rates,
            faults=faults,
            hindsight=Hindsight(
                profile=ground.profile,
                rates_per_s=rates,
                seed=seed,
                faults=faults,
                space=ground.space,
                promises=ground.promises,
                prices=self.prices,
            ),
        )

    def faults(self, seed: int) -> tuple[FaultRecord, ...]:
        """The failures of every load with this seed."""
        return fault_schedule(self.plan.failures, self.duration_s, seed)

    def check(self, load: str, seed: int) -> None:
        """BadInputError where no configuration could keep the promises on this load."""
        trial = self.trial(load, seed)
        with self._file.at("loads", list(self._grounds).index(load)):
            if not np.any(trial.rates_per_s > 0):
                raise BadInputError(f"the load {load!r} is zero in every second")
            trial.hindsight.refuse_the_impossible(load, self.start)

    def start_of(self, policy: Policy) -> Configuration:
        """What a run begins with: where a policy holds one configuration, that one."""
        return start_of(policy, self.start)

    def policy(self, table: PolicyTable, trial: Trial) -> Policy:
        """The policy of a run; best-fixed looks at the load of this very trial."""
        if table.policy == BestFixed.name:
            best = trial.hindsight.cheapest()
            if best is None:
                raise BadInputError(f"no configuration keeps the promises on the load {trial.ground.table.name!r}")
            return BestFixed(configuration=best)
        return make_policy(table.policy, table.settings)

    def _ground(self, index: int, table: LoadTable, folder: Path) -> Ground:
        where = ("loads", index, "profile") if table.profile is not None else ("profile",)
        with self._file.at(*where):
            named = table.profile or self.plan.profile
            if named is None:
                raise BadInputError('profile is missing: what the simulator is to behave like, such as "spark-local"')
            profile = _profile(named, folder)
        with self._file.at("space"):
            space = self.plan.space.space(profile.changes)
        with self._file.at("loads", index):
            load = table.load(folder)
            load.rates_per_s(self.duration_s, self.plan.seeds[0])
            digest = _digest(load, self.duration_s)
        promises = (table.promises or self.plan.promises).promises()
        return Ground(table=table, load=load, profile=profile, promises=promises, space=space, load_digest=digest)

    def _check_policy(self, table: PolicyTable) -> None:
        check_label(table)
        if table.policy == BestFixed.name:
            if table.settings:
                raise BadInputError(f"best-fixed has no settings, but {', '.join(table.settings)} was given")
            return
        for ground in self._grounds.values():
            check_policy(table, space=ground.space, start=self.start, offers=f"the profile {ground.profile.name}")

    def _check_failures(self) -> None:
        failures = self.plan.failures
        if failures is None:
            return
        for profile in (ground.profile for ground in self._grounds.values()):
            check_failure_kinds(self._file, failures, known=profile.failures, knows=f"the profile {profile.name}")
        check_failure_times(self._file, failures)


def _profile(name: str, folder: Path) -> SimulatorProfile:
    return load_profile(str(folder / name) if name.endswith(".toml") else name)


def changes_the_job(policy: Policy) -> bool:
    """Whether this policy ever moves a job away from where it started."""
    return not isinstance(policy, Static | BestFixed)


def forecaster_of(policy: Policy) -> Forecaster | None:
    """The forecaster that this policy plans with, as it names it; the plainest one where it names none.

    None for a policy that never changes anything.
    """
    if not changes_the_job(policy):
        return None
    if isinstance(policy, Tidewise):
        return make_forecaster(policy.forecaster, sample_s=policy.sample_s)
    return Naive()


def deployed_for(policy: Policy, space: ConfigurationSpace) -> Mechanism | None:
    """The mechanism that carries this policy's changes of executors; None where nobody changes the job."""
    if not changes_the_job(policy):
        return None
    return named_mechanism(policy) or next(iter(able_to_scale(space)), None)


def _digest(load: Load, duration_s: int) -> str:
    # Rounded: the last bits of a float are no other load.
    return hashlib.sha256(load.rates_per_s(duration_s, 0).round(6).tobytes()).hexdigest()[:12]
