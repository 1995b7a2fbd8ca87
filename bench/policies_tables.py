"""What comes of the comparison: every policy in figures, who is cheaper at no worse quality, and the goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.page import table
from bench.policies_plans import MAIN, OURS, Goals, Scene, World
from bench.policies_runs import Known
from tidewise.experiments import Aggregate
from tidewise.experiments.comparison import BASELINE_POLICY, Spread
from tidewise.experiments.measures import Summary
from tidewise.policies import BestFixed
from tidewise.report import wording

SAME_SHARE = 0.0005
"""Shares of good seconds that differ by less are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One policy on one load, over its seeds; everything counted unless it says otherwise."""

    policy: str
    executors_core_h: Spread
    core_h: Spread
    core_share: float
    """Of static, as all shares here."""
    gib_share: float
    cost: Spread
    cost_share: float
    good: Spread
    points: float
    """Good seconds against static."""
    promise: Spread | None
    """The share of seconds that kept the promised latency."""
    changes: Spread
    slow: int
    """Recoveries that took longer than they may, in all runs together."""
    recoveries: int
    longest: Spread | None
    """The longest recovery of each run."""
    over_bound: float | None
    """Core-hours over those of the hindsight bound; None: not known."""
    over_done: float | None
    """Core-hours over those of hindsight as it can be done; None: that was not found with every seed, or not asked."""
    over_fixed: float | None
    """Core-hours over those of best-fixed; None: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that came of one load."""

    scene: Scene
    lines: tuple[Line, ...]
    """Static first."""
    bounds: tuple[Known, ...]
    """One for each seed; none where none was asked for."""
    below: tuple[str, ...] = ()
    """Runs that lie below the bound though their quality is no worse."""
    fixed_core_h: float | None = None
    """What the best constant takes that is the same with every seed, driver and controller included; None: unknown."""
    informed_core_h: float | None = None
    """What it takes at least with the load known, and failures that nobody foresees; None: not reckoned."""

    @property
    def ours(self) -> Line | None:
        return next((line for line in self.lines if line.policy == OURS), None)

    @property
    def others(self) -> tuple[Line, ...]:
        """The policies that tidewise is to be better than; best-fixed knows the load to come."""
        return tuple(line for line in self.lines if line.policy not in {OURS, BestFixed.name})


def result_of(
    scene: Scene,
    aggregates: Sequence[Aggregate],
    bounds: Mapping[int, Known],
    *,
    fixed_cores: float | None = None,
    informed_cores: float | None = None,
) -> Result:
    """The figures of one load; `bounds` by seed.

    fixed_cores: of the best constant that holds with every seed.
    informed_cores: what it takes at least on average, the load known and the failures not.
    """
    fixed = next((one for one in aggregates if one.policy == BestFixed.name), None)
    static = next((one for one in aggregates if one.policy == BASELINE_POLICY), None)
    lines = () if static is None else tuple(_line(one, static, fixed, bounds, scene) for one in aggregates)
    seeds = sorted(bounds)
    below = [
        run
        for one in aggregates
        for summary in one.summaries
        if (run := _below(summary, bounds.get(summary.record.seed), scene)) is not None
    ]
    return Result(
        scene=scene,
        lines=lines,
        bounds=tuple(bounds[seed] for seed in seeds),
        below=tuple(below),
        fixed_core_h=_core_h(fixed, fixed_cores),
        informed_core_h=_core_h(fixed, informed_cores),
    )


def _core_h(fixed: Aggregate | None, cores: float | None) -> float | None:
    """Of so many cores on average, and what a job that is never changed pays for beside its executors."""
    if fixed is None or cores is None:
        return None
    summaries = fixed.summaries
    beside = [summary.all_in.core_h - summary.executors.core_h for summary in summaries]
    return cores * summaries[0].seconds / 3600.0 + float(np.mean(beside))


def _line(
    one: Aggregate, static: Aggregate, fixed: Aggregate | None, bounds: Mapping[int, Known], scene: Scene
) -> Line:
    over = [summary.over_baseline for summary in one.summaries]
    against = {summary.record.seed: summary for summary in static.summaries}
    beside = {summary.record.seed: summary.all_in.core_h for summary in (fixed.summaries if fixed else ())}
    least = {seed: known.at_least_core_h for seed, known in bounds.items() if math.isfinite(known.at_least_core_h)}
    done = {seed: known.achieved_core_h for seed, known in bounds.items() if known.achieved_core_h is not None}
    gone = [100 * (summary.good_share - against[summary.record.seed].good_share) for summary in one.summaries]
    return Line(
        policy=one.policy,
        executors_core_h=_known(one.spread(lambda summary: summary.executors.core_h)),
        core_h=_known(one.spread(lambda summary: summary.all_in.core_h)),
        core_share=_mean([each.all_in_core for each in over if each is not None]),
        gib_share=_mean([each.all_in_gib for each in over if each is not None]),
        cost=_known(one.spread(lambda summary: summary.all_in.cost)),
        cost_share=_mean([each.cost for each in over if each is not None]),
        good=_known(one.spread(lambda summary: summary.good_share)),
        points=float(np.mean(gone)),
        promise=one.spread(lambda summary: summary.promise_share),
        changes=_known(one.spread(lambda summary: summary.changes)),
        slow=sum(summary.recoveries_over(scene.world.goals.recovery_s) for summary in one.summaries),
        recoveries=sum(len(summary.recoveries) for summary in one.summaries),
        longest=one.spread(lambda summary: summary.recovery_max_s),
        # Of all seeds that were asked about, or of none: a mean of some would say nothing.
        over_bound=_over(one.summaries, least) if len(least) == len(bounds) else None,
        over_done=_over(one.summaries, done) if len(done) == len(bounds) else None,
        over_fixed=_over(one.summaries, beside) if len(beside) == len(one.summaries) else None,
    )


def _known(spread: Spread | None) -> Spread:
    assert spread is not None
    return spread


def _mean(shares: Sequence[float | None]) -> float:
    return float(np.mean([share for share in shares if share is not None]))


def _over(summaries: Sequence[Summary], core_h: Mapping[int, float]) -> float | None:
    """Core-hours over those of something else, where it is known with the same seed; None where it never is."""
    ratios = [
        summary.all_in.core_h / core_h[summary.record.seed] for summary in summaries if core_h.get(summary.record.seed)
    ]
    return float(np.mean(ratios)) if ratios else None


def _below(summary: Summary, known: Known | None, scene: Scene) -> str | None:
    """A run that shows that the bound is wrong; None: this one does not."""
    if known is None:
        return None
    allowed = scene.world.mechanisms
    used = {use.mechanism for use in summary.uses}
    bad_s = (1.0 - summary.good_share) * summary.seconds
    comparable = (
        bad_s <= known.allowed_s
        and summary.recoveries_over(scene.world.goals.recovery_s) == 0
        and (allowed is None or used <= set(allowed))
        # Hindsight may start with what it likes, the bound starts with what all others start with.
        and summary.record.policy != BestFixed.name
    )
    if not comparable or summary.all_in.core_h >= known.at_least_core_h:
        return None
    return f"{summary.record.name}: {summary.all_in.core_h:.1f} core-h, bound {known.at_least_core_h:.1f}"


# Verdicts ---------------------------------------------------------------------------------------------------------


def is_no_worse(other: Line, than: Line) -> bool:
    """Whether its good seconds are as many, and as few of its recoveries took too long."""
    return other.good.mean >= than.good.mean - SAME_SHARE and other.slow <= than.slow


def cheaper_at_no_worse(ours: Line, others: Sequence[Line]) -> tuple[Line, ...]:
    """Those that leave nothing to choose us for, the cheapest first."""
    found = [one for one in others if one.cost.mean < ours.cost.mean and is_no_worse(one, ours)]
    return tuple(sorted(found, key=lambda one: one.cost.mean))


def cheaper_within(ours: Line, others: Sequence[Line], goals: Goals) -> tuple[Line, ...]:
    """Those that are cheaper and still good enough for the goal, though perhaps worse than we are."""
    found = [one for one in others if one.cost.mean < ours.cost.mean and is_good_enough(one, goals)]
    return tuple(sorted(found, key=lambda one: one.cost.mean))


def is_good_enough(one: Line, goals: Goals) -> bool:
    """Whether it keeps the quality that the goal asks for."""
    return one.points >= -goals.points and one.slow == 0


def next_best(ours: Line, others: Sequence[Line]) -> Line | None:
    """The cheapest of those that are no worse than we are."""
    return min((one for one in others if is_no_worse(one, ours)), key=lambda one: one.cost.mean, default=None)


# Tables -----------------------------------------------------------------------------------------------------------


def policies_table(result: Result) -> str:
    """Every policy on one load, and the bound."""
    head = [
        "policy", "core-h (executors)", "of static", "GiB-h of static", "cost", "good seconds", "against static",
        "promise kept", "changes", "recoveries over 180 s, longest", "x hindsight", "x best-fixed",
    ]  # fmt: skip  # as wide as the table
    rows = [
        [
            line.policy,
            f"{wording.spread(line.core_h, wording.count)} ({line.executors_core_h.mean:.0f})",
            wording.ratio(line.core_share),
            wording.ratio(line.gib_share),
            wording.spread(line.cost, wording.money),
            wording.spread(line.good, wording.percent),
            _points(line.points),
            wording.spread(line.promise, wording.percent),
            wording.spread(line.changes, wording.count),
            _recoveries(line),
            _ratio(line.over_bound),
            _ratio(line.over_fixed),
        ]
        for line in result.lines
    ]
    return table(head, [*rows, *_reckoned_rows(result), *_bound_row(result)])


def _reckoned_rows(result: Result) -> list[list[str]]:
    """What is no policy, and has core-hours only."""
    static = next((line for line in result.lines if line.policy == BASELINE_POLICY), None)
    fixed = next((line for line in result.lines if line.policy == BestFixed.name), None)
    bound = float(np.mean([one.at_least_core_h for one in result.bounds])) if result.bounds else None
    achieved = [one.achieved_core_h for one in result.bounds if one.achieved_core_h is not None]
    reckoned = {
        "*best-fixed, the same with every seed*": result.fixed_core_h,
        "*load known, failures not known*": result.informed_core_h,
        # Beside the mean of all seeds a mean of some would say nothing.
        "*hindsight, as it can be done*": float(np.mean(achieved)) if len(achieved) == len(result.bounds) > 0 else None,
    }
    return [
        [
            name,
            f"{core_h:.0f}",
            wording.ratio(core_h / static.core_h.mean),
            *[wording.MISSING] * 7,
            _ratio(None if bound is None else core_h / bound),
            _ratio(None if fixed is None else core_h / fixed.core_h.mean),
        ]
        for name, core_h in reckoned.items()
        if core_h is not None and static is not None
    ]


def _bound_row(result: Result) -> list[list[str]]:
    static = next((line for line in result.lines if line.policy == BASELINE_POLICY), None)
    if not result.bounds or static is None:
        return []
    core_h = float(np.mean([one.at_least_core_h for one in result.bounds]))
    bad_s = float(np.mean([one.allowed_s for one in result.bounds]))
    changes = float(np.mean([one.changes for one in result.bounds]))
    return [
        [
            "*hindsight bound*",
            f"≥ {core_h:.1f}",
            wording.ratio(core_h / static.core_h.mean),
            *[wording.MISSING] * 2,
            f"at most {bad_s:.0f} s bad",
            _points(-result.scene.world.goals.points),
            wording.MISSING,
            wording.count(changes),
            wording.MISSING,
            "1.00",
            wording.MISSING,
        ]
    ]


def loads_table(results: Sequence[Result]) -> str:
    """Tidewise beside the best other policy, one line per load."""
    head = [
        "load", "cost of static", "good seconds against static", "changes", "recoveries over 180 s, longest",
        "x hindsight", "x best-fixed", "cheapest other at no worse quality",
        "cheaper than every other at no worse quality", "cheaper, and still good enough for the goal",
    ]  # fmt: skip  # as wide as the table
    return table(head, [_load_row(result) for result in results if result.ours is not None])


def _load_row(result: Result) -> list[str]:
    ours, goals = result.ours, result.scene.world.goals
    assert ours is not None
    best = next_best(ours, result.others)
    better = cheaper_at_no_worse(ours, result.others)
    enough = [one for one in cheaper_within(ours, result.others, goals) if one not in better]
    return [
        result.scene.load,
        wording.ratio(ours.cost_share),
        _points(ours.points) + ("" if ours.points >= -goals.points else f" (goal: {_points(-goals.points)})"),
        wording.count(ours.changes.mean),
        _recoveries(ours),
        _ratio(ours.over_bound),
        _ratio(ours.over_fixed),
        wording.MISSING if best is None else _named(best),
        f"NO: {', '.join(map(_named, better))}" if better else "yes",
        ", ".join(map(_named, enough)) or "none",
    ]


def goals_table(world: World, results: Sequence[Result]) -> str:
    """Every goal of a world with what was measured."""
    rows = []
    main = next((result for result in results if result.scene.load == MAIN), None)
    if main is not None and main.ours is not None:
        rows += _goals(f"`{world.name}`, {MAIN}", main.ours, world.goals)
    for result in results:
        if result.scene.varied and result.ours is not None:
            rows += _goals(f"`{world.name}`, {MAIN} at {result.scene.words}", result.ours, world.goals)
    plain = [(result.ours, result) for result in results if not result.scene.varied and result.ours is not None]
    if world.goals.cheapest and plain:
        lost = [result.scene.load for ours, result in plain if cheaper_at_no_worse(ours, result.others)]
        told = f"{len(plain) - len(lost)} of {len(plain)}" + (f"; not on {', '.join(lost)}" if lost else "")
        goal = "cheaper than every other policy at no worse quality, all loads"
        rows.append([f"`{world.name}`", goal, told, _reached(ok=not lost)])
    return table(["where", "goal", "measured", "reached"], rows)


def _goals(where: str, ours: Line, goals: Goals) -> list[list[str]]:
    done = None if ours.over_done is None else goals.over_bound
    limits: list[tuple[str, float | None, float | None, str]] = [
        ("core-h over the hindsight bound at most", goals.over_bound, ours.over_bound, ".2f"),
        ("core-h over hindsight as it can be done at most", done, ours.over_done, ".2f"),
        ("core-h over best-fixed at most", goals.over_fixed, ours.over_fixed, ".2f"),
        ("core-h of static at most", goals.core_share, ours.core_share, ".2f"),
        ("GiB-h of static at most", goals.gib_share, ours.gib_share, ".2f"),
        ("points of good seconds below static at most", goals.points, -ours.points, ".2f"),
        ("changes at most", goals.changes, ours.changes.most, "g"),
        ("recoveries over 180 s at most", 0.0, float(ours.slow), "g"),
    ]
    rows = []
    for words, limit, value, form in limits:
        if limit is None:
            continue
        shown = wording.MISSING if value is None else format(value, form)
        verdict = "not measured" if value is None else _reached(ok=value <= limit)
        rows.append([where, f"{words} {limit:g}", shown, verdict])
    return rows


def _reached(*, ok: bool) -> str:
    return "yes" if ok else "NO"


def _named(line: Line) -> str:
    return f"{line.policy} ({wording.ratio(line.cost_share)}, {_points(line.points)})"


def _points(points: float) -> str:
    return f"{points:+.2f}".replace("-0.00", "+0.00")


def _ratio(value: float | None) -> str:
    return wording.MISSING if value is None else wording.ratio(value)


def _recoveries(line: Line) -> str:
    if line.longest is None:
        return wording.MISSING
    bound = "≥ " if line.longest.censored else ""
    return f"{line.slow} of {line.recoveries}, {bound}{line.longest.most:.0f} s"
