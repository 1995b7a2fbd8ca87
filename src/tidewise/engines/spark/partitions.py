"""Where each partition of a query's sources stands: what waits there, how much of it and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tidewise.engines.spark.arrivals import Arrivals
from tidewise.engines.spark.progress import BatchProgress, PartitionProgress

WORST_KEPT = 10
"""How many partitions a report names: a topic may have thousands."""

_Key = tuple[int, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """What waits in one partition. Offsets stand for records: a compacted or transactional topic holds fewer."""

    topic: str
    partition: int
    records: float
    oldest_s: float | None
    """For how long the oldest record that is not committed has waited; None where none waits."""
    oldest_is_known: bool = True
    """False: it waited already when the query was first heard of, so that it is older than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLag:
    """What waits in the topics of a query, as far as its batches have told, carried on at the rate of each partition.

    Two sources that read the same partition count twice, as their records do.
    """

    records: float
    partitions: int
    lagging: int
    worst: tuple[PartitionLag, ...]
    """Those whose oldest record has waited longest, at most `WORST_KEPT`."""

    @property
    def oldest_s(self) -> float | None:
        """For how long the oldest record that is not committed has waited; None where none waits."""
        return self.worst[0].oldest_s if self.worst else None

    @property
    def oldest_is_known(self) -> bool:
        return all(one.oldest_is_known for one in self.worst[:1])


@dataclass(slots=True)
class _Partition:
    end: int
    arrivals: Arrivals = field(default_factory=Arrivals)


class PartitionBook:
    """The partitions of one query, by what its newest batch says of them.

    Partitions come and go: a topic gets more of them or matches a pattern, is deleted, or is made anew and counts from
    0 again. What the sum of all offsets jumps by then is no record that arrived or was read.
    """

    def __init__(self) -> None:
        self._partitions: dict[_Key, _Partition] = {}
        self._last_s = 0.0

    def take(self, progress: BatchProgress, *, began_s: float, committed_s: float) -> float:
        """Note a batch that is newer than all before; by how much the sum of the offsets has jumped before it."""
        now = dict(_by_key(progress))
        jumped = 0.0
        for key in self._partitions.keys() - now.keys():
            jumped -= self._partitions.pop(key).end
        for key, told in now.items():
            known = self._partitions.get(key)
            if known is None or told.start < known.end:
                jumped += told.start - (0 if known is None else known.end)
                known = self._partitions[key] = _Partition(end=told.start)
            known.end = told.end
            if told.latest is not None:
                known.arrivals.tell(began_s, max(told.latest, told.end))
            known.arrivals.forget_before(told.end)
        self._last_s = max(self._last_s, committed_s)
        return jumped

    def idle(self, at_s: float) -> None:
        """A trigger at this time found nothing to do."""
        for known in self._partitions.values():
            known.arrivals.tell(at_s, known.end, idle=True)
        self._last_s = max(self._last_s, at_s)

    def lag(self, at_s: float) -> QueryLag | None:
        """What waits at this time, or when the query was last heard of if that is later; None without partitions."""
        if not self._partitions:
            return None
        at_s = max(at_s, self._last_s)
        found = [_lag(key, one, at_s) for key, one in self._partitions.items()]
        waiting = sorted(
            (one for one in found if one.oldest_s is not None),
            key=lambda one: (-(one.oldest_s or 0.0), one.oldest_is_known, -one.records, one.topic, one.partition),
        )
        return QueryLag(
            records=sum(one.records for one in found),
            partitions=len(found),
            lagging=len(waiting),
            worst=tuple(waiting[:WORST_KEPT]),
        )


def _by_key(progress: BatchProgress) -> Iterator[tuple[_Key, PartitionProgress]]:
    for number, source in enumerate(progress.sources):
        for one in source.partitions:
            yield (number, one.topic, one.partition), one


def _lag(key: _Key, one: _Partition, at_s: float) -> PartitionLag:
    _, topic, partition = key
    newest = one.arrivals.position(at_s)
    if newest is None or newest <= one.end:
        return PartitionLag(topic=topic, partition=partition, records=0.0, oldest_s=None)
    # What has come since the last trigger began to come right after it.
    since_s, is_known = one.arrivals.passed_s(one.end) or (one.arrivals.last_s, True)
    return PartitionLag(
        topic=topic,
        partition=partition,
        records=newest - one.end,
        oldest_s=max(0.0, at_s - since_s),
        oldest_is_known=is_known,
    )
