"""The figures of one scenario; each answers one question and has its units on its axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from tidewise.core import Censored
from tidewise.experiments.measures import SLOW_RECOVERY_S, counted_latency_s, undecided_seconds, waited_s
from tidewise.report.downsample import Reduce, binned
from tidewise.report.drawing import Shown, TimeAxis, bare, mark_faults, over_time, rows_by_policy
from tidewise.report.markup import figure_text
from tidewise.report.palette import ALARM, NEUTRAL

_LOWEST_LATENCY_S = 0.001  # a log axis cannot show zero
_SHARES = (1.0, 0.1, 0.01, 0.001, 0.0001, 0.00001)


def load_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure:
    """What came in, and what a naive forecast would have expected: the same for every policy, so one line."""
    figure = bare(320)
    load = binned(shown[0].series.input_rate_per_s, axis.width_s, np.nanmean)
    figure.add_scatter(**axis.spacing, y=load, mode="lines", name="load", line={"color": NEUTRAL, "width": 2.4})
    told = next((one.series.forecast_per_s for one in shown if not np.isnan(one.series.forecast_per_s).all()), None)
    if told is not None:
        figure.add_scatter(
            **axis.spacing,
            y=binned(told, axis.width_s, np.nanmean),
            mode="lines",
            name="naive forecast, for comparison",
            line={"color": NEUTRAL, "dash": "dot", "width": 1.5},
        )
    figure.update_layout(showlegend=True)
    figure.update_yaxes(title="records per second", rangemode="tozero")
    return over_time(figure, axis)


def latency_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure:
    """Latency of each policy in a row of its own: lines over each other would hide what matters."""
    figure = rows_by_policy(shown, 125)
    medians = [_latency_s(one, axis, np.nanmedian) for one in shown]
    worst = [_latency_s(one, axis, np.nanmax) for one in shown]
    finite = np.concatenate([values[np.isfinite(values)] for values in (*medians, *worst)])
    low_s, high_s = (float(finite.min()), float(finite.max())) if finite.size else (0.1, 10.0)
    for row, (one, median, most) in enumerate(zip(shown, medians, worst, strict=True), start=1):
        place = {"row": row, "col": 1}
        thin = {"color": one.colour, "width": 0.8}
        figure.add_scatter(
            **axis.spacing, y=_drawn(most), mode="lines", name="slowest second", line=thin, opacity=0.5, **place
        )
        figure.add_scatter(**axis.spacing, y=_drawn(median), mode="lines", name="median", line=one.line, **place)
        never = np.flatnonzero(np.isinf(most))
        if never.size:
            figure.add_scatter(
                x=never * axis.width_s / axis.unit_s,
                y=np.full(never.size, high_s * 1.5),
                mode="markers",
                marker={"symbol": "triangle-up", "color": ALARM, "size": 7},
                name="never output",
                cliponaxis=False,
                **place,
            )
        limit_s = one.summary.good_limit_s
        if limit_s is not None:
            figure.add_hline(y=limit_s, line={"color": NEUTRAL, "dash": "dash", "width": 1}, **place)
    mark_faults(figure, shown, axis)
    figure.update_yaxes(
        type="log",
        title={"text": "latency", "font": {"size": 11}},
        range=[np.log10(low_s / 1.5), np.log10(high_s * 3)],
        tickvals=[10.0**power for power in range(-3, 6)],
        ticktext=["1 ms", "10 ms", "0.1 s", "1 s", "10 s", "100 s", "1,000 s", "10,000 s", "100,000 s"],
    )
    figure.update_layout(showlegend=False)
    return over_time(figure, axis)


def _latency_s(one: Shown, axis: TimeAxis, reduce: Reduce) -> npt.NDArray[np.float32]:
    median_s = one.series.latency_p50_s
    undecided = undecided_seconds(one.series, median_s, one.summary.good_limit_s)
    latency_s = np.where(undecided, np.nan, np.maximum(waited_s(one.series, median_s), _LOWEST_LATENCY_S))
    return binned(latency_s, axis.width_s, reduce)


def _drawn(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return np.where(np.isinf(values), np.float32(np.nan), values)


def distribution_figure(shown: Sequence[Shown]) -> go.Figure:
    """The share of all seconds that were slower than a given latency, down to the rarest."""
    figure = bare(400)
    for one in shown:
        latency_s = np.sort(counted_latency_s(one.series, one.series.latency_p50_s, one.summary.good_limit_s))[::-1]
        if not latency_s.size:
            continue
        ranks = np.unique(np.geomspace(1, latency_s.size, 300).round().astype(np.int64))
        at_s = np.maximum(latency_s[ranks - 1], _LOWEST_LATENCY_S)
        share = ranks / latency_s.size
        drawn = np.isfinite(at_s)
        figure.add_scatter(
            x=at_s[drawn].astype(np.float32),
            y=share[drawn].astype(np.float32),
            mode="lines",
            name=one.label,
            line=one.line,
        )
    limit_s = shown[0].summary.good_limit_s
    if limit_s is not None:
        figure.add_vline(
            x=limit_s,
            line={"color": NEUTRAL, "dash": "dash", "width": 1},
        )
        figure.add_annotation(
            text="limit of a good second",
            x=np.log10(limit_s),  # annotations on a log axis are placed by the exponent
            y=1,
            yref="paper",
            xanchor="left",
            yanchor="top",
            showarrow=False,
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", title="latency (s)", dtick=1, exponentformat="none")
    figure.update_yaxes(
        type="log",
        title="seconds that were slower",
        tickvals=list(_SHARES),
        ticktext=[f"{100 * share:g} %" for share in _SHARES],
    )
    return figure


def recovery_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure:
    """One dot per failure; an open triangle where the recovery was cut off."""
    figure = bare(90 + 58 * len(shown))
    for place, one in enumerate(reversed(shown)):
        recoveries = one.summary.recoveries
        cut = [isinstance(recovery.took_s, Censored) for recovery in recoveries]
        figure.add_scatter(
            x=[recovery.at_least_s for recovery in recoveries],
            # Moved up and down by turns, so that equal times do not hide each other.
            y=[place + 0.11 * (index % 5 - 2) for index in range(len(recoveries))],
            mode="markers",
            name=one.label,
            text=[
                f"{figure_text(recovery.fault.kind)} at {axis.at(recovery.fault.at_s):.2f} {axis.unit}: "
                f"{'at least ' if censored else ''}{recovery.at_least_s:.0f} s"
                for recovery, censored in zip(recoveries, cut, strict=True)
            ],
            hoverinfo="text",
            marker={
                "color": one.colour,
                "size": 9,
                "opacity": 0.8,
                "symbol": ["triangle-right-open" if censored else "circle" for censored in cut],
            },
        )
        if recoveries:
            mean_s = float(np.mean([recovery.at_least_s for recovery in recoveries]))
            figure.add_scatter(
                x=[mean_s],
                y=[place],
                mode="markers",
                text=[f"mean of {one.label}: {mean_s:.0f} s"],
                hoverinfo="text",
                marker={"symbol": "line-ns", "size": 34, "line": {"width": 3, "color": one.colour}},
            )
    figure.add_vline(
        x=SLOW_RECOVERY_S,
        line={"color": ALARM, "dash": "dash", "width": 1},
        annotation_text=f"{SLOW_RECOVERY_S:.0f} s",
        annotation_position="top",
    )
    figure.update_layout(showlegend=False)
    longest_s = max([r.at_least_s for one in shown for r in one.summary.recoveries], default=0.0)
    reach_s = 1.05 * max(longest_s, SLOW_RECOVERY_S)
    figure.update_xaxes(title="recovery time (s)", range=[-0.02 * reach_s, reach_s], zeroline=False)
    figure.update_yaxes(
        tickvals=list(range(len(shown))),
        ticktext=[one.label for one in reversed(shown)],
        range=[-0.6, len(shown) - 0.4],
        showgrid=False,
        zeroline=False,
        automargin=True,
    )
    return figure


def resources_figure(shown: Sequence[Shown], axis: TimeAxis) -> go.Figure:
    """What was paid for, executors only."""
    figure = bare(470, rows=2)
    for one in shown:
        paid = {"cores": one.series.cores, "memory (GiB)": one.series.memory_mib / 1024}
        for row, (title, values) in enumerate(paid.items(), start=1):
            figure.add_scatter(
                **axis.spacing,
                y=binned(values, axis.width_s, np.nanmean),
                mode="lines",
                name=one.label,
                legendgroup=one.label,
                showlegend=row == 1,
                line={**one.line, "shape": "hv"},
                row=row,
                col=1,
            )
            figure.update_yaxes(title=title, rangemode="tozero", row=row, col=1)
    return over_time(figure, axis)
