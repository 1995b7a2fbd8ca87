"""The right answers of the benchmark jobs, computed from their definitions in plain Python, one record at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

WINDOW_MS = 10_000
METRES = 50.0

Window = tuple[int, str]
"""When it starts, in milliseconds, and its campaign."""
Firing = tuple[int, int, int, int]
"""The car, when it fired, its top speed, and when it had that; in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A record of a car."""

    at_ms: int
    ordinal: int
    car: int
    speed: int
    distance: float


def views_per_campaign(
    events: Iterable[Mapping[str, Any]], campaigns: Mapping[str, str], *, slide_ms: int
) -> dict[Window, tuple[int, int]]:
    """Per window: how many views, and the last of them in milliseconds."""
    found: dict[Window, tuple[int, int]] = {}
    for event in events:
        if event["event_type"] != "view" or event["ad_id"] not in campaigns:
            continue
        at_ms = event["at_ms"]
        start_ms = at_ms - at_ms % slide_ms
        while start_ms > at_ms - WINDOW_MS:
            window = start_ms, campaigns[event["ad_id"]]
            views, last_ms = found.get(window, (0, 0))
            found[window] = views + 1, max(last_ms, at_ms)
            start_ms -= slide_ms
    return found


def top_speeds(ticks: Iterable[Tick]) -> list[Firing]:
    """Every firing of every car, by looking through all its records each time."""
    cars: dict[int, list[Tick]] = {}
    for tick in ticks:
        cars.setdefault(tick.car, []).append(tick)
    fired: list[Firing] = []
    for car, own in cars.items():
        own.sort(key=lambda tick: (tick.at_ms, tick.ordinal))
        mark = own[0].distance
        for position, tick in enumerate(own):
            if tick.distance - mark > METRES:
                mark = tick.distance
                seen = [other for other in own[: position + 1] if other.at_ms > tick.at_ms - WINDOW_MS]
                top = min(seen, key=lambda other: (-other.speed, other.at_ms))
                fired.append((car, tick.at_ms, top.speed, top.at_ms))
    return sorted(fired)


def rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The records as mappings, with `at_ms` for the event time."""
    times_ms = (batch.column("event_time").cast("int64").to_numpy() // 1000).tolist()
    return [row | {"at_ms": at_ms} for row, at_ms in zip(batch.to_pylist(), times_ms, strict=True)]


def ticks(batch: pa.RecordBatch) -> list[Tick]:
    names = ("at_ms", "ordinal", "car", "speed", "distance")
    return [Tick(**{name: row[name] for name in names}) for row in rows(batch)]
