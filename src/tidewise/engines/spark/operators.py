"""The operators of a job: on Spark, the stages of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewise.core import OperatorKind, OperatorReport
from tidewise.engines.spark.progress import BatchProgress

_JOIN = "symmetricHashJoin"
"""How Spark names the state of a join of two streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSample:
    """One stage of the last batch."""

    stage_id: int
    name: str
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
    for number, stage in enumerate(of_batch, start=1):
        rows = read if number == 1 and stage.rows == 0 else stage.rows
        found.append(
            OperatorReport(
                name=f"{name}stage {number}",
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
    joins = any(operator.name == _JOIN for operator in latest.state)
    return OperatorKind.JOIN if joins else OperatorKind.WINDOW
