"""Spaces: which configurations they hold, and how to get from one to another."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidewise.core import (
    REACH,
    ChangeCost,
    Configuration,
    ConfigurationSpace,
    ImpossibleChangeError,
    Mechanism,
    Parameter,
)
from tidewise.testing import strategies

spaces = strategies.spaces()
configurations = strategies.configurations()


@settings(max_examples=50)
@given(space=spaces)
def test_a_space_holds_as_many_different_members_as_it_says(space: ConfigurationSpace) -> None:
    everything = list(space)
    assert len(everything) == len(space) == len(set(everything))
    assert all(member in space for member in everything[:100])
    assert everything == list(space)


@given(space=spaces, data=st.data())
def test_members_are_members_and_are_their_own_nearest(space: ConfigurationSpace, data: st.DataObject) -> None:
    member = data.draw(strategies.members(space))
    assert member in space
    assert space.nearest(member) == member


@given(space=spaces, wanted=configurations)
def test_the_nearest_is_a_member(space: ConfigurationSpace, wanted: Configuration) -> None:
    assert space.nearest(wanted) in space


@given(space=spaces, wanted=configurations)
def test_no_number_of_executors_is_nearer_than_that_of_the_nearest(
    space: ConfigurationSpace, wanted: Configuration
) -> None:
    found = space.nearest(wanted)
    distance = abs(found.executors - wanted.executors)
    for count in space.executors:
        assert distance <= abs(count - wanted.executors)
        if distance == abs(count - wanted.executors):
            assert found.executors >= count


def test_between_two_the_nearest_gives_the_job_more() -> None:
    changes = (ChangeCost(mechanism=Mechanism.LIVE, gap_s=0.0),)
    space = ConfigurationSpace(
        executors=(2, 4), commit_interval_s=(1.0, 3.0), state_partitions=(8, 16), changes=changes
    )
    found = space.nearest(Configuration(executors=3, commit_interval_s=2.0, state_partitions=12))
    assert found == Configuration(executors=4, commit_interval_s=1.0, state_partitions=16)
    assert space.nearest(Configuration(executors=3)).state_partitions == 8


@given(space=spaces, data=st.data())
def test_the_corners_are_members_and_bound_all_others(space: ConfigurationSpace, data: st.DataObject) -> None:
    member = data.draw(strategies.members(space))
    assert space.smallest in space
    assert space.largest in space
    assert not member.takes_less_than(space.smallest)
    assert not space.largest.takes_less_than(member)
    assert space.largest.commit_interval_s <= member.commit_interval_s <= space.smallest.commit_interval_s


@given(space=spaces, other=configurations, thing=st.none() | st.integers() | st.text())
def test_what_is_no_combination_of_its_values_is_no_member(
    space: ConfigurationSpace, other: Configuration, thing: object
) -> None:
    assert thing not in space
    assert (other in space) == (space.nearest(other) == other)


@given(space=spaces, data=st.data(), executors=st.integers(-5, 150))
def test_at_least_so_many_executors_or_all_there_are(
    space: ConfigurationSpace, data: st.DataObject, executors: int
) -> None:
    member = data.draw(strategies.members(space))
    found = space.with_at_least(member, executors)
    assert found in space
    assert found.differs_from(member) <= {Parameter.EXECUTORS}
    assert found.executors >= min(executors, space.executors[-1])
    fewer = [count for count in space.executors if count < found.executors]
    assert all(count < executors for count in fewer)


@given(space=spaces, source=configurations, target=configurations)
def test_the_first_mechanism_that_can_carries_the_change(
    space: ConfigurationSpace, source: Configuration, target: Configuration
) -> None:
    able = [cost for cost in space.changes if source.differs_from(target) <= REACH[cost.mechanism]]
    if able:
        assert space.change(source, target) is able[0]
    else:
        with pytest.raises(ImpossibleChangeError, match="no mechanism that the engine offers can change"):
            space.change(source, target)


@given(space=spaces, data=st.data(), mechanism=st.sampled_from(Mechanism))
def test_a_named_mechanism_carries_what_it_can_and_is_refused_otherwise(
    space: ConfigurationSpace, data: st.DataObject, mechanism: Mechanism
) -> None:
    source = data.draw(strategies.members(space))
    target = data.draw(strategies.members(space) | configurations)
    offered = {cost.mechanism: cost for cost in space.changes}
    differing = source.differs_from(target)
    if mechanism not in offered:
        with pytest.raises(ImpossibleChangeError, match=f"does not offer {mechanism}; it offers"):
            space.change(source, target, mechanism)
    elif differing <= REACH[mechanism]:
        assert space.change(source, target, mechanism) is offered[mechanism]
    else:
        with pytest.raises(ImpossibleChangeError) as caught:
            space.change(source, target, mechanism)
        assert all(parameter in str(caught.value) for parameter in differing)


@given(space=spaces, member=configurations)
def test_a_change_to_the_same_takes_the_preferred_mechanism(space: ConfigurationSpace, member: Configuration) -> None:
    assert space.change(member, member) is space.changes[0]


@given(space=spaces)
def test_a_corner_that_was_asked_for_does_not_make_two_spaces_differ(space: ConfigurationSpace) -> None:
    fresh = replace(space)
    _ = space.largest, space.smallest
    assert space == fresh
    assert hash(space) == hash(fresh)
