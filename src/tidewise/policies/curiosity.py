"""Whether it pays to have a copy of the job measured, and what copies have told."""

from __future__ import annotations

import math

from tidewise.core import Configuration, Profile, ProfileMeasurement, Situation
from tidewise.qos import Candidates, JobModel
from tidewise.search.ask import Terms, ask

_ASK_EVERY_S = 600.0
_REST_S = 3600.0
"""How long after a profile nothing more is asked for; twice as long for each that told nothing."""
_COMES_UP_S = 60.0


class Curiosity:
    """Asks for a profile where what it may save is more than its price, and of executors that never ran alone.

    Of kinds that have run, normal operation tells enough.
    """

    def __init__(self, *, settle_s: float, horizon_s: float) -> None:
        """`horizon_s`: for how long a cheaper configuration would be run."""
        self._settle_s = settle_s
        self._terms = Terms(
            horizon_s=horizon_s, profile_s=2.0 * settle_s + _COMES_UP_S, measures_recovery=False, noise=0.1
        )
        self._heard: set[str] = set()
        self._silent = 0
        self._asked_at_s = -math.inf

    def news(self, situation: Situation) -> list[ProfileMeasurement]:
        """What copies have told since it was asked last."""
        told: list[ProfileMeasurement] = []
        for outcome in situation.profiles:
            if outcome.request_id in self._heard:
                continue
            self._heard.add(outcome.request_id)
            measured = [one for one in outcome.measurements if not one.detail]
            self._silent = 0 if measured else self._silent + 1
            told += measured
        return told

    def wants(
        self,
        situation: Situation,
        model: JobModel,
        candidates: Candidates,
        *,
        rate_per_s: float,
        proven: set[tuple[float, float]],
    ) -> Profile | None:
        """The profile that pays most; None where none does, or one was made a short time ago."""
        last_s = max((outcome.finished_at_s for outcome in situation.profiles), default=-math.inf)
        rested = situation.now_s >= last_s + _REST_S * 2.0 ** min(self._silent, 5)
        if situation.profile_on is not None or not rested or situation.now_s < self._asked_at_s + _ASK_EVERY_S:
            return None
        self._asked_at_s = situation.now_s
        outlook = model.outlook(candidates, prices=situation.prices, rate_per_s=rate_per_s)
        found = ask(candidates, outlook, situation.promises, situation.prices, terms=self._terms)
        wanted = tuple(one for one in found.configurations if kind_of(one) not in proven)
        if not wanted:
            return None
        return Profile(candidates=wanted, reason=found.reason, settle_s=self._settle_s, measure_s=self._settle_s)


def kind_of(configuration: Configuration) -> tuple[float, float]:
    """All of an executor that its speed depends on."""
    return configuration.slots_per_executor, configuration.cores_per_executor
