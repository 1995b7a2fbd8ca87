"""The records of a job as one process sends them: by the schedule, encoded, and only those of its own partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidewise.core.checks import require
from tidewise.jobs.records.encoding import Encoder
from tidewise.jobs.records.kinds import RecordKind
from tidewise.jobs.schedule import Schedule, Whole
from tidewise.kafka.sending import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFeed:
    """A feed for a sender; process k of n owns the partitions p with p mod n = k, so that each has one writer."""

    schedule: Schedule
    end: int
    """The ordinal after the last."""
    kind: RecordKind
    encoder: Encoder
    partitions: int
    process: int
    processes: int
    at_once: bool = False
    """Everything is due from the beginning; event times stay as scheduled."""
    _owned: Whole = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require(0 <= self.process < self.processes, f"process {self.process} is not one of {self.processes}")
        cycle = self.kind.partitions(np.arange(self.kind.keys or self.partitions), self.partitions)
        owned = np.concatenate(([0], np.cumsum(cycle % self.processes == self.process)))
        object.__setattr__(self, "_owned", owned)

    def available(self, unix_s: float) -> int:
        return self.end if self.at_once else self.schedule.available(unix_s)

    def due_unix_s(self, ordinal: int) -> float:
        return float(self.schedule.pieces(ordinal, ordinal + 1).times_us(np.array([ordinal]))[0]) / 1e6

    def count(self, first: int, end: int) -> int:
        return self._before(end) - self._before(first)

    def parts(self, first: int, end: int) -> Sequence[Part]:
        ordinals = np.arange(first, end, dtype=np.int64)
        partitions = self.kind.partitions(ordinals, self.partitions)
        own = partitions % self.processes == self.process
        ordinals, partitions = ordinals[own], partitions[own]
        # Partition by partition, but encoded in one go, which costs less than many small ones.
        order = np.argsort(partitions, kind="stable")
        ordinals, partitions = ordinals[order], partitions[order]
        pieces = self.schedule.pieces(first, end)
        values, due_unix_s = self.encoder.encode_each(ordinals, pieces), pieces.times_us(ordinals) / 1e6
        numbers, begins = np.unique(partitions, return_index=True)
        bounds = [*begins.tolist(), len(ordinals)]
        return [
            Part(partition=number, values=values[begin:until], due_unix_s=due_unix_s[begin:until])
            for number, begin, until in zip(numbers.tolist(), bounds[:-1], bounds[1:], strict=True)
        ]

    def _before(self, ordinal: int) -> int:
        """How many ordinals before this one are this process's own: their pattern repeats."""
        rounds, rest = divmod(ordinal, len(self._owned) - 1)
        return int(rounds * self._owned[-1] + self._owned[rest])
