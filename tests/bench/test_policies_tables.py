"""Who is called cheaper at no worse quality, and which goals are called reached."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from bench.policies_plans import WORLDS, Scene
from bench.policies_runs import Known
from bench.policies_tables import (
    Line,
    Result,
    cheaper_at_no_worse,
    cheaper_within,
    goals_table,
    loads_table,
    next_best,
    policies_table,
)

from tidewise.experiments.comparison import Spread

SPARK = WORLDS[1]
SCENE = Scene(world=SPARK, load="ysb", words="a load", varied=False, plan=Path("plan.toml"), policies=())


def flat(value: float) -> Spread:
    return Spread(mean=value, least=value, most=value)


def line(policy: str, *, cost: float, good: float = 0.985, slow: int = 0, over_bound: float | None = 1.2) -> Line:
    return Line(
        policy=policy,
        executors_core_h=flat(400 * cost),
        core_h=flat(430 * cost),
        core_share=cost,
        gib_share=cost / 2,
        cost=flat(10 * cost),
        cost_share=cost,
        good=flat(good),
        points=100 * (good - 0.99),
        promise=flat(good),
        changes=flat(9.0),
        slow=slow,
        recoveries=23,
        longest=flat(200.0 if slow else 90.0),
        over_bound=over_bound,
        over_done=None,
        over_fixed=None,
    )


STATIC = line("static", cost=1.0, good=0.99)
OURS = line("tidewise", cost=0.4, good=0.986)


def result(*others: Line, ours: Line = OURS) -> Result:
    return Result(scene=SCENE, lines=(STATIC, *others, ours), bounds=())


@pytest.mark.parametrize(
    ("other", "beats"),
    [
        (line("cheap-and-good", cost=0.39, good=0.986), True),
        (line("cheap-and-as-good-as-can-be-told", cost=0.39, good=0.9856), True),
        (line("cheap-and-worse", cost=0.39, good=0.985), False),
        (line("cheap-and-slow-to-recover", cost=0.39, good=0.99, slow=1), False),
        (line("dear-and-good", cost=0.41, good=0.99), False),
    ],
    ids=lambda value: value.policy if isinstance(value, Line) else "",
)
def test_whoever_is_cheaper_at_no_worse_quality_is_named(other: Line, beats: bool) -> None:
    assert bool(cheaper_at_no_worse(OURS, [other])) is beats
    assert (f"NO: {other.policy}" in loads_table([result(other)])) is beats


def test_as_slow_to_recover_is_no_worse() -> None:
    ours = replace(OURS, slow=2)
    assert cheaper_at_no_worse(ours, [line("slow", cost=0.3, good=0.99, slow=2)])


def test_what_knows_the_load_to_come_is_no_rival() -> None:
    best = result(line("best-fixed", cost=0.1, good=0.99), line("other", cost=0.5, good=0.99))
    assert [one.policy for one in best.others] == ["static", "other"]
    assert "NO" not in loads_table([best])


def test_the_next_best_is_the_cheapest_of_those_that_are_no_worse() -> None:
    others = [line("a", cost=0.9), line("b", cost=0.7, good=0.99), line("c", cost=0.8, good=0.99), line("d", cost=0.1)]
    best = next_best(OURS, others)
    assert best is not None
    assert best.policy == "b"
    assert next_best(OURS, others[:1]) is None


def test_whoever_is_cheaper_and_worse_but_within_the_goal_is_told_apart() -> None:
    worse = line("worse", cost=0.3, good=0.9855)
    assert SPARK.goals.points == 0.5
    ours = replace(OURS, good=flat(0.989), points=-0.1)
    assert not cheaper_at_no_worse(ours, [worse])
    assert cheaper_within(ours, [worse, line("too-bad", cost=0.2, good=0.984)], SPARK.goals) == (worse,)


def verdicts(*results: Result) -> dict[str, str]:
    rows = [row.strip("| ").split(" | ") for row in goals_table(SPARK, results).splitlines()[2:]]
    return {row[1]: row[3] for row in rows}


def test_goals_are_reached_up_to_their_limit() -> None:
    told = verdicts(result(ours=replace(OURS, core_share=0.45, over_bound=1.251, points=-0.51)))
    assert told == {
        "core-h over the hindsight bound at most 1.25": "NO",
        "core-h of static at most 0.45": "yes",
        "GiB-h of static at most 0.25": "yes",
        "points of good seconds below static at most 0.5": "NO",
        "recoveries over 180 s at most 0": "yes",
        "cheaper than every other policy at no worse quality, all loads": "yes",
    }


def test_both_hindsights_are_held_to_the_goal() -> None:
    told = verdicts(result(ours=replace(OURS, over_bound=1.3, over_done=1.2)))
    assert told["core-h over the hindsight bound at most 1.25"] == "NO"
    assert told["core-h over hindsight as it can be done at most 1.25"] == "yes"


def test_one_load_that_is_lost_is_a_goal_that_is_missed() -> None:
    other = replace(SCENE, load="sine")
    lost = Result(scene=other, lines=(STATIC, line("reactive", cost=0.3, good=0.99), OURS), bounds=())
    table = goals_table(SPARK, [result(), lost])
    assert "1 of 2; not on sine | NO" in table


def test_what_was_not_measured_is_not_called_reached() -> None:
    told = verdicts(result(ours=replace(OURS, over_bound=None)))
    assert told["core-h over the hindsight bound at most 1.25"] == "not measured"


KNOWN = Known(
    at_least_core_h=86.0,
    reached_core_h=90.0,
    gib_h=1.0,
    cost=1.0,
    bad_s=900.0,
    allowed_s=1000.0,
    changes=7,
    keeps_quality=True,
)


def test_the_bound_stands_below_the_policies() -> None:
    rows = policies_table(replace(result(), bounds=(KNOWN,))).splitlines()
    assert rows[-1].startswith("| *hindsight bound* | ≥ 86.0 | 0.20 |")
    assert len({row.count("|") for row in rows}) == 1


def test_hindsight_as_it_can_be_done_is_told_where_it_was_found_with_every_seed() -> None:
    done = replace(KNOWN, achieved_core_h=103.2)
    told = policies_table(replace(result(), bounds=(done, replace(KNOWN, achieved_core_h=94.6))))
    row = next(line for line in told.splitlines() if "as it can be done" in line)
    assert row.startswith("| *hindsight, as it can be done* | 99 | 0.23 |")
    assert " | 1.15 | " in row  # of the bound
    assert "as it can be done" not in policies_table(replace(result(), bounds=(done, KNOWN)))


def test_a_constant_that_is_the_same_with_every_seed_stands_beside_the_policies() -> None:
    told = policies_table(replace(result(), fixed_core_h=215.0))
    assert "| *best-fixed, the same with every seed* | 215 | 0.50 |" in told
    assert "every seed" not in policies_table(result())


def test_so_does_what_it_takes_at_least_to_be_ready_for_failures() -> None:
    told = policies_table(replace(result(), informed_core_h=86.0))
    row = next(line for line in told.splitlines() if "failures not known" in line)
    assert row.startswith("| *load known, failures not known* | 86 | 0.20 |")
    assert row.count("|") == told.splitlines()[0].count("|")
