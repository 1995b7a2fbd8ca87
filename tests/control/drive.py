"""Drives a loop through a random list of steps, as an engine and people might."""

from __future__ import annotations

from collections.abc import Iterator

from tidewise.control import Handled, Input, Loop
from tidewise.core import (
    ChangeFinished,
    ChangeOutcome,
    ChangeStatus,
    ControllerStarted,
    Overridden,
    OverrideLifted,
    Paused,
    Reported,
    Resumed,
    Ticked,
)

from .fakes import config, observation


def drive(loop: Loop, steps: list[tuple[str, float, int]]) -> Iterator[Handled]:
    now_s = 0.0
    yield loop.handle(ControllerStarted(at_s=now_s, version="test", policy="test", configuration=config(4)))
    for what, wait_s, number in steps:
        now_s += wait_s
        yield loop.handle(_event(loop, what, now_s, number))


def _event(loop: Loop, what: str, now_s: float, number: int) -> Input:
    runs = loop.state.observed or config(4)
    change = loop.state.change
    if what == "report":
        late = number % 3 == 0
        seen = observation(now_s, runs, rate_per_s=number * 100.0, latency_s=9.0 if late else 1.0)
        return Reported(at_s=now_s, observation=seen)
    people: dict[str, Input] = {
        "pause": Paused(at_s=now_s, by="ada"),
        "resume": Resumed(at_s=now_s, by="ada"),
        "override": Overridden(at_s=now_s, by="ada", target=config(number)),
        "lift": OverrideLifted(at_s=now_s, by="ada"),
    }
    if what in people:
        return people[what]
    if what in {"finish", "fail"} and change is not None:
        status = ChangeStatus.APPLIED if what == "finish" else ChangeStatus.FAILED
        ran = change.request.target if what == "finish" else config(number)
        outcome = ChangeOutcome(
            request_id=change.request.request_id, status=status, finished_at_s=now_s, configuration=ran, detail="Told."
        )
        return ChangeFinished(at_s=now_s, outcome=outcome)
    return Ticked(at_s=now_s)
