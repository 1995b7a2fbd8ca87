"""Policies by name: those of this package, and those that other installed packages offer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from tidewise.core import BadInputError, PermanentError, Policy
from tidewise.core.readers import did_you_mean
from tidewise.core.settings import Setting, read_settings, settings_of
from tidewise.policies.best_fixed import BestFixed
from tidewise.policies.demeter import Demeter
from tidewise.policies.ds2 import Ds2
from tidewise.policies.phoebe import Phoebe
from tidewise.policies.reactive import Reactive
from tidewise.policies.rescaler import Rescaler
from tidewise.policies.static import Static
from tidewise.policies.tidalscale import TidalScale
from tidewise.policies.tidewise import Tidewise
from tidewise.policies.twres import Twres

GROUP = "tidewise.policies"
"""The entry point group in which another package offers its policies: `name = "package.module:Class"`."""

_BUILT_IN: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (Tidewise, Static, BestFixed, Reactive, Ds2, Rescaler, TidalScale, Phoebe, Twres, Demeter)
}
# Named here, not by entry points: an installation's metadata may be older than its code.

_OWN_PACKAGE = "tidewise"
_MEMBERS = ("name", "history_s", "learn", "decide")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDescription:
    """What a person needs to choose a policy and set it up."""

    name: str
    summary: str
    """The first line of its docstring."""
    settings: tuple[Setting, ...]
    """Those that a plan can write."""
    package: str
    """Which installed package offers it."""
    problem: str | None = None
    """Why it cannot be used; None if it can."""


def policy_names() -> tuple[str, ...]:
    """The names of all policies: built in first, then those of other packages by name."""
    return (*_BUILT_IN, *sorted(_offered()))


def find_policy(name: str) -> type[Policy]:
    """The class of a policy; BadInputError where there is none of that name, or its package is broken."""
    built_in = _BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    offers = _offered().get(name)
    if offers is None:
        raise BadInputError(f"there is no policy {name!r}{did_you_mean(name, policy_names())}")
    if len(offers) > 1:
        packages = " and ".join(sorted(_package(offer) for offer in offers))
        raise BadInputError(f"policy {name!r} is offered by {packages}: uninstall all but one")
    return _load(offers[0])


def make_policy(name: str, settings: Mapping[str, object]) -> Policy:
    """The policy of this name with these settings; BadInputError with what is allowed where something is wrong.

    Settings have the names of the constructor's arguments, durations without their `_s` and with their unit:
    `make_policy("reactive", {"target_cpu": 0.5, "scale_down_stabilisation": "300s"})`.
    """
    policy = find_policy(name)
    where = f"policy {name!r}"
    arguments = read_settings(policy, settings, where=where)
    try:
        return policy(**arguments)
    except PermanentError as wrong:
        raise BadInputError(f"{where}: {wrong}") from wrong


def describe() -> tuple[PolicyDescription, ...]:
    """Every policy with its settings, in the order of `policy_names`; a broken one is listed with its problem."""
    packages = {name: ", ".join(map(_package, offers)) for name, offers in _offered().items()}
    return tuple(_describe(name, packages.get(name, _OWN_PACKAGE)) for name in policy_names())


def _describe(name: str, package: str) -> PolicyDescription:
    try:
        policy = find_policy(name)
        settings = tuple(setting for setting in settings_of(policy) if setting.can_be_written)
    except BadInputError as broken:
        return PolicyDescription(name=name, summary="", settings=(), package=package, problem=str(broken))
    summary = (inspect.getdoc(policy) or "").partition("\n")[0]
    return PolicyDescription(name=name, summary=summary, settings=settings, package=package)


def _offered() -> dict[str, list[EntryPoint]]:
    """What other packages offer; a name of this package's own cannot be taken from it."""
    offers: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        if point.name not in _BUILT_IN and _package(point) != _OWN_PACKAGE:
            offers.setdefault(point.name, []).append(point)
    return offers


def _load(point: EntryPoint) -> type[Policy]:
    where = f"policy {point.name!r} of package {_package(point)!r} ({point.value})"
    try:
        found = point.load()
    except Exception as broken:
        raise BadInputError(f"{where} cannot be loaded: {type(broken).__name__}: {broken}") from broken
    missing = [member for member in _MEMBERS if not hasattr(found, member)]
    if not isinstance(found, type) or missing:
        lacks = f"it lacks {', '.join(missing)}" if missing else "it is not a class"
        raise BadInputError(f"{where} is not a policy: {lacks}")
    return cast("type[Policy]", found)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "unknown"
