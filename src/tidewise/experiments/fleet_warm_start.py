"""A new job begins with what jobs like it have shown: priors of its models from the table of models of a fleet."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidewise.core import BadInputError
from tidewise.core.checks import require_text
from tidewise.experiments.fleet_tables import MODELS
from tidewise.qos import Physics, Usual

_MOST_ALIKE = 8
_OTHER_PROGRAM, _OTHER_NAME = 1.0, 2.0
"""How far apart jobs are by their words: those of the same program not at all, those of the same prefix as far as loads
that differ by a factor of e."""
_LEAST_SHARED = 2
"""So many of their numbers have to be known of both of two jobs that neither program nor name connects."""
_SPREAD_WEIGHT = 2.0
_FAR = 3.0
"""Jobs further away than this tell nothing: then the usual values stay."""
_LEAST_LOG_SD = 0.15
"""Even jobs that are all alike do not say what the next one will be to less than this."""
_PRIOR_WORTH = 1.0
"""The spread that is usual counts as so many of the similar jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTraits:
    """What is known of a job by which others like it are found; None: not known."""

    job: str
    program: str = ""
    load_mean_per_s: float | None = None
    load_spread: float | None = None
    """Standard deviation over the mean."""
    records_per_core_s: float | None = None
    batch_fixed_s: float | None = None
    executor_mib: float | None = None
    state_mib: float | None = None

    def __post_init__(self) -> None:
        require_text("job", self.job)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> JobTraits:
        """Those of a row of the table of models."""
        names = [name for name in cls.__dataclass_fields__ if name != "program"]
        return cls(program=row["program"] or "", **{name: row[name] for name in names})

    @property
    def prefix(self) -> str:
        """What its name begins with, up to the first digit or separator."""
        word = self.job
        for place, letter in enumerate(self.job):
            if not letter.isalpha():
                word = self.job[:place]
                break
        return word.lower()


def known_traits(tables: Path) -> list[JobTraits]:
    """Of all jobs whose models could be fitted, in the tables of a fleet; BadInputError where there are none.

    Without the models themselves, so that a fleet fits in memory, and without Spark: it is read by every controller.
    """
    if not tables.is_dir():
        raise BadInputError(f"there is no folder {tables}; name the one whose tables were fitted (tidewise fleet fit)")
    folder = tables / MODELS
    if next(folder.rglob("*.parquet"), None) is None:
        raise BadInputError(f"{tables} has no models yet; make them with: tidewise fleet fit --tables {tables}")
    try:
        found = pq.read_table(folder, columns=list(JobTraits.__dataclass_fields__), filters=pc.field("error").is_null())
        return [JobTraits.of(row) for row in found.to_pylist()]
    except (OSError, pa.ArrowException) as error:
        raise BadInputError(
            f"the models in {folder} cannot be read: {next(iter(str(error).splitlines()), 'they are damaged')}; make "
            f"them anew with: tidewise fleet fit --tables {tables}"
        ) from error


def most_alike(job: JobTraits, others: Iterable[JobTraits], *, at_most: int = _MOST_ALIKE) -> list[JobTraits]:
    """The nearest first; those that are too far from it to tell anything are left out, and so is the job itself.

    What the same job has shown before, when less or other was known of it, is an example like any other: the first.
    """
    by_distance = sorted(
        ((_apart(job, other), other) for other in others if other != job),
        key=lambda pair: (pair[0], pair[1].job != job.job, pair[1].job),
    )
    return [other for apart, other in by_distance[:at_most] if apart <= _FAR]


def warm_physics(job: JobTraits, others: Iterable[JobTraits], *, usual: Physics | None = None) -> Physics:
    """What to believe of a new job before it has shown anything: as jobs like it are, as surely as those agree."""
    usual = usual or Physics()
    alike = most_alike(job, others)
    slot_mib = usual.slot_mib.median
    return replace(
        usual,
        records_per_core_s=_usual([each.records_per_core_s for each in alike], usual.records_per_core_s),
        batch_overhead_s=_usual([each.batch_fixed_s for each in alike], usual.batch_overhead_s),
        executor_base_mib=_usual(
            [None if each.executor_mib is None else each.executor_mib - slot_mib for each in alike],
            usual.executor_base_mib,
        ),
    )


def _apart(job: JobTraits, other: JobTraits) -> float:
    """0: the same; what is not known of either tells nothing."""
    apart = []
    for name in ("load_mean_per_s", "records_per_core_s", "state_mib"):
        here, there = getattr(job, name), getattr(other, name)
        if here and there:
            apart.append(math.log(here / there))
    if job.load_spread is not None and other.load_spread is not None:
        apart.append(_SPREAD_WEIGHT * (job.load_spread - other.load_spread))
    if job.program and job.program == other.program:
        return math.hypot(*apart)
    if job.prefix == other.prefix:
        return math.hypot(_OTHER_PROGRAM, *apart)
    return math.hypot(_OTHER_NAME, *apart) if len(apart) >= _LEAST_SHARED else math.inf


def _usual(values: Sequence[float | None], usual: Usual) -> Usual:
    """Median and spread of what similar jobs have shown; with few of them, more of what is usual for all."""
    logs = sorted(math.log(value) for value in values if value is not None and value > 0.0)
    if not logs:
        return usual
    middle = len(logs) // 2
    median = logs[middle] if len(logs) % 2 else 0.5 * (logs[middle - 1] + logs[middle])
    squares = sum((each - median) ** 2 for each in logs)
    # One similar job says where to look, and not how near: the usual spread stands in for what is not seen.
    log_sd = math.sqrt((squares + _PRIOR_WORTH * usual.log_sd**2 / len(logs)) / len(logs))
    return Usual(median=math.exp(median), log_sd=min(usual.log_sd, max(_LEAST_LOG_SD, log_sd)))
