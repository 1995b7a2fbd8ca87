"""A Spark source without a broker: records come by the wall clock, so a job that is too slow really falls behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql.types import StructType

from tidewise.core import BadInputError, InvalidValueError, PermanentError
from tidewise.core.readers import did_you_mean
from tidewise.jobs.records.kinds import KINDS, Disorder
from tidewise.jobs.schedule import Pieces, Schedule, read_schedule

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:
    raise PermanentError(
        f"the embedded source needs Spark 4.2 or newer, not {pyspark.__version__}; install that, or read from Kafka"
    ) from None

NAME = "tidewise-embedded"
"""What to write in `readStream.format(...)`."""

Offset = dict[str, int]
"""{"records": N}: the records before N; newest minus committed is the backlog."""

_ROWS_PER_ARROW_BATCH = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the source, read from the text that Spark hands over."""

    schedule: Path
    seed: int = 0
    partitions: int = 2
    max_records_per_batch: int | None = None
    records: str = "clicks"
    disorder: Disorder = field(default_factory=Disorder)

    @staticmethod
    def read(given: Mapping[str, str]) -> Options:
        """The options, or BadInputError with what to write instead; Spark does not keep upper and lower case apart."""
        known = ("schedule", "seed", "partitions", "max_records_per_batch", "records", "late_share", "late_most_s")
        named = {name.lower(): text for name, text in given.items()}
        for name in named:
            if name not in known:
                raise BadInputError(f"{NAME} has no option {name!r}{did_you_mean(name, known)}")
        if "schedule" not in named:
            raise BadInputError(f"{NAME} needs the option schedule: the JSON file that says how many records come when")
        records = named.get("records", "clicks")
        if records not in KINDS:
            raise BadInputError(f"{NAME} has no records {records!r}{did_you_mean(records, KINDS)}")
        most = named.get("max_records_per_batch")
        return Options(
            schedule=Path(named["schedule"]),
            seed=_whole("seed", named.get("seed", "0"), least=0),
            partitions=_whole("partitions", named.get("partitions", "2"), least=1),
            max_records_per_batch=None if most is None else _whole("max_records_per_batch", most, least=1),
            records=records,
            disorder=_disorder(named.get("late_share", "0"), named.get("late_most_s", "0")),
        )


def _disorder(share: str, most_s: str) -> Disorder:
    try:
        return Disorder(share=float(share), most_s=float(most_s))
    except InvalidValueError as error:
        raise BadInputError(f"the options late_share and late_most_s of {NAME}: {error}") from None
    except ValueError:
        raise BadInputError(
            f"the options late_share and late_most_s of {NAME} must be numbers, not {share!r} and {most_s!r}"
        ) from None


def _whole(name: str, text: str, *, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise BadInputError(f"the option {name} of {NAME} must be a whole number of at least {least}, not {text!r}")
    return value


class EmbeddedSource(DataSource):
    """The source to register: `spark.dataSource.register(EmbeddedSource)`; needs Spark 4.2 for bounded batches.

    Options: `schedule` (a JSON file, see Schedule), `seed`, `partitions`, `max_records_per_batch`, `records` (their
    kind), `late_share` (of the records) and `late_most_s` (how much earlier these happened, at most). Two readers with
    the same options see the same records, and reading a range again gives the same records again.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._options = Options.read(options)
        # Read here for its errors only: they then show at load(), and workers are not sent the rates.
        read_schedule(self._options.schedule)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return KINDS[self._options.records].schema

    def streamReader(self, schema: StructType) -> EmbeddedReader:  # noqa: ARG002, N802 - Spark's signature
        return EmbeddedReader(self._options)


class Range(InputPartition):
    """The records of one task, with the steps they come in: a worker needs no schedule file."""

    def __init__(self, *, first: int, end: int, pieces: Pieces) -> None:
        self.first = first
        self.end = end
        self.pieces = pieces


class EmbeddedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offers what the schedule has brought until now; one instance per running query answers for all its batches."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._schedule: Schedule | None = None
        self._version: tuple[int, ...] = ()
        self._most_offered = 0
        self._final: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {"records": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        most = self._options.max_records_per_batch
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802 - Spark's name
        newest = self._newest(at_least=start["records"])
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, start["records"] + limit.max_rows)
        return {"records": newest}

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        return {"records": self._newest()}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._final = self._newest()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        first, count = start["records"], end["records"] - start["records"]
        if count == 0:
            return []
        schedule, tasks = self._current(), min(self._options.partitions, count)
        bounds = [first + count * task // tasks for task in range(tasks + 1)]
        return [
            Range(first=begin, end=until, pieces=schedule.pieces(begin, until))
            for begin, until in itertools.pairwise(bounds)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)  # noqa: S101 - Spark gives back what partitions() made
        kind, options = KINDS[self._options.records], self._options
        for first in range(partition.first, partition.end, _ROWS_PER_ARROW_BATCH):
            end = min(first + _ROWS_PER_ARROW_BATCH, partition.end)
            yield kind.batch(
                seed=options.seed, first=first, end=end, pieces=partition.pieces, disorder=options.disorder
            )

    def _newest(self, *, at_least: int = 0) -> int:
        """How many records there are now; what was once offered stays, whatever becomes of file and clock."""
        available = self._current().available(time.time())
        if self._final is not None:
            available = min(available, self._final)
        self._most_offered = max(self._most_offered, at_least, available)
        return self._most_offered

    def _current(self) -> Schedule:
        """The schedule, read again when its file has changed."""
        try:
            status = self._options.schedule.stat()
        except OSError as error:
            raise BadInputError(f"the schedule {self._options.schedule} is gone ({error}); put it back") from None
        version = (status.st_mtime_ns, status.st_size, status.st_ino)
        if self._schedule is None or version != self._version:
            self._schedule, self._version = read_schedule(self._options.schedule), version
        return self._schedule
