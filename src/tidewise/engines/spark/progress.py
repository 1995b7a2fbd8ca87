"""What a query says after each batch, read once from Spark's JSON into values that can be trusted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tidewise.core import PermanentError

_STATE_METRICS = (
    "loadedMapCacheHitCount",
    "loadedMapCacheMissCount",
    "rocksdbBytesCopied",
    "rocksdbChangeLogWriterCommitLatencyMs",
    "rocksdbCommitCheckpointLatency",
    "rocksdbCommitFileSyncLatencyMs",
    "rocksdbCommitFlushLatency",
    "rocksdbFilesCopied",
    "rocksdbFilesReused",
    "rocksdbForceSnapshotCount",
    "rocksdbLoadLatencyMs",
    "rocksdbNumLoadedFromDfs",
    "rocksdbNumSnapshotsAutoRepaired",
    "rocksdbPinnedBlocksMemoryUsage",
    "rocksdbReplayChangeLogLatencyMs",
    "rocksdbSaveZipFilesLatencyMs",
    "rocksdbSstFileSize",
    "stateOnCurrentVersionSizeBytes",
)
"""The metrics of a state store that tell what a commit costs and what a move would."""


class UnreadableProgressError(PermanentError):
    """A report of Spark that cannot be read; to be logged and counted, and no reason to stop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """One partition of a Kafka topic in a batch. Offsets count records, and what compaction and transactions leave."""

    topic: str
    partition: int
    start: int
    """Judged by the rows of the batch where Spark does not say it: a partition that is new, or was made anew."""
    end: int
    latest: int | None
    """The newest offset there was when the batch was planned; None where Spark does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """One source of a batch. Positions count records from wherever the source began; None: they cannot be counted.

    Those of a Kafka source are sums over the partitions that the batch ended with: between two batches they go on as
    long as the partitions are the same.
    """

    description: str
    start: float | None
    """None also where the query has read nothing before."""
    end: float | None
    latest: float | None
    """The newest record there was when the batch was planned; None also where the source does not say."""
    rows: int
    metrics: Mapping[str, str]
    partitions: tuple[PartitionProgress, ...] = ()
    """Empty for sources that are no topics of Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOperator:
    """One stateful operator after a batch."""

    name: str
    rows: int
    memory_bytes: int
    partitions: int | None
    commit_ms: float
    dropped_rows: int
    """Records that came later than the watermark allows."""
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTimes:
    """The event times of a batch as Unix time; None where the batch has none."""

    min_unix_s: float | None = None
    avg_unix_s: float | None = None
    max_unix_s: float | None = None
    watermark_unix_s: float | None = None
    """None before the first watermark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One batch, or one trigger that found nothing to do."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    began_unix_s: float
    """Start of the trigger."""
    durations_ms: Mapping[str, float]
    """By Spark's names of the phases: triggerExecution, addBatch, latestOffset, queryPlanning, walCommit, ..."""
    rows: int
    sources: tuple[SourceProgress, ...]
    event_time: EventTimes
    state: tuple[StateOperator, ...]
    observed: Mapping[str, float] = field(default_factory=dict)
    """What the query counts by `observe`, as NAME.FIGURE; numbers only."""

    @property
    def executed(self) -> bool:
        """Whether a batch ran; older versions of Spark also report triggers that found nothing."""
        return "addBatch" in self.durations_ms

    @property
    def duration_s(self) -> float:
        """The whole trigger, from its start to its commit."""
        known_ms = self.durations_ms.get("triggerExecution")
        return (sum(self.durations_ms.values()) if known_ms is None else known_ms) / 1000.0

    @property
    def committed_unix_s(self) -> float:
        return self.began_unix_s + self.duration_s

    @property
    def start(self) -> float | None:
        """Position before the batch, all sources together; from its rows where the query had read nothing before."""
        if self.end is None:
            return None
        starts = [
            source.end - source.rows if source.start is None and source.end is not None else source.start
            for source in self.sources
        ]
        return _sum_of_known(starts)

    @property
    def end(self) -> float | None:
        """Position after the batch, all sources together; None where one cannot be counted."""
        return _sum_of_known([source.end for source in self.sources])

    @property
    def latest(self) -> float | None:
        """Position of the newest records, all sources together; None where one does not tell."""
        return _sum_of_known([source.latest for source in self.sources])

    @property
    def backlog_known(self) -> bool:
        """Whether it can be told how many records wait beyond the batch."""
        return self.end is not None and self.latest is not None

    @property
    def state_rows(self) -> int | None:
        """None for a query without state."""
        return sum(operator.rows for operator in self.state) if self.state else None

    @property
    def state_bytes(self) -> int | None:
        return sum(operator.memory_bytes for operator in self.state) if self.state else None

    @property
    def watermark_delay_s(self) -> float | None:
        """How far the watermark was behind the start of the trigger."""
        watermark_s = self.event_time.watermark_unix_s
        return None if watermark_s is None else max(0.0, self.began_unix_s - watermark_s)


