"""A loop that may only advise: everything is written down, and nothing is ever asked of the engine."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tidewise.control import ADVISED, GuardSettings, Loop
from tidewise.core import (
    Configuration,
    ControllerStarted,
    Decided,
    Decision,
    Keep,
    Overridden,
    Profile,
    Reconfigure,
    Reported,
    Situation,
    Ticked,
)

from .fakes import PRICES, PROMISES, SPACE, ScriptedPolicy, because, config, observation

ADVICE = GuardSettings(advice_only=True)


def run(decisions: list[Decision], *, settings: GuardSettings = ADVICE, overridden: bool = False) -> list[Decided]:
    """Everything that was decided, one decision each minute; no command may come out."""
    left = iter(decisions)

    def decide(_situation: Situation) -> Decision:
        return next(left)

    loop = Loop(
        run="advised",
        policy=ScriptedPolicy(decide),
        space=SPACE,
        promises=PROMISES,
        prices=PRICES,
        guard_settings=settings,
    )
    found: list[Decided] = []
    loop.handle(ControllerStarted(at_s=0.0, version="test", policy="test", configuration=config(4)))
    if overridden:
        loop.handle(Overridden(at_s=0.0, by="ada", target=config(8)))
    for number in range(len(decisions)):
        at_s = 60.0 * (number + 1)
        loop.handle(Reported(at_s=at_s, observation=observation(at_s, config(4))))
        handled = loop.handle(Ticked(at_s=at_s))
        assert handled.commands == ()
        found += [event for event in handled.events if isinstance(event, Decided)]
    return found


configurations = st.builds(config, st.integers(1, 16), cores=st.sampled_from([1.0, 2.0]))
decisions = st.one_of(
    st.just(Keep(reason=because("keep"))),
    configurations.map(lambda target: Reconfigure(target=target, reason=because("want"))),
    configurations.map(lambda one: Profile(candidates=(one,), reason=because("measure"))),
)


@given(st.lists(decisions, min_size=1, max_size=8), st.booleans())
def test_nothing_is_ever_asked_of_the_engine(wanted: list[Decision], overridden: bool) -> None:
    for event in run(wanted, overridden=overridden):
        assert isinstance(event.decision, Keep) or event.vetoed


def test_what_would_be_done_is_told_from_what_another_guard_stops() -> None:
    (fine,) = run([Reconfigure(target=config(6), reason=because("want"))])
    assert [verdict.reason.code for verdict in fine.verdicts] == [ADVISED]
    (stopped,) = run([Reconfigure(target=config(6), reason=because("want"))], settings=replace(ADVICE, quota_cores=1.0))
    assert [verdict.guard for verdict in stopped.verdicts] != ["advice-only"]


def test_what_the_other_guards_alter_is_what_is_advised() -> None:
    (event,) = run([Reconfigure(target=config(50), reason=because("want"))])
    assert [verdict.guard for verdict in event.verdicts] == ["bounds", "advice-only"]
    assert event.verdicts[0].target == Configuration(executors=12)


def test_a_profile_is_advised_too() -> None:
    (event,) = run([Profile(candidates=(config(6),), reason=because("measure"))])
    assert [verdict.reason.code for verdict in event.verdicts] == [ADVISED]
