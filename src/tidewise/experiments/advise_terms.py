"""On what terms a policy is asked for advice: what the job may become, what it has to keep, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError

from tidewise.control import GuardSettings, LoopSettings
from tidewise.core import (
    BadInputError,
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    InvalidValueError,
    Policy,
    Prices,
    Promises,
)
from tidewise.engines.simulator import load_profile
from tidewise.engines.spark.engine import offered_changes
from tidewise.engines.spark.latency import LatencyChoice
from tidewise.experiments.explain_run import RecordedRun
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.plan import ControlTable, PolicyTable, SpaceTable
from tidewise.experiments.plan_checks import check_policy, refuse_hindsight
from tidewise.experiments.policy_words import policy_of, words_of_policy
from tidewise.policies import make_policy

DEFAULT_POLICY = "tidewise"
"""The policy that is asked where nobody names one."""
_SHORTFALL_S = 60.0
"""Executors of a program that nobody controls count as gone after so long: nobody means it to have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Everything that advice depends on besides the reports."""

    label: str
    """What the policy is called."""
    policy: Callable[[], Policy]
    """A fresh one."""
    space: ConfigurationSpace
    promises: Promises
    prices: Prices
    settings: LoopSettings
    guard_settings: GuardSettings
    report_every_s: float
    latency: LatencyChoice = LatencyChoice.AUTO

    def seen_as(self, seen: Configuration) -> Configuration:
        """What an event log shows, in the words of the space: only executors are counted, the rest is the nearest."""
        return self.space.nearest(seen).with_executors(seen.executors)


def terms_of_job(file: JobFile) -> Terms:
    """As a job file has them."""
    control = file.table.control
    return Terms(
        label=file.label,
        policy=partial(file.policy, file.similar()),
        space=file.space,
        promises=file.promises,
        prices=file.prices,
        settings=replace(control.loop_settings(), shortfall_s=_SHORTFALL_S),
        guard_settings=control.guard_settings(),
        report_every_s=control.report_every,
        latency=file.table.latency,
    )


def terms_of_options(
    *,
    runs: Configuration,
    executors: str,
    promises: Promises,
    prices: Prices,
    policy: str | None,
) -> Terms:
    """For a program of which there is no job file: all but its executors stays as it runs."""
    try:
        counts = SpaceTable.model_validate({"executors": _range(executors)}).executors
        space = ConfigurationSpace(
            executors=counts,
            slots_per_executor=(runs.slots_per_executor,),
            cores_per_executor=(runs.cores_per_executor,),
            memory_mib_per_executor=(runs.memory_mib_per_executor,),
            commit_interval_s=(runs.commit_interval_s,),
            state_partitions=(runs.state_partitions,),
            changes=offered_changes(handover=False, repartitions=False),
        )
    except ValidationError as error:
        raise BadInputError(
            f"--executors {executors}: {error.errors()[0]['msg'].removeprefix('Value error, ')}"
        ) from error
    except InvalidValueError as error:
        raise BadInputError(f"--executors {executors}: {error}") from error
    table, control = policy_of(policy or DEFAULT_POLICY), ControlTable()
    terms = _terms(table, control, space=space, promises=promises, prices=prices)
    return replace(terms, settings=replace(terms.settings, shortfall_s=_SHORTFALL_S))


def _range(text: str) -> object:
    return int(text) if text.isdecimal() else text


def terms_of_run(run: RecordedRun, *, policy: str | None) -> Terms:
    """As a run was recorded; BadInputError where it does not say what the job may become."""
    plan = _plan(run)
    promises, prices = run.promises, run.prices
    if promises is None or prices is None or "space" not in plan or "control" not in plan:
        raise BadInputError(f"{run.folder} does not say what the job may become; there is nothing to advise")
    # As it was dumped: durations and memory are numbers again, which nobody would write.
    values: dict[str, Any] = {key: _tuple(value) for key, value in plan["space"].items()}
    space = SpaceTable.model_construct(**values).space(_changes(run, plan))
    control = ControlTable.model_construct(**plan["control"])
    return _terms(_policy_table(plan, policy), control, space=space, promises=promises, prices=prices)


def _terms(
    table: PolicyTable, control: ControlTable, *, space: ConfigurationSpace, promises: Promises, prices: Prices
) -> Terms:
    """With a policy that is checked against the space."""
    refuse_hindsight(table)
    check_policy(table, space=space, start=space.largest, offers="this job")
    return Terms(
        label=table.label,
        policy=lambda: make_policy(table.policy, table.settings),
        space=space,
        promises=promises,
        prices=prices,
        settings=control.loop_settings(),
        guard_settings=control.guard_settings(),
        report_every_s=control.report_every,
    )


def _plan(run: RecordedRun) -> Mapping[str, Any]:
    """What was to be done, as plain data."""
    if run.record is not None:
        return run.record.plan
    if run.job is not None:
        return run.job.model_dump(mode="json")
    raise BadInputError(
        f"{run.folder} does not say yet what the job may become: wait until the run is over, or name that of a "
        "`tidewise run`, which says it from the beginning"
    )


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _changes(run: RecordedRun, plan: Mapping[str, Any]) -> tuple[ChangeCost, ...]:
    """The mechanisms that the engine of the run offered."""
    if run.record is not None and run.record.profile is not None:
        return load_profile(run.record.profile).changes
    partitions = plan["space"].get("state_partitions")
    # Plans on real Spark run jobs of Tidewise's own, which may run beside themselves.
    return offered_changes(handover=bool(plan.get("handover", True)), repartitions=len(partitions or ()) > 1)


def _policy_table(plan: Mapping[str, Any], policy: str | None) -> PolicyTable:
    """The one that was named, or else the default, with its settings where the run has it too."""
    tables = plan.get("policies") or [plan.get("policy")]
    found = [PolicyTable.model_validate(table) for table in tables if isinstance(table, dict)]
    text = policy or DEFAULT_POLICY
    name, given = words_of_policy(text)
    recorded = None if given else next((table for table in found if name in {table.label, table.policy}), None)
    return recorded or policy_of(text)
