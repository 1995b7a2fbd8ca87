"""Policies are found by name, set up from plain values, and what is wrong is said so that it can be put right."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from tidewise.core import BadInputError, Configuration, Decision, Keep, Mechanism, Observation, Reason, Situation
from tidewise.policies import (
    BestFixed,
    Ds2,
    Reactive,
    Static,
    Tidewise,
    describe,
    find_policy,
    make_policy,
    policy_names,
)
from tidewise.policies import registry as registry_module

OWN = ("tidewise", "static", "best-fixed", "reactive", "ds2", "rescaler", "tidalscale", "phoebe", "twres", "demeter")


@dataclass(frozen=True, kw_only=True)
class Outside:
    """Comes from another package.

    With more to say.
    """

    name: ClassVar[str] = "outside"

    patience_s: float = 90.0
    """How long it waits."""
    limit_per_s: float = 5.0
    eager: bool = False

    @property
    def history_s(self) -> float:
        return self.patience_s

    def learn(self, observation: Observation) -> None:
        pass

    def decide(self, situation: Situation) -> Decision:
        return Keep(reason=Reason(code="outside", sentence=f"At {situation.now_s:g} s nothing happens."))


class NotAPolicy:
    pass


def offer(monkeypatch: pytest.MonkeyPatch, *offers: tuple[str, str, str]) -> None:
    """Let other packages offer policies: (package, name, where it is)."""
    module = ModuleType("someone_elses")
    module.Outside = Outside  # type: ignore[attr-defined]  # that is what a module is for
    module.NotAPolicy = NotAPolicy  # type: ignore[attr-defined]  # the same
    monkeypatch.setitem(sys.modules, "someone_elses", module)
    points: list[Any] = []
    for package, name, value in offers:
        point = EntryPoint(name=name, value=value, group=registry_module.GROUP)
        vars(point)["dist"] = SimpleNamespace(name=package)
        points.append(point)
    monkeypatch.setattr(registry_module, "entry_points", lambda *, group: points if group else [])


def test_the_built_in_policies_are_there_whatever_the_metadata_says(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch)
    assert policy_names() == OWN
    assert [find_policy(name) for name in policy_names()[:5]] == [Tidewise, Static, BestFixed, Reactive, Ds2]


def test_stale_metadata_of_this_package_is_of_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("tidewise", "reactive", "gone.module:Reactive"), ("tidewise", "former", "gone.module:Former"))
    assert find_policy("reactive") is Reactive
    assert "former" not in policy_names()


def test_policies_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("theirs", "outside", "someone_elses:Outside"))
    assert policy_names()[-1] == "outside"
    made = make_policy("outside", {"patience": "2min", "limit_per_s": 3, "eager": True})
    assert made == Outside(patience_s=120.0, limit_per_s=3.0, eager=True)


def test_another_package_cannot_take_the_name_of_a_built_in_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("theirs", "reactive", "someone_elses:Outside"))
    assert find_policy("reactive") is Reactive


def test_a_policy_offered_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("a", "outside", "someone_elses:Outside"), ("b", "outside", "someone_elses:Outside"))
    with pytest.raises(BadInputError, match="offered by a and b"):
        find_policy("outside")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("no_such_module_at_all:Outside", "ModuleNotFoundError"),
        ("someone_elses:Missing", "AttributeError"),
        ("someone_elses:NotAPolicy", "lacks name, history_s, learn, decide"),
    ],
)
def test_a_broken_package_is_named(monkeypatch: pytest.MonkeyPatch, value: str, says: str) -> None:
    offer(monkeypatch, ("theirs", "outside", value))
    with pytest.raises(BadInputError, match=f"'outside' of package 'theirs'.*{says}"):
        find_policy("outside")
    described = describe()[-1]
    assert described.problem is not None
    assert says in described.problem


def test_an_unknown_name_gets_the_nearest_one_or_the_list() -> None:
    with pytest.raises(BadInputError, match=r"no policy 'reactiv'; did you mean 'reactive'\?"):
        find_policy("reactiv")
    with pytest.raises(BadInputError, match="no policy 'xyz'; known: tidewise, static, best-fixed"):
        find_policy("xyz")


def test_settings_are_read_as_people_write_them() -> None:
    made = make_policy(
        "reactive",
        {
            "target_cpu": 1,
            "scale_down_stabilisation": "10min",
            "scale_up_max_executors": "none",
            "mechanism": "live",
        },
    )
    assert made == Reactive(
        target_cpu=1.0, scale_down_stabilisation_s=600.0, scale_up_max_executors=None, mechanism=Mechanism.LIVE
    )
    fixed = Configuration(executors=3)
    assert make_policy("best-fixed", {"configuration": fixed}) == BestFixed(configuration=fixed)
    assert make_policy("static", {"executors": 12}) == Static(executors=12)


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("reactive", {"target_cpus": 0.3}, r"no setting 'target_cpus'; did you mean 'target_cpu'\?"),
        ("reactive", {"colour": "red"}, "no setting 'colour'; known: target_cpu"),
        ("reactive", {"metric_window_s": 30}, 'write it as metric_window, with its unit: metric_window = "90s"'),
        ("reactive", {"metric_window": 30}, 'metric_window: 30 has no unit; write it like "30s"'),
        ("reactive", {"metric_window": "30"}, "metric_window: '30' has no unit"),
        ("reactive", {"metric_window": True}, "metric_window: True is not a duration"),
        ("reactive", {"target_cpu": "high"}, "target_cpu: 'high' is not a number"),
        ("reactive", {"scale_up_max_executors": 1.5}, '1.5 is not a whole number or "none"'),
        ("reactive", {"target_cpu": 3}, "'reactive': target_cpu must be above 0 and at most 1, not 3"),
        ("reactive", {"metric_window": "0s"}, "metric_window must be above 0"),
        ("reactive", {"mechanism": "lve"}, r"mechanism: there is no 'lve'; did you mean 'live'\?"),
        ("static", {"executors": True}, "executors: True is not a whole number"),
        ("best-fixed", {}, "'best-fixed' needs the setting configuration"),
    ],
)
def test_wrong_settings_are_refused_with_what_to_write(name: str, settings: dict[str, object], says: str) -> None:
    with pytest.raises(BadInputError, match=says):
        make_policy(name, settings)


def test_descriptions_tell_what_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("theirs", "outside", "someone_elses:Outside"))
    *built_in, outside = describe()
    assert tuple(described.name for described in built_in) == OWN
    assert all(described.summary and described.package == "tidewise" for described in built_in)
    undocumented = [(d.name, setting.name) for d in built_in for setting in d.settings if not setting.doc]
    assert not undocumented
    assert outside.summary == "Comes from another package."
    assert outside.package == "theirs"
    patience, limit, eager = outside.settings
    assert (patience.name, patience.default, patience.doc) == ("patience", "90s", "How long it waits.")
    assert (limit.name, limit.allowed, limit.doc) == ("limit_per_s", "a number", "")
    assert (eager.allowed, eager.default) == ("true or false", "false")


def test_defaults_are_written_as_a_plan_would() -> None:
    for described in describe():
        optional = {setting.name: setting.default for setting in described.settings if setting.default is not None}
        readable: dict[str, object] = {}
        for name, default in optional.items():
            try:
                readable[name] = int(default) if default.isdigit() else float(default)
            except ValueError:
                readable[name] = {"true": True, "false": False}.get(default, default)
        required = {"configuration": Configuration(executors=1)} if described.name == "best-fixed" else {}
        assert make_policy(described.name, {**readable, **required}) == make_policy(described.name, required)
