"""TidalScale as a service: decides for every job from what is told of it and from the forecasts that others tell.

The policy is the one of the control loop. Here it sees topics only: its forecasts come from `forecast`, the table of
what was coped with from the reports in `metrics`, and whether a change is on from what the reports show running.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from tidewise.core import (
    BadInputError,
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    Decision,
    InvalidValueError,
    JobStatus,
    Mechanism,
    Observation,
    Prices,
    Promises,
    Reconfigure,
    Situation,
)
from tidewise.core.saved import check_format, damage_told
from tidewise.experiments.forecast_service import FORECAST_KIND, FORGET_AFTER_S, SANE, RunClock
from tidewise.experiments.tidalscale_changes import CONFIGURATION, PERFORMING, Changes
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.per_job import JobRow, PerJob
from tidewise.pipeline.per_job_query import PerJobService
from tidewise.policies.tidal_predictions import Predicted
from tidewise.policies.tidalscale import TidalScale

DECISIONS_TOPIC = "decisions"
_FORMAT = 1
"""The version of what is saved."""
_PROMISES = Promises(recovery_s=3600.0)
"""TidalScale does not ask what was promised."""
_CHANGES = (ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0),)
"""How the executors are changed is up to whoever reads the decisions."""
_RATES = ("load_per_s", "input_rate_per_s", "processed_rate_per_s", "backlog_records")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSettings:
    """Between what executors is chosen, and how; TidalScale's where nothing else is said."""

    least_executors: int = 1
    most_executors: int = 20
    cooldown_s: float = 180.0
    lag_s: float = 1.0
    change_within_s: float = 180.0
    """What was decided is asked for again where nobody has done it by then."""

    def __post_init__(self) -> None:
        if not 1 <= self.least_executors < self.most_executors:
            raise BadInputError(
                f"there is nothing to decide between {self.least_executors} and {self.most_executors} executors: "
                f"write a smaller number, 1 at least, and then a larger one"
            )
        if not self.change_within_s > 0.0:
            raise BadInputError(f"a change takes more than {self.change_within_s:g} s: write a time above 0")
        try:
            self.policy()
        except InvalidValueError as wrong:
            raise BadInputError(f"TidalScale cannot be set up: {wrong}") from wrong

    def policy(self) -> TidalScale:
        """A new one, which knows nothing yet."""
        return TidalScale(cooldown_s=self.cooldown_s, lag_s=self.lag_s)

    def space(self, like: Configuration) -> ConfigurationSpace:
        """The executors to choose between, all else as it is."""
        return _space(self.least_executors, self.most_executors, like.with_executors(1))


