"""A run while it is on: a picture for a terminal that is drawn anew each second, or a line now and then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidewise.core import Configuration, Decided, Observation, Promises, Reconfigure, format_duration
from tidewise.experiments.live import LiveView, Observer

_BARS = " ▁▂▃▄▅▆▇█"
_NO_BAR = "·"
_NAME_WIDTH = 13
_VALUE_WIDTH = 11
_REASONS_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What stays the same from one picture to the next."""

    title: str
    promises: Promises
    most_executors: int
    currency: str
    time_of: Callable[[float], str]
    """The time to show, after so many seconds of the run."""
    static_cost: Callable[[LiveView], float]
    """What the largest configuration would have cost until now."""
    report_every_s: float
    line_every_s: float = 10.0
    """How often a line is printed where no picture can be shown."""


@dataclass(slots=True)
class Story:
    """What has been seen of a run: one entry per report, and the decisions that changed something."""

    frame: Frame
    reports: list[Observation] = field(default_factory=list)
    moves: list[tuple[str, str]] = field(default_factory=list)
    """When, and what and why."""
    latest: LiveView | None = None
    _asked_for: Configuration | None = None

    def add(self, view: LiveView) -> None:
        """Take in the run at one moment."""
        seen = view.observation
        if seen is not None and seen.time_s > view.began_s and (not self.reports or seen != self.reports[-1]):
            self.reports.append(seen)
        if view.requested is not None and view.requested != self._asked_for and view.decided is not None:
            self.moves.append((self.frame.time_of(view.now_s), _move(view)))
        self._asked_for = view.requested
        self.latest = view


def _move(view: LiveView) -> str:
    target, current = view.requested, view.observed
    why = view.decided.decision.reason.sentence if view.decided is not None else ""
    if target is None or current is None:
        return why
    return f"{current.executors} → {target.executors} executors: {why}"


def picture(story: Story, *, width: int) -> RenderableType:
    """The run as it stands, in lines no longer than this."""
    frame, view = story.frame, story.latest
    if view is None:
        return Text(frame.title, style="bold")
    room = max(10, width - _NAME_WIDTH - _VALUE_WIDTH - 2)
    reports = story.reports[-room:]
    limit_s = frame.promises.latency_p95_s
    last = story.reports[-1] if story.reports else None
    rows = Table.grid(padding=(0, 1))
    rows.add_column(width=_NAME_WIDTH, no_wrap=True)
    rows.add_column(width=_VALUE_WIDTH, justify="right", no_wrap=True)
    rows.add_column(width=room, no_wrap=True)
    rates = [report.load_per_s for report in reports]
    backlogs = [report.backlog_records for report in reports]
    executors = [float(report.configuration.executors) for report in reports]
    rows.add_row("load", "" if last is None else f"{last.load_per_s:,.0f}/s", bars(rates, style="cyan"))
    rows.add_row("latency p95", _seconds(last), _latency_bars(reports, limit_s))
    rows.add_row("backlog", "" if last is None else f"{last.backlog_records:,.0f}", bars(backlogs, style="yellow"))
    rows.add_row("executors", _executors(view), bars(executors, top=float(frame.most_executors), style="green"))
    rows.add_row("", "", Text(f"each column: {format_duration(frame.report_every_s)}", style="dim"))
    promised = "" if limit_s is None else f", latency promised within {limit_s:g} s"
    head = Table.grid(expand=False)
    head.add_column(width=max(10, width - 13), no_wrap=True)
    head.add_column(width=12, justify="right", no_wrap=True)
    head.add_row(Text(f"{frame.title}{promised}", style="bold"), Text(frame.time_of(view.now_s), style="bold"))
    return Group(head, Text(), rows, Text(), _money(story, view), Text(), *_reasons(story, view, width))


def bars(values: Sequence[float | None], *, style: str, top: float | None = None) -> Text:
    """One small bar per value; what is not known is a dot."""
    known = [value for value in values if value is not None]
    top = max(known, default=0.0) if top is None else top
    return Text("".join(_bar(value, top) for value in values), style=style)


