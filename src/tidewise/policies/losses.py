"""How often a job loses one of its executors, and how long it is until another has taken its place."""

from __future__ import annotations

from tidewise.core import JobStatus, Parameter, Situation
from tidewise.policies.frequency import Frequency

_LONGEST_LOOK_S = 60.0
"""Between two looks no more than this is taken to have been watched."""
_FADING = 0.5


class Losses:
    """Follows what is missing of what is meant to run."""

    def __init__(self, *, losses_per_day: float) -> None:
        self._losses = Frequency(usual_per_day=losses_per_day)
        self._looked_s: float | None = None
        self._missing_since_s: float | None = None
        self._down_since_s: float | None = None
        self._was_only_one = False
        self._replaced_s: float | None = None

    def look(self, situation: Situation) -> None:
        """Take in how the job stands at a decision."""
        now_s = situation.now_s
        if self._looked_s is not None:
            self._losses.watched(max(0.0, min(now_s - self._looked_s, _LONGEST_LOOK_S)))
        self._looked_s = now_s
        self._look_for_missing(situation)
        self._look_for_the_only_one(situation)

    def _look_for_the_only_one(self, situation: Situation) -> None:
        """Whether a job with one executor has lost that or something else, its reports do not tell: it counts half."""
        is_down = situation.latest.status is JobStatus.DOWN
        if is_down and self._down_since_s is None:
            self._down_since_s = situation.now_s
            self._was_only_one = situation.intended.executors == 1
            self._losses.happened(0.5 if self._was_only_one else 0.0)
        elif not is_down and self._down_since_s is not None:
            if self._was_only_one:
                self._took(situation.now_s - self._down_since_s, weight=0.5 * _FADING)
            self._down_since_s = None

    def _took(self, took_s: float, *, weight: float) -> None:
        before_s = took_s if self._replaced_s is None else self._replaced_s
        self._replaced_s = (1.0 - weight) * before_s + weight * took_s

    def _look_for_missing(self, situation: Situation) -> None:
        latest, runs, meant = situation.latest, situation.observed, situation.intended
        changed_s = situation.last_change_finished_at_s
        if situation.requested is not None or (
            changed_s is not None and latest.time_s - latest.window_s < changed_s <= situation.now_s
        ):
            self._missing_since_s = None  # executors come and go because they were asked to
            return
        lacks = runs.executors < meant.executors and runs.differs_from(meant) == {Parameter.EXECUTORS}
        if not lacks:
            if self._missing_since_s is not None:
                self._took(situation.now_s - self._missing_since_s, weight=_FADING)
            self._missing_since_s = None
        elif self._missing_since_s is None and all(seen.status is JobStatus.RUNNING for seen in situation.history):
            # One that has just come up again gathers its executors: that is part of its own failure.
            self._losses.happened()
            self._missing_since_s = latest.time_s - 0.5 * latest.window_s

    @property
    def per_s(self) -> float:
        """How many losses are to be expected."""
        return self._losses.per_s

    def replaced_s(self, joins_s: float) -> float:
        """How long an executor is missed; before any was, as long as one takes to join."""
        return joins_s if self._replaced_s is None else self._replaced_s
