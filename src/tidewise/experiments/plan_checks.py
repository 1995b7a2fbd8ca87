"""What is asked of an engine and what it offers, held against each other before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

from tidewise.core import (
    REACH,
    BadInputError,
    Configuration,
    ConfigurationSpace,
    Mechanism,
    Parameter,
    Policy,
    format_duration,
)
from tidewise.core.readers import did_you_mean
from tidewise.experiments.plan import FailuresTable, PolicyTable
from tidewise.experiments.toml_file import TomlFile
from tidewise.policies import BestFixed, Demeter, Ds2, Phoebe, Reactive, Static, Twres, make_policy, policy_names
from tidewise.policies.rescaler import Rescaler
from tidewise.policies.tidalscale import TidalScale

_SCALE = (Reactive, Ds2, Rescaler, TidalScale, Phoebe, Twres, Demeter)
"""Those that change the number of executors, and perhaps more; of a policy from elsewhere nobody knows."""


def named_mechanism(policy: Policy) -> Mechanism | None:
    """The mechanism that a policy was told to use; None where it leaves that to the engine."""
    mechanism = getattr(policy, "mechanism", None)
    return mechanism if isinstance(mechanism, Mechanism) else None


def able_to_scale(space: ConfigurationSpace) -> list[Mechanism]:
    """The mechanisms that can change the number of executors here, the cheapest first."""
    return [cost.mechanism for cost in space.changes if Parameter.EXECUTORS in REACH[cost.mechanism]]


def start_of(policy: Policy, start: Configuration) -> Configuration:
    """What a run begins with: where a policy holds one configuration, that one."""
    if isinstance(policy, BestFixed):
        return policy.configuration
    if isinstance(policy, Static) and policy.executors is not None:
        return start.with_executors(policy.executors)
    return start


def check_label(table: PolicyTable) -> None:
    """BadInputError where a policy is called like another one."""
    if table.label != table.policy and table.label in policy_names():
        raise BadInputError(f"{table.label!r} is the name of another policy; call this one something else")


def refuse_hindsight(table: PolicyTable) -> None:
    """BadInputError for what only the simulator can answer."""
    if table.policy == BestFixed.name:
        known = [name for name in policy_names() if name != BestFixed.name]
        raise BadInputError(f"best-fixed has to know the load to come; choose one of {', '.join(known)}")


def check_policy(table: PolicyTable, *, space: ConfigurationSpace, start: Configuration, offers: str) -> Policy:
    """The policy; BadInputError where it needs what the space or the engine, called `offers`, does not have."""
    policy = make_policy(table.policy, table.settings)
    begins = start_of(policy, start)
    if begins not in space:
        raise BadInputError(f"{table.policy} is to hold {begins}, which is not in the space")
    mechanism = named_mechanism(policy)
    offered = [cost.mechanism for cost in space.changes]
    if mechanism is not None and mechanism not in offered:
        raise BadInputError(
            f"policy {table.label!r} names the mechanism {mechanism}; {offers} offers only "
            f"{', '.join(offered)}{did_you_mean(mechanism, offered)}"
        )
    able = able_to_scale(space)
    if mechanism is not None and isinstance(policy, _SCALE) and mechanism not in able:
        raise BadInputError(
            f"policy {table.label!r} changes the number of executors, which {mechanism} cannot; "
            f"{offers} can with {', '.join(able)}"
        )
    requires = getattr(policy, "requires", None)
    missing = None if requires is None else requires(space)
    if missing is not None:
        raise BadInputError(f"policy {table.label!r} cannot work here: {missing}")
    return policy


def check_failure_kinds(file: TomlFile, failures: FailuresTable, *, known: Iterable[str], knows: str) -> None:
    """BadInputError for a failure that the engine, called `knows`, does not know."""
    kinds = tuple(known)
    with file.at("failures", "kind"):
        for kind in failures.kind:
            if kind not in kinds:
                raise BadInputError(f"{knows} knows no failure {kind!r}{did_you_mean(kind, kinds)}")


def check_failure_times(file: TomlFile, failures: FailuresTable) -> None:
    """BadInputError for a schedule that could not be kept."""
    with file.at("failures", "every"):
        if failures.every < 1 or failures.jitter < 0:
            raise BadInputError("failures need an interval of at least 1s and a jitter of at least 0s")
        if failures.jitter > failures.every:
            raise BadInputError(
                f"a jitter of {format_duration(failures.jitter)} is longer than the "
                f"{format_duration(failures.every)} from one failure to the next, so they could change places; "
                "make it shorter"
            )