def _bar(value: float | None, top: float) -> str:
    if value is None:
        return _NO_BAR
    if value <= 0.0 or top <= 0.0:
        return _BARS[0]
    # Never invisible: little is not nothing.
    return _BARS[max(1, min(8, round(8 * value / top)))]


def _latency_bars(reports: Sequence[Observation], limit_s: float | None) -> Text:
    """Full height is twice what was promised; red is above it."""
    values = [report.latency_p95_s for report in reports]
    if limit_s is None:
        return bars(values, style="green")
    text = Text()
    for value in values:
        broken = value is None or value > limit_s
        text.append(_bar(value, 2.0 * limit_s), style="red" if broken else "green")
    return text


def _seconds(last: Observation | None) -> str:
    if last is None:
        return ""
    return "no output" if last.latency_p95_s is None else f"{last.latency_p95_s:.1f} s"


def _executors(view: LiveView) -> str:
    if view.observed is None:
        return ""
    now = view.observed.executors
    wanted = view.requested
    return str(now) if wanted is None or wanted.executors == now else f"{now} → {wanted.executors}"


def _money(story: Story, view: LiveView) -> Text:
    static = story.frame.static_cost(view)
    text = Text(f"cost so far {view.cost:.2f} {story.frame.currency}; static {static:.2f} {story.frame.currency}")
    if static > 0.0:
        text.append(f": {100 * (1 - view.cost / static):.0f} % saved", style="bold")
    return text


def _reasons(story: Story, view: LiveView, width: int) -> Iterator[Text]:
    for when, what in story.moves[-_REASONS_SHOWN:]:
        move = Text(f"{when}  {what}", no_wrap=True)
        move.truncate(width, overflow="ellipsis")
        yield move
    if view.decided is not None:
        yield Text(f"now    {_sentence(view.decided)}", style="dim")


def _sentence(decided: Decided) -> str:
    sentence = decided.decision.reason.sentence
    if isinstance(decided.decision, Reconfigure) and decided.vetoed:
        return f"{sentence} Not done: {' '.join(verdict.reason.sentence for verdict in decided.verdicts)}"
    return sentence


def line(story: Story) -> str:
    """The run as it stands, in one line of plain text."""
    frame, view = story.frame, story.latest
    if view is None:
        return frame.title
    parts = [frame.time_of(view.now_s)]
    if story.reports:
        last = story.reports[-1]
        parts.append(f"load {last.load_per_s:,.0f}/s")
        limit_s = frame.promises.latency_p95_s
        promised = "" if limit_s is None else f" (promised {limit_s:g} s)"
        parts.append(f"latency p95 {_seconds(last)}{promised}")
        parts.append(f"backlog {last.backlog_records:,.0f}")
    parts.append(f"executors {_executors(view)}")
    parts.append(f"cost {view.cost:.2f} {frame.currency}")
    if view.decided is not None:
        parts.append(_sentence(view.decided))
    return "  ".join(parts)


@contextmanager
def watching(frame: Frame, *, screen: Console, quiet: bool, is_drawn: bool = True) -> Iterator[Observer]:
    """Show a run while it is on: a picture on a terminal, if it may be drawn, elsewhere a line now and then."""
    story = Story(frame)
    if quiet:
        yield story.add
        return
    if not screen.is_terminal or not is_drawn:
        yield _Lines(story, screen)
        return
    with Live(picture(story, width=screen.width), console=screen, auto_refresh=False) as live:

        def show(view: LiveView) -> None:
            story.add(view)
            live.update(picture(story, width=screen.width), refresh=True)

        yield show


class _Lines:
    """Prints a line when it is time for one."""

    def __init__(self, story: Story, screen: Console) -> None:
        self._story = story
        self._screen = screen
        self._next_s = 0.0

    def __call__(self, view: LiveView) -> None:
        self._story.add(view)
        if view.now_s >= self._next_s or view.ended is not None:
            self._next_s = view.now_s + self._story.frame.line_every_s
            self._screen.print(line(self._story), highlight=False, markup=False, soft_wrap=True)
