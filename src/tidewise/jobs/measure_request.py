"""What the program that measures queries is asked, without Spark: who asks need not have started any."""

from __future__ import annotations

from dataclasses import dataclass

from tidewise.jobs.schedule import Schedule

BENCHMARKS = ("nexmark", "psm")
BEGAN_UNIX_S = 1_767_254_400.0
"""The first event: eight in the morning of 1 January 2026, so that the same request always reads the same events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A query, and what it is to read: it runs until all is read, in batches of so many events."""

    query: str
    events: int
    """How many there are in all; what the checkpoint has read already is not read again."""
    events_per_batch: int
    events_per_s: float
    """By their event times."""
    state_store: str
    state_partitions: int
    at_most_s: float
    changelog: bool = True
    """Whether RocksDB writes what has changed at each commit, or all."""
    checkpoint: str | None = None
    """A folder that is kept; None: one of its own, which is removed."""
    topic: str | None = None
    """Where the events lie; None: the embedded source makes them."""
    repartition: int | None = None
    """Instead of reading: give the state of `checkpoint` so many partitions."""


def schedule_of(events: int, events_per_s: float) -> Schedule:
    """So many events, all of them in the past, about so many in each second of their time."""
    seconds = max(1, round(events / events_per_s))
    # A millionth of an event more in each second than needed: rounded down, none would be missing at the end.
    return Schedule(began_unix_s=BEGAN_UNIX_S, rates_per_s=(events / seconds + 1e-6,) * seconds, after="stop")
