"""The experiment on real Spark, from the runs that `tidewise experiment real-spark` has left in `runs/real-spark`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.page import Bench, table
from bench.policies_plans import OURS
from tidewise.core import BadInputError
from tidewise.experiments import Aggregate, by_scenario, compare
from tidewise.experiments.comparison import BASELINE_POLICY, missing_runs
from tidewise.experiments.measures import Summary, bad_seconds
from tidewise.experiments.record import Run, find_runs
from tidewise.experiments.whatif_fit import explain, fit_run, usual_profile
from tidewise.experiments.whatif_recording import read_recording
from tidewise.experiments.whatif_replay import Figure, Misfit
from tidewise.report import wording

PLAN = "real-spark"
HOME = Path("runs") / PLAN
_PAIR = {BASELINE_POLICY, OURS}
_MOST_OF_STATIC, _MOST_POINTS = 0.6, 1.0
"""The goals of tidewise beside static."""


def benches() -> dict[str, Bench]:
    """A benchmark for each job of the plan, and one for what tidewise was to reach beside static.

    Making the runs takes hours, and they need not be made in one go.
    """
    every = {f"{PLAN}-{load}": functools.partial(_measure, load) for load in _REASONS}
    return {**every, f"{PLAN}-{OURS}": _ours}


def _measure(load: str, traces: Path | None) -> str:
    """Nothing is run: `tidewise experiment real-spark` does that, and goes on where it was stopped."""
    del traces  # the runs have had their loads
    runs = _runs(HOME, load)
    return "\n\n".join(
        [
            _preface(runs),
            *(_job(rows) for rows in by_scenario(compare(runs))),
            _REASONS[load],
            _WHATIF,
            table(["run", "second half", "in calm windows", "with outages foretold"], [_halves(run) for run in runs]),
        ]
    )


def _ours(traces: Path | None) -> str:
    """Tidewise beside static, on the jobs for which there are runs of both."""
    del traces
    runs = [run for run in find_runs([HOME]) if run.record.policy in _PAIR] if HOME.is_dir() else []
    pairs = [rows for rows in by_scenario(compare(runs)) if {one.policy for one in rows} == _PAIR] if runs else []
    if not pairs:
        raise BadInputError(f"{HOME} has no runs of both {' and '.join(sorted(_PAIR))}; make them: see {PLAN}")
    shown = [summary.record.name for rows in pairs for one in rows for summary in one.summaries]
    halves = [_halves(run) for run in runs if run.record.name in shown]
    return "\n\n".join(
        [
            _preface(runs),
            *(f"{_job(rows)}\n\n{_goals(rows)}\n\n{_bad_seconds(rows, runs)}" for rows in pairs),
            _WHERE,
            _WHATIF,
            table(["run", "second half", "in calm windows", "with outages foretold"], halves),
        ]
    )


def _goals(rows: Sequence[Aggregate]) -> str:
    by_policy = {one.policy: one.summaries[0] for one in rows}
    static, ours = by_policy[BASELINE_POLICY], by_policy[OURS]
    points = 100 * (ours.good_share - static.good_share)
    measured = [
        (
            f"core-seconds of static at most {_MOST_OF_STATIC:g}",
            ours.all_in.core_h / static.all_in.core_h,
            _MOST_OF_STATIC,
        ),
        (
            f"memory-seconds of static at most {_MOST_OF_STATIC:g}",
            ours.all_in.gib_h / static.all_in.gib_h,
            _MOST_OF_STATIC,
        ),
        (f"points of good seconds below static at most {_MOST_POINTS:g}", -points, _MOST_POINTS),
    ]
    cells = [[goal, f"{value:.2f}", "yes" if value <= most else "NO"] for goal, value, most in measured]
    return table(["goal", "measured", "reached"], cells)


def _bad_seconds(rows: Sequence[Aggregate], runs: Sequence[Run]) -> str:
    """After what they came: each belongs to the last failure before it, and those before the first to none."""
    shown = {one.policy: _bad_parts(one.summaries[0], runs) for one in rows}
    names = [name for name, _ in next(iter(shown.values()))]
    cells = [[name, *(str(parts[place][1]) for parts in shown.values())] for place, name in enumerate(names)]
    return f"Bad seconds, and after what they came:\n\n{table(['', *shown], cells)}"


def _bad_parts(summary: Summary, runs: Sequence[Run]) -> list[tuple[str, int]]:
    series = next(run for run in runs if run.record.name == summary.record.name).read_series()
    bad = bad_seconds(series, series.latency_p50_s, summary.good_limit_s)
    faults = summary.record.faults
    parts = np.split(bad, [min(len(bad), int(fault.at_s)) for fault in faults])
    names = ["before any failure", *(f"{place}. {fault.kind}" for place, fault in enumerate(faults, start=1))]
    return [(name, int(part.sum())) for name, part in zip(names, parts, strict=True)]


_WHERE = """\
After a driver's death all executors start anew: two JVMs come up faster than five on two cores, and so do two Python \
workers. A cluster with cores of its own for each executor would not favour the smaller one so much: static was at 77 \
to 84 % here with other executors (4 slots each, or four of 0.35 cores). With 4 slots, the loss of an executor was \
felt more (two runs of two executors, killed five times in 5 minutes: 190 bad seconds with 4 slots, 74 with one); a \
likely reason is that the one that is left has to start Python for tasks that it never had, on a third of a core. CPU \
hardly follows the load here, so that two executors are enough at all times; what a policy can do wrong is to be \
frightened into keeping more. How little of a batch is work on its records shows only once the load has changed. \
Until then executors seem to do a fifth of what they do: in tries whose warm-up was under a load that did not change, \
three to five of them were kept for minutes, unless a first step had shown more. So a job is now warmed up under a \
load that changes. One run each tells little of good seconds: two pairs before this one, of earlier states of the \
policy and with a warm-up under a constant load, had 86.6 % beside 69.9 % of static (2026-11-18) and 95.4 % beside \
88.1 %, at the same 0.57 of its core-seconds. In this pair there was other work of idle priority beside the run of \
tidewise, and hardly any beside that of static, so that the two were not treated alike."""

