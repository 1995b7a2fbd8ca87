"""A job under test: waits with deadlines on the engine's own clock, and keeps every report it was given."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TypeVar

import pytest

from tidewise.core import (
    ChangeOutcome,
    ChangeRequest,
    Configuration,
    Engine,
    Mechanism,
    Observation,
    Origin,
    ProfileRequest,
    Reason,
    RunningJob,
    format_duration,
)

Found = TypeVar("Found")
_REASON = Reason(code="conformance", sentence="A conformance suite tries what the engine can do.")


class Session:
    """One launched job; tests share it, because to launch a real one takes long."""

    def __init__(self, engine: Engine, start: Configuration, *, poll_s: float) -> None:
        """Launch the job."""
        self.engine = engine
        self.poll_s = poll_s
        self.job: RunningJob = engine.launch(start)
        self.expected = start
        """What should run, as far as the suite has been told: the start, then the target of each applied change."""
        self.reports: list[Observation] = []
        """Every report, in the order in which they were given."""

    @property
    def now_s(self) -> float:
        return self.engine.clock.now_s()

    def drain(self) -> list[Observation]:
        """The new reports, which are kept as well."""
        new = list(self.job.reports())
        self.reports += new
        return new

    def pass_time(self, seconds: float) -> None:
        """Let this much time go by, taking in the reports meanwhile."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.engine.clock.wait_until(min(until_s, self.now_s + self.poll_s))
            self.drain()

    def wait_for(self, what: str, condition: Callable[[], Found | None], *, within_s: float) -> Found:
        """The first result of the condition that is neither None nor False; the test fails where none comes in time."""
        deadline_s = self.now_s + within_s
        while True:
            self.drain()
            result = condition()
            if result is not None and result is not False:
                return result
            if self.now_s >= deadline_s:
                pytest.fail(f"{what}: not within {format_duration(within_s)}")
            self.engine.clock.wait_until(min(deadline_s, self.now_s + self.poll_s))

    def new_reports(self, count: int, *, within_s: float) -> list[Observation]:
        """The next reports."""
        start = len(self.reports)
        return self.wait_for(
            f"{count} new reports",
            lambda: self.reports[start:] if len(self.reports) >= start + count else None,
            within_s=within_s,
        )

    def change_request(self, target: Configuration, mechanism: Mechanism, *, within_s: float) -> ChangeRequest:
        """A request with a new id."""
        return ChangeRequest(
            request_id=f"conformance-{uuid.uuid4().hex}",
            origin=Origin.OPERATOR,
            source=self.job.observed(),
            target=target,
            mechanism=mechanism,
            requested_at_s=self.now_s,
            deadline_s=self.now_s + within_s,
            reason=_REASON,
        )

    def profile_request(
        self,
        candidate: Configuration,
        *,
        settle_s: float,
        measure_s: float,
        within_s: float,
        recovery_limit_s: float | None = None,
    ) -> ProfileRequest:
        """A request to measure one candidate, with a new id; with a limit, its recovery from a failure as well."""
        return ProfileRequest(
            request_id=f"conformance-{uuid.uuid4().hex}",
            candidates=(candidate,),
            settle_s=settle_s,
            measure_s=measure_s,
            inject_failure=recovery_limit_s is not None,
            recovery_limit_s=recovery_limit_s or 1.0,
            requested_at_s=self.now_s,
            deadline_s=self.now_s + within_s,
            reason=_REASON,
        )

    def outcome_of(self, request: ChangeRequest) -> ChangeOutcome:
        """How a change ended, once it has."""
        within_s = request.deadline_s - request.requested_at_s
        what = f"the end of the change by {request.mechanism} to {request.target}"
        outcome = self.wait_for(what, lambda: self.job.change_outcome(request.request_id), within_s=within_s)
        self.expected = outcome.configuration
        return outcome

    def expect_observed(self, *, within_s: float) -> None:
        """Wait until what should run does."""
        self.wait_for(f"{self.expected} observed", lambda: self.job.observed() == self.expected, within_s=within_s)
