"""How long a job took to get over a failure: the one definition, for measured runs and for simulated copies alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Protocol, TypeVar

from tidewise.core.estimate import Censored, Measured

FACTOR = 2.0
"""Latency is back at up to this multiple of what it was before the failure."""
CALM_S = 15
"""So many seconds in a row at that end a recovery."""
BEFORE_S = 120
"""So many seconds before a failure tell what the latency was."""
FELT_WITHIN_S = 120
"""A failure that shows no bad second within this time was not felt."""

_Value_co = TypeVar("_Value_co", covariant=True)


class PerSecond(Protocol[_Value_co]):
    """One value for each second from 0 on: a list, a tuple or a numpy array."""

    def __len__(self) -> int: ...
    def __getitem__(self, second: int, /) -> _Value_co: ...


def recovery_s(
    *,
    waited_s: PerSecond[float],
    up: PerSecond[float],
    fault_s: float,
    end: int | None = None,
    undisturbed_until: int | None = None,
) -> Measured:
    """From the failure until the latency is at most twice what it was before it, for `CALM_S` seconds in a row.

    `waited_s`: how long the records that arrived in each second waited (infinite: they were never output, NaN: none
    arrived). `up`: false or 0 in the seconds in which the job was down. `end`: the second in which somebody stopped
    looking, be it for the next failure; the last one if not given.

    What it was before: the median wait of the last `BEFORE_S` seconds, good or not, in which the job was up and whose
    records were output before the failure. `undisturbed_until` moves the end of those seconds forward, for a job that
    had not recovered from something earlier yet. Without any such second it is the median of all up seconds.

    A second is bad when the job is down, or its records waited longer than that. A failure may be noticed late, and
    chance makes bad seconds too, so recovery ends with the first calm after the job went down; where it did not go
    down within `FELT_WITHIN_S`, after the first bad second. Downtime that began BEFORE the failure is something
    else's, a change's for example: then it is the next downtime that counts, or the first bad second after the job
    was back, and if there is neither the failure was over when the job was back.

    0: no bad second followed within `FELT_WITHIN_S`. Censored: not recovered before `end`, so it took at least until
    the last bad second was over. Records that were still waiting when the last second was over tell nothing, unless
    some of them had waited too long by then.
    """
    start = int(fault_s)
    stop = len(waited_s) if end is None else min(end, len(waited_s))
    before = start if undisturbed_until is None else min(undisturbed_until, start)
    limit_s = FACTOR * _usual_s(waited_s, up, before)
    waiting = [second for second in range(start, stop) if waited_s[second] == math.inf]
    if waiting and len(waited_s) - waiting[0] <= limit_s:
        stop = next((second for second in waiting if up[second]), stop)

    def bad(second: int) -> bool:
        return not up[second] or waited_s[second] > limit_s

    onset = _onset(up, bad, start, stop)
    if onset is None:
        return 0.0 if stop - start >= FELT_WITHIN_S else Censored(at_least=0.0)
    well_from = onset
    for second in range(onset, stop):
        if bad(second):
            well_from = second + 1
        elif second + 1 - well_from == CALM_S:
            return float(well_from - fault_s)
    return Censored(at_least=max(0.0, float(well_from - fault_s)))


def _usual_s(waited_s: PerSecond[float], up: PerSecond[float], before: int) -> float:
    """What the latency was; minus infinity where nothing was ever output, so that every wait is too long."""
    told = (
        waited_s[second]
        for second in range(before - 1, -1, -1)
        if up[second] and second + waited_s[second] <= before  # false for NaN and for infinity
    )
    known = list(islice(told, BEFORE_S)) or [
        waited_s[second] for second in range(len(waited_s)) if up[second] and math.isfinite(waited_s[second])
    ]
    return float(median(known)) if known else -math.inf


def _onset(up: PerSecond[float], bad: Callable[[int], bool], start: int, stop: int) -> int | None:
    """From where on calm means recovered; None: nothing was felt."""
    noticed_by = min(stop, start + FELT_WITHIN_S)
    for second in range(start, noticed_by):
        if not up[second] and (second == 0 or up[second - 1]):
            return second
    back = next((second for second in range(start, stop) if up[second]), stop)
    first_bad = next((second for second in range(back, noticed_by) if bad(second)), None)
    was_down = back > start
    return back if first_bad is None and was_down else first_bad