_YSB = """\
Phoebe and Demeter changed nothing: beside a job on two cores their copies never kept up, so that no configuration was \
known to be good; they are paid for all the same, and while they run, the job's own failures last longer. Beside the \
simulator's ranking on YSB (`policies`, spark-local): by cost it has TidalScale, Phoebe, reactive, Demeter, DS2, \
static, where copies have cores of their own and the load fills more of the cluster; by good seconds it has static, \
DS2, reactive, Demeter, TidalScale, Phoebe, the same order as measured but for Demeter, and for DS2 and static, which \
are 0.2 points apart here. Other work on the machine took some of the CPU from these runs; on TSW it did not."""
_TSW = """\
The CPU in use hardly follows the load here (half of four executors at 700 records/s, 0.6 of them at 2,400/s: JVMs, \
their Python workers, and what a batch costs before its first record), so that reactive never asks for fewer than \
three executors. TSW's state machine runs in Python beside the JVM, and the memory in use is 130-145 % of what an \
executor is given: TidalScale, which wants less than 100 % (`max_memory_share`), takes that for a lack and keeps four. \
DS2 goes by the time in which batches are on: it came down to one executor just before a driver was killed, and was \
not over that after four minutes. Phoebe's copies could be measured, as this job leaves CPU for them, and it gave one \
executor back; Demeter keeps what copies show by segments of the load, never knew enough of one, and changed \
nothing. Copies take as long as in 18 hours, and cost more than the job does in 20 minutes. Beside the \
simulator's ranking on TSW (`python -m bench policies --worlds spark-local --loads tsw`, one seed): by cost it has \
TidalScale, Phoebe, reactive, Demeter, DS2, static, and by good seconds static, DS2, reactive, Demeter, TidalScale, \
Phoebe: there the CPU follows the load, memory is what state needs, and copies are a small part of 18 hours."""
_REASONS = {"ysb": _YSB, "tsw": _TSW}
"""Why the ranking is not the simulator's, by load."""

