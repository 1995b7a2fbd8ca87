"""Every policy of the house keeps what the port promises, with its defaults and with settings far from them."""

from __future__ import annotations

from tidewise.core import Configuration, Mechanism, Policy
from tidewise.policies import BestFixed, Ds2, Reactive, Static, Tidewise
from tidewise.testing import PolicyConformance


class TestStatic(PolicyConformance):
    def make_policy(self) -> Policy:
        return Static()


class TestStaticElsewhere(PolicyConformance):
    def make_policy(self) -> Policy:
        return Static(executors=7)


class TestBestFixed(PolicyConformance):
    def make_policy(self) -> Policy:
        return BestFixed(configuration=Configuration(executors=3, memory_mib_per_executor=2048))


class TestReactive(PolicyConformance):
    def make_policy(self) -> Policy:
        return Reactive()


class TestReactiveWithSlowGrowth(PolicyConformance):
    def make_policy(self) -> Policy:
        return Reactive(
            scale_up_stabilisation_s=60.0, scale_down_max_percent=None, scale_down_max_executors=1, metric_window_s=60.0
        )


class TestDs2(PolicyConformance):
    def make_policy(self) -> Policy:
        return Ds2()


class TestDs2AsInDemeter(PolicyConformance):
    def make_policy(self) -> Policy:
        return Ds2.as_in_demeter(mechanism=Mechanism.REDEPLOY)


class TestDs2InAHurry(PolicyConformance):
    def make_policy(self) -> Policy:
        return Ds2(metric_window_s=10.0, stabilisation_s=0.0, scale_down_interval_s=0.0, catch_up_s=0.0)


class TestTidewise(PolicyConformance):
    def make_policy(self) -> Policy:
        return Tidewise()


class TestTidewiseThatRedeploys(PolicyConformance):
    def make_policy(self) -> Policy:
        return Tidewise(continuous=True, mechanism=Mechanism.REDEPLOY)
