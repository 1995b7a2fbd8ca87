"""The operators of a job: on Spark, the stages of a micro-batch, named after what they do."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidewise.core import OperatorKind, OperatorReport
from tidewise.engines.spark.progress import BatchProgress

_JOIN = "symmetricHashJoin"
"""How Spark names the state of a join of two streams."""
_JOIN_OPERATOR = "StreamingSymmetricHashJoin"
"""How it names the operator."""
_EXCHANGE = "Exchange"
_BESIDE = re.compile(
    r"WholeStageCodegen \(\d+\)|InputAdapter|EventTimeWatermark|CollectMetrics|Sort|Project|Filter|Expand"
    r"|\w*Aggregate|MergingSessions|UpdatingSessions|\w*StateStoreRestore"
)
"""What may stand in any stage, by itself or compiled into another, and what only comes with a state that is saved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSample:
    """One stage of the last batch."""

    stage_id: int
    name: str
    """Spark's: the line of the program that started it."""
    operators: tuple[str, ...] = ()
    """The operators of the plan that it runs, as its rows pass through them; empty where Spark does not say."""
    seconds: float
    tasks: int
    rows: int
    skew: float | None = None
    """The longest task over the median one."""
    batch_id: int | None = None
    """Whose stage it is; None where Spark does not say."""
    is_done: bool = False
    """Whether all of the job it belongs to is done."""
    run_s: float | None = None
    """Time in its tasks, all of them together."""
    shuffled_rows: int = 0
    """Of its rows, those that came from other stages; the rest was read from the sources."""


def logged_operators(rdds: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The operators of a stage, from the RDDs of which an event log says that it consists."""
    named = [rdd for rdd in sorted(rdds, key=lambda rdd: int(rdd["RDD ID"])) if rdd.get("Scope")]
    # Several RDDs of one operator have one scope.
    scopes = {json.loads(rdd["Scope"])["id"]: str(json.loads(rdd["Scope"])["name"]) for rdd in named}
    return tuple(scopes.values())


def stage_names(stages: Sequence[Sequence[str]]) -> list[str]:
    """What to call the stages of one batch, by their operators; those that would be called alike are numbered."""
    names = [_named(operators) or f"stage {number}" for number, operators in enumerate(stages, start=1)]
    return [
        f"{name} {names[: index + 1].count(name)}" if names.count(name) > 1 else name
        for index, name in enumerate(names)
    ]


def _named(operators: Sequence[str]) -> str:
    """By what sets it apart; where nothing does, by its moving rows around; empty where nothing is known."""
    shown = [name for name in operators if name != _EXCHANGE and _BESIDE.fullmatch(name) is None]
    return " + ".join(dict.fromkeys(shown)) or (_EXCHANGE if _EXCHANGE in operators else "")


def operators_of(
    stages: Sequence[StageSample], latest: BatchProgress, *, name: str, slots: int, rate_per_s: float
) -> list[OperatorReport]:
    """The stages of the newest batch that is done, as operators; none where no batch can be told from the others.

    A stage that reads nothing but sources works on each record for itself; one that reads what others have shuffled
    works on groups, if the query has state. A source whose records Spark does not count is taken to give the stage that
    comes first all rows of the batch.
    """
    # A batch without rows, as one that only moves the watermark, says nothing of what its stages do with them.
    batches = {stage.batch_id for stage in stages if stage.batch_id is not None and stage.rows > 0}
    unfinished = {stage.batch_id for stage in stages if not stage.is_done}
    newest = max((batch for batch in batches if batch not in unfinished), default=None)
    of_batch = [stage for stage in stages if newest is not None and stage.batch_id == newest]
    read = sum(stage.rows for stage in of_batch if stage.shuffled_rows == 0) or latest.rows
    found = []
    names = stage_names([stage.operators for stage in of_batch])
    for number, stage in enumerate(of_batch, start=1):
        rows = read if number == 1 and stage.rows == 0 else stage.rows
        found.append(
            OperatorReport(
                name=f"{name}{names[number - 1]}",
                kind=_kind(stage, latest, is_first=number == 1),
                channels=max(1, min(stage.tasks, slots)),
                input_rate_per_s=rate_per_s * rows / read if read > 0 else 0.0,
                throughput_per_channel_per_s=rows / stage.run_s if stage.run_s and rows > 0 else None,
                latency_s=stage.seconds,
            )
        )
    return found


def _kind(stage: StageSample, latest: BatchProgress, *, is_first: bool) -> OperatorKind:
    if is_first or not latest.state or (stage.shuffled_rows == 0 and stage.rows > 0):
        return OperatorKind.CONTINUOUS
    if stage.operators:
        joins = _JOIN_OPERATOR in stage.operators
    else:
        joins = any(operator.name == _JOIN for operator in latest.state)
    return OperatorKind.JOIN if joins else OperatorKind.WINDOW
