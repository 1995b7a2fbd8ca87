"""Answers of `tidewise whatif` with known figures: nothing is fitted, and nothing replayed."""

from __future__ import annotations

from pathlib import Path

from tests.experiments.recorded import record
from tidewise.engines.simulator import load_profile
from tidewise.experiments.plan import PolicyTable
from tidewise.experiments.whatif import Actual, Outcome, WhatIf, interval_of
from tidewise.experiments.whatif_fit import Explained, RunFit
from tidewise.experiments.whatif_parts import Place, Value
from tidewise.experiments.whatif_plan import Question
from tidewise.experiments.whatif_recording import Recording, read_recording
from tidewise.experiments.whatif_replay import Figure, Misfit


def recorded(folder: Path) -> Recording:
    """A short run, for its name and its length."""
    return read_recording(record(folder, duration="30min").folder)


def answer(
    recording: Recording,
    *,
    off: float = 0.1,
    costs: tuple[float, ...] = (1.0, 1.02, 1.04),
    shares: tuple[float, ...] = (0.95, 0.96, 0.97),
    replayed: tuple[float, float] = (1.0, 0.95),
) -> WhatIf:
    """Of a run that cost 1 with 95 % good reports: the second half is missed by `off`, one policy came to the rest.

    `replayed`: cost and share of the run when it is replayed as it was.
    """
    profile = load_profile("spark-local")
    misfit = Misfit(errors=dict.fromkeys(Figure, off), windows=30)
    assert recording.promises is not None
    assert recording.prices is not None
    return WhatIf(
        recording=recording,
        question=Question(
            policies=(PolicyTable(policy="reactive"),),
            space={},
            promises=recording.promises,
            prices=recording.prices,
        ),
        fit=RunFit(
            profile=profile,
            draws=(profile,) * len(costs),
            values=(
                _value(("failures", "driver-kill", "warm_up", "share"), 0.5, "replays of 180 windows"),
                _value(("capacity", "cpu_s_per_record"), 2.2e-5, "1076 reports"),
            ),
            assumed=("how long an executor takes to come up",),
            usual=profile.name,
        ),
        explained=Explained(whole=misfit, second_half=misfit, calm=misfit, foretold=misfit, left_out=0),
        actual=Actual(cost=1.0, is_reckoned=False, good_share=0.95, changes=4),
        replayed=_outcome("reactive", replayed[:1], replayed[1:]),
        outcomes=(_outcome("reactive", costs, shares),),
    )


def _value(path: Place, value: float, basis: str) -> Value:
    return Value(path=path, value=value, log_sd=0.1, basis=basis)


def _outcome(policy: str, costs: tuple[float, ...], shares: tuple[float, ...]) -> Outcome:
    return Outcome(
        policy=policy,
        cost=interval_of(costs),
        saved=interval_of([1.0 - cost for cost in costs]),
        good_share=interval_of(shares),
        changes=interval_of([4]),
        failed_decisions=0,
    )
