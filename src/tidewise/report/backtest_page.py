"""The page of a backtest: for every load the table, the errors, the intervals, and what the best model had said."""

from __future__ import annotations

from collections.abc import Mapping

from tidewise.core import format_duration
from tidewise.experiments.backtest import INTERVAL_SHARE, Backtest, Score, Subject
from tidewise.experiments.backtest_origins import BLOCK_S
from tidewise.report import palette
from tidewise.report.backtest_table import BLOCK_NAMES, COLUMNS, percents
from tidewise.report.downsample import thinned
from tidewise.report.drawing import bare
from tidewise.report.markup import anchor, figure_text, page_text
from tidewise.report.palette import NEUTRAL
from tidewise.report.parts import Figure, chip, definitions_part, figure_parts, list_part, table_part, whole_page

BASELINE = "naive"


def backtest_page(backtest: Backtest, *, title: str = "Forecasts, judged on the past") -> str:
    """The page, as HTML; the same backtest gives the same page."""
    places = {
        f"load-{number}-{anchor(subject.load)}": (subject, backtest.scores(subject))
        for number, subject in enumerate(backtest.subjects, start=1)
    }
    links = "".join(
        f'<li><a href="#{place}">{page_text(subject.load)}</a></li>' for place, (subject, _) in places.items()
    )
    origins = sum(len(subject.origins) * len(subject.samples) for subject in backtest.subjects)
    return whole_page(
        title=title,
        origin=f"{len(backtest.settings.models)} models on {len(places)} loads, {origins:,} origins for each model.",
        headlines=list_part([backtest_headline(subject, scores) for subject, scores in places.values()]),
        contents=f'<ul>{links}<li><a href="#definitions">Definitions</a></li></ul>',
        sections=[_section(place, backtest, subject, scores) for place, (subject, scores) in places.items()],
        definitions=definitions_part([(column.title, column.meaning) for column in COLUMNS]),
        runs=list_part([f"{subject.load}: {subject_facts(subject, backtest)}" for subject in backtest.subjects]),
    )


def backtest_headline(subject: Subject, scores: Mapping[str, Score]) -> str:
    """Which model was best over the next ten minutes, beside the one that every model has to beat."""
    best = best_model(scores)
    if best is None:
        return f"{subject.load}: nothing came in the first ten minutes after any origin."
    error = scores[best].wape[0] or 0.0
    said = f"{subject.load}: {best} has the least error over the next ten minutes, {percents(error)}"
    baseline = scores[BASELINE].wape[0] if BASELINE in scores else None
    if best == BASELINE or not baseline:
        return f"{said}."
    return f"{said}; {BASELINE} has {percents(baseline)}."


def best_model(scores: Mapping[str, Score]) -> str | None:
    """The one with the least error in the first block; None where nothing came there."""
    known = {model: score.wape[0] for model, score in scores.items() if score.wape[0] is not None}
    return min(known, key=lambda model: known[model] or 0.0) if known else None


def subject_facts(subject: Subject, backtest: Backtest) -> str:
    """How the load was judged, in one line."""
    settings = backtest.settings
    samples = len(next(iter(subject.samples.values())))
    facts = [
        f"{samples:,} samples of {format_duration(settings.sample_s)}",
        f"{len(subject.origins):,} origins, one every {format_duration(settings.every_s)}",
    ]
    if subject.compressed != 1.0:
        facts.append(f"every row is one sample: its time runs {subject.compressed:.4g} times as fast")
    if settings.noise_share:
        facts.append(f"{100 * settings.noise_share:g} % noise on every second")
    seeds = ", ".join(str(seed) for seed in subject.samples)
    return " · ".join([*facts, f"{'seed' if len(subject.samples) == 1 else 'seeds'} {seeds}"])