_WHATIF = """\
`tidewise whatif` on the same runs: a profile fitted to the first half foretells the second. Mean absolute error over \
windows of 60 s, over the mean of what was recorded, of latency p95 / backlog / busy share (the share of time in which \
a batch was on); outages as long as they were, the same in windows without failure or change shortly before, and \
outages foretold as well. The goal was 10-15 %."""


def _runs(home: Path, load: str) -> list[Run]:
    runs = [run for run in find_runs([home]) if run.record.load == load] if home.is_dir() else []
    if not runs:
        raise BadInputError(f"there are no runs of {load} in {home}; make them first: tidewise experiment {PLAN}")
    return runs


def _preface(runs: Sequence[Run]) -> str:
    record = runs[0].record
    missing = " ".join(f"{sentence}." for sentence in missing_runs(runs))
    return (
        f"MEASURED on Spark, `tidewise experiment {PLAN}`: 18 hours of load in {record.duration_s / 60:.0f} minutes a "
        "run, a driver or an executor killed four times in each, one run for each policy. Static keeps what all begin "
        f"with: {record.start}, beside a driver. Cores and memory: everything "
        "counted, driver, copies and double running as well, and in brackets those of the executors alone; the money "
        "is what 18 such hours would cost, the controller counted as well. Good: seconds within twice the median "
        f"latency of static; promised: 95 % of the records within 8 s. {missing}"
    ).strip()


def _job(rows: Sequence[Aggregate]) -> str:
    all_in, executors = rows[0].summaries[0].all_in, rows[0].summaries[0].executors
    head = [
        "policy",
        "cost",
        "core-h / static",
        "GiB-h / static",
        "good",
        "promised",
        "changes",
        "recovery mean",
        "max",
    ]
    cells = [
        [
            one.policy,
            f"{summary.all_in.cost:.2f} {summary.record.prices.currency}",
            f"{summary.all_in.core_h / all_in.core_h:.2f} ({summary.executors.core_h / executors.core_h:.2f})",
            f"{summary.all_in.gib_h / all_in.gib_h:.2f} ({summary.executors.gib_h / executors.gib_h:.2f})",
            wording.percent(summary.good_share),
            wording.MISSING if summary.promise_share is None else wording.percent(summary.promise_share),
            wording.count(summary.changes),
            wording.spread(one.spread(lambda each: each.recovery_mean_s), wording.whole_seconds),
            wording.spread(one.spread(lambda each: each.recovery_max_s), wording.whole_seconds),
        ]
        for one in rows
        for summary in one.summaries
    ]
    return f"**{rows[0].scenario.load}**\n\n{table(head, cells)}\n\n{_ranking(rows)}"


def _ranking(rows: Sequence[Aggregate]) -> str:
    def ranked(better: dict[str, float]) -> str:
        return ", ".join(sorted(better, key=lambda policy: better[policy]))

    cost = {one.policy: one.summaries[0].all_in.cost for one in rows}
    bad = {one.policy: 1.0 - one.summaries[0].good_share for one in rows}
    return f"By cost, the cheapest first: {ranked(cost)}. By good seconds, the best first: {ranked(bad)}."


def _halves(run: Run) -> list[str]:
    sys.stderr.write(f"fitting {run.record.name}\n")
    recording = read_recording(run.folder)
    usual = usual_profile(recording, None)
    explained = explain(recording, fit_run(recording, usual, draws=0), usual)
    return [run.record.name, *(_errors(one) for one in (explained.second_half, explained.calm, explained.foretold))]


def _errors(found: Misfit) -> str:
    figures = (Figure.LATENCY_P95, Figure.BACKLOG, Figure.BUSY_SHARE)
    return " / ".join("–" if (error := found.errors[one]) is None else f"{error:.0%}" for one in figures)  # noqa: RUF001 - the report's dash
