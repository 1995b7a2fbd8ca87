"""What the policies spent, on what, and what quality it bought."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from tidewise.core import Purpose
from tidewise.experiments.comparison import Aggregate
from tidewise.report.drawing import Shown, bare
from tidewise.report.markup import figure_text

_HUES = {
    Purpose.EXECUTORS: "#2f86d0",
    Purpose.DRIVER: "#8a8f98",
    Purpose.DOUBLE_RUNNING: "#c065a0",
    Purpose.PROFILING: "#dd6a17",
    Purpose.CONTROLLER: "#12a378",
}


def purposes_figure(aggregates: Sequence[Aggregate]) -> go.Figure:
    """A bar per policy for cores and one for memory, divided by purpose; every run has a static one beside it."""
    figure = bare(110 + 40 * len(aggregates))
    make_subplots(
        rows=1, cols=2, shared_yaxes=True, horizontal_spacing=0.03, figure=figure, column_titles=["cores", "memory"]
    )
    labels = [figure_text(aggregate.policy) for aggregate in aggregates]
    for purpose, colour in _HUES.items():
        cores, memory = _shares(aggregates, purpose)
        if not any(cores) and not any(memory):
            continue
        for column, values in enumerate((cores, memory), start=1):
            figure.add_bar(
                x=values,
                y=labels,
                orientation="h",
                name=purpose.value,
                legendgroup=purpose.value,
                showlegend=column == 1,
                marker={"color": colour},
                hovertemplate=f"%{{y}}, {purpose.value}: %{{x:.2f}} of static's executors<extra></extra>",
                row=1,
                col=column,
            )
    figure.update_layout(barmode="stack", bargap=0.35, legend={"y": 1.08}, margin={"t": 70})
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False)
    figure.update_xaxes(title="over static's executors", rangemode="tozero")
    return figure


def _shares(aggregates: Sequence[Aggregate], purpose: Purpose) -> tuple[list[float], list[float]]:
    """Cores and memory of this purpose for each policy, means over its seeds."""
    cores, memory = [], []
    for aggregate in aggregates:
        found = [
            run.over_baseline.by_purpose[purpose]
            for run in aggregate.summaries
            if run.over_baseline is not None and purpose in run.over_baseline.by_purpose
        ]
        runs = len(aggregate.summaries)
        cores.append(sum(one.core for one in found) / runs)
        memory.append(sum(one.gib for one in found) / runs)
    return cores, memory


def quality_figure(aggregates: Sequence[Aggregate], shown: Sequence[Shown]) -> go.Figure:
    """Good seconds against what was spent over static, a mark per seed."""
    figure = bare(400)
    for aggregate, one in zip(aggregates, shown, strict=True):
        points = [
            (run.over_baseline.cost, 100 * run.good_share, run.record.seed)
            for run in aggregate.summaries
            if run.over_baseline is not None and run.over_baseline.cost is not None
        ]
        figure.add_scatter(
            x=[cost for cost, _, _ in points],
            y=[good for _, good, _ in points],
            mode="markers",
            name=one.label,
            text=[
                f"{one.label}, seed {seed}: {cost:.2f} of static's cost, {good:.1f} % good"
                for cost, good, seed in points
            ],
            hoverinfo="text",
            marker={"color": one.colour, "size": 11, "opacity": 0.85},
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title="cost over static's, everything counted", rangemode="tozero")
    figure.update_yaxes(title="good seconds (%)")
    return figure
