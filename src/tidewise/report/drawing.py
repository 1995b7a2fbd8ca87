"""What all figures have in common: a policy's look, the axis of time, rows by policy, and the marks of failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tidewise.experiments.measures import Summary
from tidewise.experiments.series import Series
from tidewise.report.downsample import bin_width_s
from tidewise.report.markup import figure_text
from tidewise.report.palette import ALARM


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """One policy's run as the figures show it."""

    policy: str
    colour: str
    dash: str
    summary: Summary
    series: Series

    @property
    def label(self) -> str:
        return figure_text(self.policy)

    @property
    def line(self) -> dict[str, str | float]:
        return {"color": self.colour, "dash": self.dash, "width": 1.6}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeAxis:
    """Hours for long runs, minutes or seconds for short ones."""

    unit: str
    unit_s: float
    width_s: int
    """Seconds per point."""
    seconds: int
    """How long it is."""

    def at(self, time_s: float) -> float:
        return time_s / self.unit_s

    @property
    def spacing(self) -> dict[str, float]:
        """Points at even distances need no list of their own, which halves the size of the page."""
        return {"x0": 0.0, "dx": self.width_s / self.unit_s}


def time_axis(seconds: int) -> TimeAxis:
    """The axis for runs of this length."""
    unit, unit_s = ("h", 3600.0) if seconds > 7200 else ("min", 60.0) if seconds > 300 else ("s", 1.0)
    return TimeAxis(unit=unit, unit_s=unit_s, width_s=bin_width_s(seconds), seconds=seconds)


def bare(height: int, *, rows: int = 1, row_titles: Sequence[str] = ()) -> go.Figure:
    """A figure without colours of its own: the page gives it those of the reader's theme."""
    figure = go.Figure(layout={"template": "none"})
    if rows > 1 or row_titles:
        gap = 0.0 if rows == 1 else min(0.05, 0.25 / (rows - 1))
        make_subplots(rows=rows, cols=1, shared_xaxes=True, vertical_spacing=gap, figure=figure)
    for row, title in enumerate(row_titles, start=1):
        # Inside its row, where no narrow screen can cut it off.
        figure.add_annotation(
            text=f"<b>{title}</b>",
            xref="paper",
            yref=f"y{'' if row == 1 else row} domain",
            x=0.006,
            y=0.98,
            xanchor="left",
            yanchor="top",
            showarrow=False,
        )
    return figure.update_layout(
        height=height,
        margin={"l": 60, "r": 12, "t": 30, "b": 46},
        legend={"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        hovermode="closest",
    )


def rows_by_policy(shown: Sequence[Shown], row_height: int) -> go.Figure:
    """One row per policy, all with the same axis of time."""
    return bare(90 + row_height * len(shown), rows=len(shown), row_titles=[one.label for one in shown])


def over_time(figure: go.Figure, axis: TimeAxis) -> go.Figure:
    """The axis of time, named below the last row."""
    figure.update_xaxes(range=[0, 1.004 * axis.at(axis.seconds)])
    last = max((name for name in figure.layout if name.startswith("xaxis")), key=lambda name: int(name[5:] or 1))
    figure.layout[last].title = {"text": f"time since the start ({axis.unit})"}
    return figure


def mark_faults(figure: go.Figure, shown: Sequence[Shown], axis: TimeAxis) -> None:
    """A thin line through all rows for every failure; the same plan breaks every policy's job at the same times."""
    times_s = sorted({fault.at_s for one in shown for fault in one.summary.record.faults})
    for time_s in times_s:
        figure.add_shape(
            type="line",
            x0=axis.at(time_s),
            x1=axis.at(time_s),
            y0=0,
            y1=1,
            yref="paper",
            layer="below",
            line={"color": ALARM, "width": 0.8, "dash": "dot"},
            opacity=0.7,
        )