def parse_progress(json_text: str) -> BatchProgress:
    """Read one progress report; UnreadableProgressError where it is not one."""
    try:
        report = json.loads(json_text)
    except (ValueError, RecursionError) as error:
        raise UnreadableProgressError(f"a progress report of Spark is not JSON: {error}") from error
    if not isinstance(report, dict):
        raise UnreadableProgressError(f"a progress report of Spark must be a JSON object, not {_shown(report)}")
    durations = _mapping(report.get("durationMs"), "durationMs")
    operators = _sequence(report.get("stateOperators"), "stateOperators")
    return BatchProgress(
        query_id=_text(report, "id"),
        run_id=_text(report, "runId"),
        name=report["name"] if isinstance(report.get("name"), str) else None,
        batch_id=_count(report, "batchId"),
        began_unix_s=_required_moment(report.get("timestamp")),
        durations_ms={phase: _number(durations, phase) for phase in durations},
        rows=_count(report, "numInputRows"),
        sources=tuple(_source(_mapping(source, "sources")) for source in _sequence(report.get("sources"), "sources")),
        event_time=_event_times(_mapping(report.get("eventTime"), "eventTime")),
        state=tuple(_state_operator(_mapping(operator, "stateOperators")) for operator in operators),
        observed={
            f"{name}.{figure}": float(value)
            for name, figures in _mapping(report.get("observedMetrics"), "observedMetrics").items()
            if isinstance(figures, dict)
            for figure, value in figures.items()
            if _is_number(value)
        },
    )


def count_offset(offset: object) -> float | None:
    """How many records an offset stands for; None for offsets that count something else, such as files or seconds.

    Kafka's count by topic and partition; `{"records": n}` and `{"offset": n}` count by themselves. A bare number is a
    second for the rate source, and file sources count the entries of a log.
    """
    parts = _parts(offset)
    for key in ("records", "offset"):
        if _is_number(parts.get(key)):
            return float(parts[key])
    by_partition = _by_partition(offset)
    return float(sum(by_partition.values())) if by_partition else None


def _parts(offset: object) -> dict[str, Any]:
    """What an offset consists of; nothing where it is one number, or no JSON."""
    if isinstance(offset, str) and offset.lstrip().startswith("{"):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, dict) else {}


def _by_partition(offset: object) -> dict[tuple[str, int], int]:
    """The offset of each partition of each topic; none for what is no offset of Kafka."""
    topics = _parts(offset)
    if not all(isinstance(partitions, dict) for partitions in topics.values()):
        return {}
    flat = {(topic, key): at for topic, partitions in topics.items() for key, at in partitions.items()}
    if not all(key.isdecimal() and _is_number(at) for (_, key), at in flat.items()):
        return {}
    return {(topic, int(key)): int(at) for (topic, key), at in flat.items()}