def _section(place: str, backtest: Backtest, subject: Subject, scores: Mapping[str, Score]) -> str:
    colours = palette.colours(scores)
    figures = [_errors(scores, colours), _coverage(scores, colours)]
    best = best_model(scores)
    if best is not None:
        figures.append(_ahead(backtest, subject, best, colours[best]))
    parts = [
        f'<section id="{place}">',
        f"<h2>{page_text(subject.load)}</h2>",
        f'<p class="facts">{page_text(subject_facts(subject, backtest))}</p>',
        _table(scores, colours),
    ]
    for number, figure in enumerate(figures, start=1):
        parts += figure_parts(f"{place}-figure-{number}", figure)
    return "\n".join([*parts, "</section>"])


def _table(scores: Mapping[str, Score], colours: Mapping[str, str]) -> str:
    head = "".join(f'<th scope="col">{page_text(title)}</th>' for title in ("model", *(one.title for one in COLUMNS)))
    columns = [column.cells(scores) for column in COLUMNS]
    rows = []
    for model in scores:
        cells = [f'<td class="name">{chip(colours[model])}{page_text(model)}</td>']
        for text, best in (column[model] for column in columns):
            cells.append(f"<td><b>{page_text(text)}</b></td>" if best else f"<td>{page_text(text)}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return table_part(head, rows)


def _errors(scores: Mapping[str, Score], colours: Mapping[str, str]) -> Figure:
    figure = bare(340)
    for model, score in scores.items():
        figure.add_bar(
            x=list(BLOCK_NAMES),
            y=[None if share is None else 100 * share for share in score.wape],
            name=figure_text(model),
            marker={"color": colours[model]},
        )
    figure.update_layout(barmode="group", showlegend=True)
    figure.update_yaxes(title="error, % of the load", rangemode="tozero")
    return Figure(
        title="Error by how far ahead",
        caption="Sum of absolute errors over the sum of what came; lower is better.",
        drawn=figure,
    )


def _coverage(scores: Mapping[str, Score], colours: Mapping[str, str]) -> Figure:
    figure = bare(340)
    for model, score in scores.items():
        figure.add_scatter(
            x=list(BLOCK_NAMES),
            y=[100 * share for share in score.inside],
            mode="lines+markers",
            name=figure_text(model),
            line={"color": colours[model], "width": 1},
            marker={"size": 8},
        )
    figure.add_hline(y=100 * INTERVAL_SHARE, line={"color": NEUTRAL, "dash": "dash", "width": 1})
    figure.update_layout(showlegend=True)
    figure.update_yaxes(title="% inside of the 90 % interval")
    return Figure(
        title="How often the interval held",
        caption="Share of the samples inside of their 90 % interval; on the dashed line is right, below it too sure.",
        drawn=figure,
    )


def _ahead(backtest: Backtest, subject: Subject, model: str, colour: str) -> Figure:
    seed = next(iter(subject.samples))
    judged = backtest.judged[subject.load, model, seed]
    kept = thinned(len(judged.origins))
    hours = ((judged.origins[kept] * backtest.settings.sample_s + BLOCK_S) / 3600.0).tolist()
    lower, median, upper, came = judged.ahead_per_s[kept].T
    figure = bare(360)
    band = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    figure.add_scatter(x=hours, y=upper, **band)
    figure.add_scatter(x=hours, y=lower, fill="tonexty", fillcolor=_faint(colour), **band)
    figure.add_scatter(x=hours, y=came, mode="lines", name="what came", line={"color": NEUTRAL, "width": 2})
    figure.add_scatter(x=hours, y=median, mode="lines", name=figure_text(model), line={"color": colour, "width": 1.6})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title="time since the first sample (h)")
    figure.update_yaxes(title="records per second", rangemode="tozero")
    return Figure(
        title=f"Ten minutes ahead: {page_text(model)}",
        caption="What had been said ten minutes before, with its 90 % interval, and what came; one point per origin"
        f"{'' if len(subject.samples) == 1 else f', seed {seed}'}.",
        drawn=figure,
    )


def _faint(colour: str) -> str:
    """The same colour, so that what lies behind it can be seen."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
