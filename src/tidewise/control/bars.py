"""Targets that went wrong, and what that says about others, so that a policy does not try its way down again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewise.control.settings import LoopSettings
from tidewise.core import Configuration

_NOT_CLEARLY_LOWER = 0.9
"""A rate of at least this share of the one at which a target was too little says that it still would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A target that went wrong."""

    until_s: float
    times: int
    """How often in a row."""
    too_little_at_per_s: float | None = None
    """The input rate at which the target was too little, and whatever gives no more is. None: the change itself
    failed or did not show as a lack, which says nothing about any other target."""

    def counts_at(self, rate_per_s: float | None) -> bool:
        """Whether the target would be too little at this rate as well; an unknown rate is not known to be lower."""
        if self.too_little_at_per_s is None:
            return False
        return rate_per_s is None or rate_per_s >= _NOT_CLEARLY_LOWER * self.too_little_at_per_s


def _gives_no_more(target: Configuration, than: Configuration) -> bool:
    return not than.takes_less_than(target)


def barring(
    bars: Mapping[Configuration, Bar],
    target: Configuration,
    *,
    source: Configuration,
    rate_per_s: float | None,
    now_s: float,
) -> tuple[Configuration, Bar] | None:
    """The bar that ends last of those that forbid a change now, and its target; None: it may be tried.

    What was too little forbids only to take resources away: on the way up, less than enough is better than nothing.
    """
    takes = target.takes_less_than(source)
    found = [
        (barred, bar)
        for barred, bar in bars.items()
        if now_s < bar.until_s
        and (
            (takes and bar.counts_at(rate_per_s) and _gives_no_more(target, barred))
            if bar.too_little_at_per_s is not None
            else barred == target
        )
    ]
    return max(found, key=lambda each: each[1].until_s, default=None)


def add_bar(
    bars: dict[Configuration, Bar],
    target: Configuration,
    *,
    at_s: float,
    too_little_at_per_s: float | None,
    settings: LoopSettings,
) -> None:
    """Bar a target, for longer if it, or one that gives no less, has been barred before."""
    times = 1 + max(
        (
            bar.times
            for barred, bar in bars.items()
            if barred == target
            or (
                too_little_at_per_s is not None
                and bar.counts_at(too_little_at_per_s)
                and _gives_no_more(target, barred)
            )
        ),
        default=0,
    )
    until_s = at_s + settings.back_off_after_s(times)
    bars[target] = Bar(until_s=until_s, times=times, too_little_at_per_s=too_little_at_per_s)
    if len(bars) > settings.bars_kept:
        del bars[min(bars, key=lambda barred: bars[barred].until_s)]


def forgive(bars: dict[Configuration, Bar], target: Configuration, *, rate_per_s: float | None) -> None:
    """A change has settled at this rate, which refutes the bars of its target and of whatever gives no less."""
    refuted = [
        barred
        for barred, bar in bars.items()
        if (bar.counts_at(rate_per_s) and _gives_no_more(target, barred))
        or (bar.too_little_at_per_s is None and barred == target)
    ]
    for barred in refuted:
        del bars[barred]