def _partitions(source: Mapping[str, object], rows: int) -> tuple[PartitionProgress, ...]:
    starts, ends, latest = (_by_partition(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    # An offset before the start is one of another topic of that name.
    starts = {key: at for key, at in starts.items() if at <= ends.get(key, -1)}
    unknown_rows = max(0, rows - sum(ends[key] - at for key, at in starts.items()))
    for key in sorted(ends.keys() - starts.keys()):
        read = min(ends[key], unknown_rows)
        starts[key] = ends[key] - read
        unknown_rows -= read
    return tuple(
        PartitionProgress(topic=key[0], partition=key[1], start=starts[key], end=end, latest=latest.get(key))
        for key, end in ends.items()
    )


def _source(source: Mapping[str, object]) -> SourceProgress:
    metrics = _mapping(source.get("metrics"), "metrics")
    rows = _count(source, "numInputRows")
    start, end, latest = (count_offset(source.get(name)) for name in ("startOffset", "endOffset", "latestOffset"))
    partitions = _partitions(source, rows)
    if partitions:
        start = float(sum(one.start for one in partitions))
    return SourceProgress(
        description=str(source.get("description", "")),
        start=start,
        end=end,
        latest=latest,
        rows=rows,
        metrics={name: str(value) for name, value in metrics.items()},
        partitions=partitions,
    )


def _state_operator(operator: Mapping[str, object]) -> StateOperator:
    custom = _mapping(operator.get("customMetrics"), "customMetrics")
    return StateOperator(
        name=str(operator.get("operatorName", "")),
        rows=_count(operator, "numRowsTotal"),
        memory_bytes=_count(operator, "memoryUsedBytes"),
        partitions=_count(operator, "numShufflePartitions") if "numShufflePartitions" in operator else None,
        commit_ms=_number(operator, "commitTimeMs"),
        dropped_rows=_count(operator, "numRowsDroppedByWatermark"),
        metrics={name: _number(custom, name) for name in _STATE_METRICS if _is_number(custom.get(name))},
    )


def _event_times(times: Mapping[str, object]) -> EventTimes:
    watermark_s = _moment(times.get("watermark"))
    return EventTimes(
        min_unix_s=_moment(times.get("min")),
        avg_unix_s=_moment(times.get("avg")),
        max_unix_s=_moment(times.get("max")),
        watermark_unix_s=None if watermark_s is None or watermark_s <= 0.0 else watermark_s,
    )


def _moment(text: object) -> float | None:
    """Unix time; None for what is no time that a calendar has: event times are the user's data."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _required_moment(text: object) -> float:
    moment_s = _moment(text)
    if moment_s is None:
        raise UnreadableProgressError(f"timestamp in a progress report of Spark must be a time, not {_shown(text)}")
    return moment_s


def _sum_of_known(positions: list[float | None]) -> float | None:
    known = [position for position in positions if position is not None]
    return sum(known) if known and len(known) == len(positions) else None


def _is_number(value: object) -> bool:
    """Whether it is a number that Spark can count to; NaN and infinities are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 2**63


def _text(report: Mapping[str, object], key: str) -> str:
    value = report.get(key)
    if not isinstance(value, str) or not value:
        raise UnreadableProgressError(f"{key} in a progress report of Spark must be a text, not {_shown(value)}")
    return value


def _number(report: Mapping[str, object], key: str) -> float:
    value = report.get(key, 0)
    if not isinstance(value, int | float) or not _is_number(value):
        raise UnreadableProgressError(
            f"{key} in a progress report of Spark must be a number of at least 0, not {_shown(value)}"
        )
    return float(value)


def _count(report: Mapping[str, object], key: str) -> int:
    return int(_number(report, key))


def _mapping(value: object, key: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableProgressError(f"{key} in a progress report of Spark must be an object, not {_shown(value)}")
    return value


def _sequence(value: object, key: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableProgressError(f"{key} in a progress report of Spark must be a list, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
