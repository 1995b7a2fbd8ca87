"""When what breaks: in order, with the seed, and never so late that nobody would see the recovery."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidewise.experiments.fit_paper_cluster import DURATION_S, FAILURE_COUNT, FAILURES, SEEDS
from tidewise.experiments.fixed_run import fault_schedule
from tidewise.experiments.plan import FailuresTable, read_plan
from tidewise.experiments.shipped import find_plan
from tidewise.experiments.toml_file import TomlFile


def failures(every_s: float, jitter_s: float, first_s: float | None = None) -> FailuresTable:
    first = {} if first_s is None else {"first": f"{first_s:f}s"}
    return FailuresTable.model_validate({"kind": "kill", "every": f"{every_s:f}s", "jitter": f"{jitter_s:f}s"} | first)


def test_without_failures_nothing_breaks() -> None:
    assert fault_schedule(None, 3600, 1) == ()


def test_nothing_breaks_just_before_the_end() -> None:
    assert fault_schedule(failures(600, 0, first_s=1198), 1199, 1) == ()
    assert [fault.at_s for fault in fault_schedule(failures(600, 0), 1200, 1)] == [300.0, 900.0]
    assert [fault.at_s for fault in fault_schedule(failures(600, 0), 1199, 1)] == [300.0]


@given(st.floats(1, 5000), st.floats(0, 1), st.none() | st.floats(0, 5000), st.integers(60, 20_000), st.integers(0, 9))
def test_failures_come_in_order_early_enough_and_as_many_for_every_seed(
    every_s: float, jitter_share: float, first_s: float | None, duration_s: int, seed: int
) -> None:
    given_failures = failures(every_s, every_s * jitter_share, first_s)
    times_s = [fault.at_s for fault in fault_schedule(given_failures, duration_s, seed)]
    assert times_s == sorted(times_s)
    assert all(0 <= at_s <= duration_s - given_failures.quiet_end for at_s in times_s)
    assert len(times_s) == len(fault_schedule(given_failures, duration_s, seed + 1))


def test_the_fit_breaks_what_the_experiment_breaks() -> None:
    plan = read_plan(TomlFile(find_plan("paper")))
    assert plan.failures is not None
    # The first one comes half an interval later there, as it was published.
    assert plan.failures.model_copy(update={"first": None}) == FAILURES
    assert plan.duration == DURATION_S
    assert plan.seeds == SEEDS
    assert {len(fault_schedule(FAILURES, DURATION_S, seed)) for seed in SEEDS} == {FAILURE_COUNT}


def test_several_kinds_take_turns_and_the_quiet_end_can_be_shorter() -> None:
    table = FailuresTable.model_validate(
        {"kind": ["kill-driver", "kill-executor"], "every": "20s", "first": "10s", "jitter": "0s", "quiet_end": "20s"}
    )
    found = [(fault.at_s, fault.kind) for fault in fault_schedule(table, 90, 1)]
    assert found == [(10.0, "kill-driver"), (30.0, "kill-executor"), (50.0, "kill-driver"), (70.0, "kill-executor")]
