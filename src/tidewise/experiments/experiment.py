"""A plan made concrete: the profile, the space, the loads and the policies it names, checked before anything runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tidewise.core import (
    REACH,
    BadInputError,
    Configuration,
    ConfigurationSpace,
    Mechanism,
    Parameter,
    Policy,
    Prices,
    Promises,
    format_duration,
)
from tidewise.core.readers import did_you_mean
from tidewise.engines.simulator import SimulatorProfile, load_profile
from tidewise.experiments.fixed_run import fault_schedule
from tidewise.experiments.hindsight import Hindsight
from tidewise.experiments.plan import LoadTable, Plan, PolicyTable, check_start, read_plan
from tidewise.experiments.record import FaultRecord
from tidewise.experiments.toml_file import TomlFile
from tidewise.policies import BestFixed, Static, make_policy, policy_names
from tidewise.workload import Load, Rates


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One load with one seed and its failures, the same for every policy."""

    load: str
    load_digest: str
    """Names these very rates, so that two loads of one name can be told apart."""
    seed: int
    rates_per_s: Rates
    faults: tuple[FaultRecord, ...]
    hindsight: Hindsight


class Experiment:
    """Everything a plan needs; building it finds what is wrong with the plan, with the line in its file."""

    def __init__(self, path: Path) -> None:
        self._file = TomlFile(path)
        self.plan: Plan = read_plan(self._file)
        with self._file.at("profile"):
            name = self.plan.profile
            local = path.parent / name
            self.profile: SimulatorProfile = load_profile(str(local) if name.endswith(".toml") else name)
        self.promises: Promises = self.plan.promises.promises()
        self.prices: Prices = self.plan.prices.prices()
        with self._file.at("space"):
            self.space: ConfigurationSpace = self.plan.space.space(self.profile.changes)
        with self._file.at("start"):
            self.start: Configuration = self.plan.start.configuration(self.space)
        check_start(self._file, self.start, self.space, self.plan.control)
        self._check_failures()
        self._loads: list[tuple[LoadTable, Load]] = []
        for index, table in enumerate(self.plan.loads):
            with self._file.at("loads", index):
                load = table.load(path.parent)
                load.rates_per_s(self.duration_s, self.plan.seeds[0])
                self._loads.append((table, load))
        for index, policy in enumerate(self.plan.policies):
            with self._file.at("policies", index):
                self._check_policy(policy)

    @property
    def duration_s(self) -> int:
        return int(self.plan.duration)

    @property
    def run_count(self) -> int:
        return len(self.plan.loads) * len(self.plan.seeds) * len(self.plan.policies)

    def trials(self) -> Iterator[Trial]:
        """Load by load and seed by seed; BadInputError where no configuration could keep the promises on a load."""
        for index, (table, load) in enumerate(self._loads):
            digest = _digest(load, self.duration_s)
            for seed in self.plan.seeds:
                rates = load.rates_per_s(self.duration_s, seed)
                faults = fault_schedule(self.plan.failures, self.duration_s, seed)
                hindsight = Hindsight(
                    profile=self.profile,
                    rates_per_s=rates,
                    seed=seed,
                    faults=faults,
                    space=self.space,
                    promises=self.promises,
                    prices=self.prices,
                )
                with self._file.at("loads", index):
                    if not np.any(rates > 0):
                        raise BadInputError(f"the load {table.name!r} is zero in every second")
                    hindsight.refuse_the_impossible(table.name, self.start)
                yield Trial(
                    load=table.name,
                    load_digest=digest,
                    seed=seed,
                    rates_per_s=rates,
                    faults=faults,
                    hindsight=hindsight,
                )

    def start_of(self, policy: Policy) -> Configuration:
        """What a run begins with: where a policy holds one configuration, that one."""
        if isinstance(policy, BestFixed):
            return policy.configuration
        if isinstance(policy, Static) and policy.executors is not None:
            return self.start.with_executors(policy.executors)
        return self.start

    def policy(self, table: PolicyTable, trial: Trial) -> Policy:
        """The policy of a run; best-fixed looks at the load of this very trial."""
        if table.policy == BestFixed.name:
            best = trial.hindsight.cheapest()
            if best is None:
                raise BadInputError(f"no configuration keeps the promises on the load {trial.load!r}")
            return BestFixed(configuration=best)
        return make_policy(table.policy, table.settings)

    def _check_policy(self, table: PolicyTable) -> None:
        if table.policy == BestFixed.name:
            if table.settings:
                raise BadInputError(f"best-fixed has no settings, but {', '.join(table.settings)} was given")
            return
        if table.label != table.policy and table.label in policy_names():
            raise BadInputError(f"{table.label!r} is the name of another policy; call this one something else")
        policy = make_policy(table.policy, table.settings)
        if isinstance(policy, Static) and policy.executors is not None:
            start = self.start.with_executors(policy.executors)
            if start not in self.space:
                raise BadInputError(f"static is to hold {start}, which is not in the space")
        mechanism = named_mechanism(policy)
        offered = [cost.mechanism for cost in self.space.changes]
        if mechanism is not None and mechanism not in offered:
            raise BadInputError(
                f"policy {table.label!r} names the mechanism {mechanism}; the profile {self.profile.name} offers "
                f"only {', '.join(offered)}"
            )

    def _check_failures(self) -> None:
        failures = self.plan.failures
        if failures is None:
            return
        with self._file.at("failures", "kind"):
            if failures.kind not in self.profile.failures:
                hint = did_you_mean(failures.kind, self.profile.failures)
                raise BadInputError(f"the profile {self.profile.name} knows no failure {failures.kind!r}{hint}")
        with self._file.at("failures", "every"):
            if failures.every < 1 or failures.jitter < 0:
                raise BadInputError("failures need an interval of at least 1s and a jitter of at least 0s")
            if failures.jitter > failures.every:
                raise BadInputError(
                    f"a jitter of {format_duration(failures.jitter)} is longer than the "
                    f"{format_duration(failures.every)} from one failure to the next, so they could change places; "
                    "make it shorter"
                )


def named_mechanism(policy: Policy) -> Mechanism | None:
    """The mechanism that a policy was told to use; None where it leaves that to the engine."""
    mechanism = getattr(policy, "mechanism", None)
    return mechanism if isinstance(mechanism, Mechanism) else None


def changes_the_job(policy: Policy) -> bool:
    """Whether this policy ever moves a job away from where it started."""
    return not isinstance(policy, Static | BestFixed)


def deployed_for(policy: Policy, space: ConfigurationSpace) -> Mechanism | None:
    """The mechanism that carries this policy's changes of executors; None where nobody changes the job."""
    if not changes_the_job(policy):
        return None
    able = (cost.mechanism for cost in space.changes if Parameter.EXECUTORS in REACH[cost.mechanism])
    return named_mechanism(policy) or next(able, None)


def _digest(load: Load, duration_s: int) -> str:
    # Rounded: the last bits of a float are no other load.
    return hashlib.sha256(load.rates_per_s(duration_s, 0).round(6).tobytes()).hexdigest()[:12]