@lru_cache(maxsize=1024)
def _space(least: int, most: int, like: Configuration) -> ConfigurationSpace:
    return ConfigurationSpace(
        executors=tuple(range(least, most + 1)),
        slots_per_executor=(like.slots_per_executor,),
        cores_per_executor=(like.cores_per_executor,),
        memory_mib_per_executor=(like.memory_mib_per_executor,),
        commit_interval_s=(like.commit_interval_s,),
        state_partitions=(like.state_partitions,),
        changes=_CHANGES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Performed:
    """What a job was seen to cope with in one configuration."""

    configuration: Configuration
    cpu_share: float
    load_per_s: float


Known = Mapping[str, tuple[Performed, ...]]
"""What was seen of each job before the service began."""
_NOTHING: Known = {}
_HEALTHY_SHARE = 0.8
"""A configuration in which a job coped for less of its time says nothing of what it copes with."""
_PERFORMED = (
    f"healthy_s >= {_HEALTHY_SHARE} * window_s AND cpu_share BETWEEN 0 AND 1 AND load_per_s > 0 AND load_per_s < 1e15"
)


def known_loads(tables: Path, *, master: str = "local[*]") -> Known:
    """The historic performance table of all jobs; what ran last comes first, where programs differ."""
    # An optional extra: only those who stream need PySpark.
    from tidewise.pipeline.telemetry_tables import open_tables  # noqa: PLC0415 - the same

    with spark_session(master) as session:
        seen = open_tables(session, tables)["performance"].where(_PERFORMED).orderBy("last_unix_s", ascending=False)
        rows = [row.asDict() for row in seen.select("job", *PERFORMING, "cpu_share", "load_per_s").collect()]
    return loads_of(rows)


def loads_of(rows: Iterable[Mapping[str, Any]]) -> Known:
    """The rows of the table `performance`, by job; those of configurations that no job can have are left out."""
    known: dict[str, tuple[Performed, ...]] = {}
    for row in rows:
        with suppress(InvalidValueError):
            runs = Configuration(**{name: row[name] for name in PERFORMING})
            seen = Performed(configuration=runs, cpu_share=row["cpu_share"], load_per_s=row["load_per_s"])
            known[row["job"]] = (*known.get(row["job"], ()), seen)
    return known


class _Told:
    """What the topic of forecasts said last."""

    def __init__(self) -> None:
        self.per_s: float | None = None
        self.error: float | None = None
        self.weight_short = 0.5
        self.for_unix_s = 0.0
        self.now_unix_s = 0.0
        """When the last report was."""

    def learn(self, observation: Observation) -> None:
        """Others learn."""

    def predicted(self) -> Predicted:
        """What was told, unless the time it was told for is over."""
        per_s = self.per_s if self.now_unix_s <= self.for_unix_s else None
        return Predicted(per_s=per_s, error=self.error, weight_short=self.weight_short)

    def take(self, row: JobRow) -> None:
        """The next forecast."""
        self.per_s, self.error, self.for_unix_s = row["per_s"], row["error"], row["for_unix_s"]
        self.weight_short = 0.5 if row["weight"] is None else row["weight"]


class JobDecisions:
    """The decisions for one job: one after every report, of which those are told that say something new."""

    def __init__(self, settings: DecisionSettings, known: Known = _NOTHING) -> None:
        """`known`: the loads to begin with, before the job's own reports show any."""
        self._settings = settings
        self._known = known
        self._clock = RunClock()
        self._told = _Told()
        self._policy = settings.policy()
        self._policy.listen_to(self._told)
        self._changes = Changes(within_s=settings.change_within_s)
        self._said: tuple[str, int | None, str] | None = None
        """The last decision that was told: its kind, the executors it asks for and its code."""
        self._line = 0

    def take(self, rows: list[JobRow]) -> list[dict[str, object]]:
        """The decisions to tell after these reports and forecasts."""
        answers = []
        for row in rows:
            if row["kind"] == FORECAST_KIND:
                self._told.take(row)
                continue
            decision = self.decide(row)
            target = decision.target.executors if isinstance(decision, Reconfigure) else None
            says = decision.kind, target, decision.reason.code
            if says != self._said or isinstance(decision, Reconfigure):
                self._said = says
                answers.append(self._answer(row, decision, target))
        return answers

    def decide(self, row: JobRow) -> Decision:
        """Learn from one report, and decide after it."""
        observation = _observation(row, self._clock)
        now_s, runs = observation.time_s, observation.configuration
        self._told.now_unix_s = row["at_unix_s"]
        if self._changes.intended is None:
            self._begin(str(row["job"]), runs)
        self._changes.see(observation)
        self._policy.learn(observation)
        decision = self._policy.decide(
            Situation(
                now_s=now_s,
                history=(observation,),
                observed=runs,
                intended=self._changes.intended or runs,
                requested=self._changes.asked,
                last_change_finished_at_s=self._changes.finished_s,
                forecast=None,
                profiles=(),
                space=self._settings.space(runs),
                promises=_PROMISES,
                prices=Prices(),
            )
        )
        if isinstance(decision, Reconfigure):
            self._changes.ask(decision.target, now_s)
        return decision

    def save(self) -> str:
        """Everything, as one line."""
        told = self._told
        return json.dumps(
            {
                "format": _FORMAT,
                "policy": self._policy.save(),
                "changes": self._changes.to_plain(),
                "told": [told.per_s, told.error, told.weight_short, told.for_unix_s, told.now_unix_s],
                "zero_unix_s": self._clock.zero_unix_s,
                "said": self._said,
                "line": self._line,
            }
        )

    def load(self, text: str) -> None:
        """Go on where `save` stood; BadInputError where that is something else."""
        saved, told = json.loads(text), self._told
        check_format(saved, version=_FORMAT, what="the saved decisions have", instead="let them learn anew")
        with damage_told(what="the saved decisions are", instead="let them learn anew"):
            self._policy.load(saved["policy"])
            self._changes.from_plain(saved["changes"])
            told.per_s, told.error, told.weight_short, told.for_unix_s, told.now_unix_s = saved["told"]
            self._clock.zero_unix_s = saved["zero_unix_s"]
            self._said = None if saved["said"] is None else tuple(saved["said"])
            self._line = int(saved["line"])

    def _begin(self, job: str, runs: Configuration) -> None:
        for seen in self._known.get(job, ()):
            ran = replace(seen.configuration, state_partitions=runs.state_partitions)
            if ran.with_executors(1) == runs.with_executors(1):
                self._policy.remember(ran, cpu_share=seen.cpu_share, load_per_s=seen.load_per_s)

    def _answer(self, row: JobRow, decision: Decision, target: int | None) -> dict[str, object]:
        self._line += 1
        return {
            "topic": DECISIONS_TOPIC,
            # One that starts anew numbers anew, and begins at another time; see PerJobService for other states.
            "run": f"{DECISIONS_TOPIC}-{self._clock.zero_unix_s}",
            "line": self._line,
            "at_unix_s": row["at_unix_s"],
            "kind": decision.kind,
            "executors": row["executors"],
            "target_executors": target,
            "code": decision.reason.code,
            "sentence": decision.reason.sentence,
        }


def _observation(row: JobRow, clock: RunClock) -> Observation:
    return Observation(
        time_s=clock.time_s(row["at_unix_s"]),
        window_s=row["window_s"],
        configuration=Configuration(**{name: row[name] for name in CONFIGURATION}),
        status=JobStatus(row["status"]),
        input_rate_per_s=row["input_rate_per_s"],
        processed_rate_per_s=row["processed_rate_per_s"],
        backlog_records=row["backlog_records"],
        arrival_rate_per_s=row["load_per_s"],
        cpu_share=row["cpu_share"],
        memory_share=row["memory_share"],
    )


def decisions_of(settings: DecisionSettings, known: Known = _NOTHING) -> Callable[[], PerJob]:
    """Makes the decisions for one job after the other; can be sent to Spark's workers."""
    return partial(JobDecisions, settings, known)


def tidalscale_service(settings: DecisionSettings, known: Known = _NOTHING) -> PerJobService:
    """From reports and forecasts to the topic of decisions, for all jobs."""
    statuses = ", ".join(f"'{status}'" for status in JobStatus)
    whole = " AND ".join(f"{name} >= 0 AND {name} < 1e15" for name in _RATES)
    report = (
        f"kind = 'report' AND {SANE} AND {whole} AND status IN ({statuses}) AND executors >= 1 "
        f"AND slots_per_executor >= 1 AND cores_per_executor > 0 AND cores_per_executor < 1e6 "
        f"AND memory_mib_per_executor >= 1 AND commit_interval_s >= 0 AND commit_interval_s < 1e9 "
        f"AND coalesce(state_partitions, 1) >= 1 AND coalesce(cpu_share, 0) BETWEEN 0 AND 1 "
        f"AND coalesce(memory_share, 0) >= 0 AND coalesce(memory_share, 0) < 1e9"
    )
    told = (
        f"kind = '{FORECAST_KIND}' AND made_at_unix_s BETWEEN 0 AND 1e11 AND for_unix_s BETWEEN 0 AND 1e11 "
        f"AND per_s >= 0 AND per_s < 1e15 AND coalesce(weight, 0) BETWEEN 0 AND 1"
    )
    numbers = ("for_unix_s", "per_s", "error", "weight", "window_s", "cpu_share", "memory_share", *_RATES)
    return PerJobService(
        name="tidalscale",
        tells=(DECISIONS_TOPIC,),
        fields=(
            "schema int, kind string, job string, run string, line bigint, at_unix_s double, made_at_unix_s double, "
            "status string, executors int, slots_per_executor int, cores_per_executor double, "
            "memory_mib_per_executor int, commit_interval_s double, state_partitions int, "
            + ", ".join(f"{name} double" for name in numbers)
        ),
        where=f"({report}) OR ({told})",
        columns=(
            "job",
            "kind",
            "run",
            "line",
            # Just before the report that it was made after: without delays a decision rests on it.
            "coalesce(at_unix_s, made_at_unix_s - 0.001) AS at_unix_s",
            "status",
            *CONFIGURATION,
            *numbers,
        ),
        make=decisions_of(settings, known),
        answers=(
            "run string, line bigint, at_unix_s double, kind string, executors int, target_executors int, "
            "code string, sentence string"
        ),
        forget_after_s=FORGET_AFTER_S,
    )
