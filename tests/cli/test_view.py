"""The view of a run, rendered to text from made-up moments."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tidewise.cli.view import Frame, Story, bars, line, picture, watching
from tidewise.core import (
    Configuration,
    Decided,
    JobStatus,
    Keep,
    LatencyMethod,
    Mechanism,
    Observation,
    Origin,
    Promises,
    Reason,
    Reconfigure,
)
from tidewise.core.events import GuardVerdict, Verdict
from tidewise.experiments.live import LiveView

WIDTH = 80
FRAME = Frame(
    title="A day in 4 min on Spark",
    promises=Promises(latency_p95_s=5.0),
    most_executors=4,
    currency="USD",
    time_of=lambda now_s: f"{int(now_s):02d}:00",
    static_cost=lambda view: 2.0 * view.now_s,
    report_every_s=5.0,
)


def _seen(
    time_s: float, *, executors: int = 1, latency_s: float | None = 2.0, rate_per_s: float = 900.0
) -> Observation:
    return Observation(
        time_s=time_s,
        window_s=5.0,
        configuration=Configuration(executors=executors),
        status=JobStatus.RUNNING,
        input_rate_per_s=rate_per_s,
        processed_rate_per_s=rate_per_s,
        backlog_records=1234.0,
        latency_p50_s=latency_s,
        latency_p95_s=latency_s,
        latency_p99_s=latency_s,
        latency_method=LatencyMethod.EVENT_TIME,
    )


def _keep(sentence: str) -> Decided:
    decision = Keep(reason=Reason(code="within-tolerance", sentence=sentence))
    return Decided(at_s=0.0, origin=Origin.POLICY, decision=decision)


def _view(
    now_s: float,
    *,
    observation: Observation | None = None,
    requested: Configuration | None = None,
    decided: Decided | None = None,
    ended: str | None = None,
) -> LiveView:
    return LiveView(
        now_s=now_s,
        duration_s=240.0,
        observation=observation,
        began_s=100.0,
        observed=Configuration(executors=1) if observation is None else observation.configuration,
        intended=None,
        requested=requested,
        decided=decided,
        last_change=None,
        changes=0,
        meter={},
        cost=1.5 * now_s,
        recoveries=(),
        faults=(),
        audits=(),
        problems=(),
        paused_by=None,
        ended=ended,
    )


def _rendered(story: Story, width: int = WIDTH) -> list[str]:
    screen = Console(width=width, file=io.StringIO(), color_system=None)
    with screen.capture() as told:
        screen.print(picture(story, width=width))
    return [text.rstrip() for text in told.get().splitlines()]


def _row(lines: list[str], name: str) -> str:
    (found,) = [text for text in lines if text.startswith(name)]
    return found


def test_a_day_is_drawn_column_by_column() -> None:
    story = Story(FRAME)
    for step, executors in enumerate((1, 1, 2, 4), start=1):
        seen = _seen(100.0 + 5 * step, executors=executors, rate_per_s=250.0 * step)
        story.add(_view(5.0 * step, observation=seen, decided=_keep("It stays.")))
    lines = _rendered(story)
    assert "A day in 4 min on Spark" in lines[0]
    assert lines[0].endswith("20:00")
    assert _row(lines, "load").endswith("1,000/s ▂▄▆█")
    assert _row(lines, "executors").endswith("4 ▂▂▄█")
    assert _row(lines, "latency p95").endswith("2.0 s ▂▂▂▂")
    assert "1,234" in _row(lines, "backlog")
    assert "each column: 5 s" in " ".join(lines)
    assert "cost so far 30.00 USD; static 40.00 USD: 25 % saved" in lines
    assert lines[-1] == "now    It stays."
    assert max(map(len, lines)) <= WIDTH


def test_a_report_is_drawn_once_however_often_it_is_told_and_not_if_it_is_from_before_the_run() -> None:
    story = Story(FRAME)
    story.add(_view(0.0, observation=_seen(99.0)))
    for now_s in (5.0, 6.0, 7.0):
        story.add(_view(now_s, observation=_seen(105.0)))
    assert len(story.reports) == 1


def test_latency_above_the_promise_is_red_and_no_output_too() -> None:
    story = Story(FRAME)
    for step, latency_s in enumerate((2.0, 7.0, None), start=1):
        story.add(_view(5.0 * step, observation=_seen(100.0 + 5 * step, latency_s=latency_s)))
    screen = Console(width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="standard")
    with screen.capture() as told:
        screen.print(picture(story, width=WIDTH))
    row = next(text for text in told.get().splitlines() if text.startswith("latency"))
    assert "no output" in row
    assert "\x1b[32m▂\x1b[0m\x1b[31m▆\x1b[0m\x1b[31m·\x1b[0m" in row


def test_a_move_stays_to_be_read_with_its_time_and_reason() -> None:
    story = Story(FRAME)
    target = Configuration(executors=3)
    reason = Reason(code="scale-up", sentence="CPU at 90 % against a target of 65 % asks for 3 executors instead of 1.")
    decided = Decided(at_s=0.0, origin=Origin.POLICY, decision=Reconfigure(target=target, reason=reason))
    for now_s in (7.0, 8.0):
        story.add(_view(now_s, observation=_seen(105.0), requested=target, decided=decided))
    assert "1 → 3" in _row(_rendered(story), "executors")
    story.add(_view(12.0, observation=_seen(110.0, executors=3), decided=_keep("Near enough.")))
    lines = _rendered(story, width=120)
    assert "07:00  1 → 3 executors: CPU at 90 % against a target of 65 % asks for 3 executors instead of 1." in lines
    assert len(story.moves) == 1
    assert max(map(len, _rendered(story, width=40))) <= 40


def test_a_veto_is_told_with_the_wish() -> None:
    story = Story(FRAME)
    target = Configuration(executors=2)
    wish = Reconfigure(
        target=target, reason=Reason(code="scale-up", sentence="More is needed."), mechanism=Mechanism.LIVE
    )
    cooling = Reason(code="cooldown", sentence="The last change is too fresh.")
    veto = GuardVerdict(guard="cooldown", verdict=Verdict.VETO, reason=cooling)
    story.add(_view(5.0, decided=Decided(at_s=0.0, origin=Origin.POLICY, decision=wish, verdicts=(veto,))))
    assert _rendered(story)[-1] == "now    More is needed. Not done: The last change is too fresh."


def test_before_the_first_report_there_is_a_picture_too() -> None:
    story = Story(FRAME)
    assert _rendered(story) == ["A day in 4 min on Spark"]
    story.add(_view(0.0))
    assert _row(_rendered(story), "executors").endswith("1")


@pytest.mark.parametrize(
    ("values", "drawn"), [([0.0, 0.001, 0.5, 1.0], " ▁▄█"), ([None, 1.0], "·█"), ([], ""), ([0.0, 0.0], "  ")]
)
def test_bars(values: list[float | None], drawn: str) -> None:
    assert bars(values, style="green").plain == drawn


def test_without_a_terminal_a_line_comes_every_ten_seconds_and_at_the_end() -> None:
    told = io.StringIO()
    with watching(FRAME, screen=Console(width=200, file=told), quiet=False) as observer:
        for second in range(26):
            ended = "the time is over" if second == 25 else None
            observer(_view(float(second), observation=_seen(105.0), decided=_keep("It stays."), ended=ended))
    lines = told.getvalue().splitlines()
    assert [text[:5] for text in lines] == ["00:00", "10:00", "20:00", "25:00"]
    assert lines[0] == (
        "00:00  load 900/s  latency p95 2.0 s (promised 5 s)  backlog 1,234  executors 1  cost 0.00 USD  It stays."
    )


def test_quiet_says_nothing() -> None:
    told = io.StringIO()
    with watching(FRAME, screen=Console(file=told), quiet=True) as observer:
        observer(_view(1.0, observation=_seen(105.0)))
    assert told.getvalue() == ""


def test_a_line_before_anything_is_known() -> None:
    assert line(Story(FRAME)) == "A day in 4 min on Spark"
