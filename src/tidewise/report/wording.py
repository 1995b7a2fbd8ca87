"""How a report says things, so that the page, the terminal and the documents say them alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tidewise.core import Configuration, Mechanism, Parameter, Promises, format_duration, format_memory
from tidewise.experiments.comparison import Aggregate, Scenario, Spread

MISSING = "–"  # noqa: RUF001 - an en dash is what a table shows where there is no value


def ratio(value: float) -> str:
    """Two decimals."""
    return f"{value:.2f}"


def percent(share: float) -> str:
    """One decimal; never 100 % where something is missing to it."""
    rounded = round(share * 100, 1)
    return f"{min(rounded, 99.9) if share < 1.0 else rounded:.1f} %"


def seconds(value_s: float) -> str:
    """A latency, with the digits that matter."""
    if math.isinf(value_s):
        return "never"
    if value_s < 9.995:
        return f"{value_s:.2f} s"
    return f"{value_s:.1f} s" if value_s < 99.95 else f"{value_s:.0f} s"


def whole_seconds(value_s: float) -> str:
    """A recovery time: more digits than its seconds would be made up."""
    return f"{value_s:.0f} s"


def money(amount: float) -> str:
    """An amount without its currency."""
    return f"{amount:.2f}" if abs(amount) < 1000 else f"{amount:,.0f}"


def count(value: float) -> str:
    """A number of things, or a mean of such numbers."""
    return f"{value:.0f}" if value == int(value) or value >= 99.5 else f"{value:.1f}"


def spread(value: Spread | None, form: Callable[[float], str]) -> str:
    """The mean, and the range over the seeds where they differ; `≥` where something was cut off."""
    if value is None:
        return MISSING
    mean, least, most = (form(number) for number in (value.mean, value.least, value.most))
    bound = "≥ " if value.censored else ""
    if least == most:
        return f"{bound}{mean}"
    unit = most[most.rfind(" ") :] if " " in most else ""
    return f"{bound}{mean} ({least.removesuffix(unit)}..{most})"


def origin(scenario: Scenario) -> str:
    """Where the figures come from, in words nobody can misread."""
    if scenario.profile:
        return f"simulated with profile {scenario.profile}"
    return f"measured on a real engine ({scenario.engine})"


def promises(given: Promises) -> str:
    """What was promised, in words."""
    parts = []
    if given.latency_p95_s is not None:
        limit = format_duration(given.latency_p95_s)
        parts.append(f"p95 latency within {limit} in {100 * given.good_share:.4g} % of all seconds")
    if given.recovery_s is not None:
        parts.append(f"recovery within {format_duration(given.recovery_s)}")
    return ", ".join(parts)


def difference(source: Configuration, target: Configuration) -> str:
    """What a change changed: "executors 12 → 14, memory 4 GiB → 2 GiB"."""
    changed = source.differs_from(target)
    if not changed:
        return "nothing"
    return ", ".join(
        f"{_NAMES[parameter]} {_value(source, parameter)} → {_value(target, parameter)}"
        for parameter in Parameter
        if parameter in changed
    )


_NAMES = {
    Parameter.EXECUTORS: "executors",
    Parameter.SLOTS_PER_EXECUTOR: "slots per executor",
    Parameter.CORES_PER_EXECUTOR: "cores per executor",
    Parameter.MEMORY_MIB_PER_EXECUTOR: "memory per executor",
    Parameter.COMMIT_INTERVAL_S: "commit interval",
    Parameter.STATE_PARTITIONS: "state partitions",
    Parameter.SETTINGS: "settings",
}


def _value(configuration: Configuration, parameter: Parameter) -> str:
    if parameter is Parameter.MEMORY_MIB_PER_EXECUTOR:
        return format_memory(configuration.memory_mib_per_executor)
    if parameter is Parameter.COMMIT_INTERVAL_S:
        return format_duration(configuration.commit_interval_s)
    if parameter is Parameter.SETTINGS:
        return " ".join(f"{name}={value}" for name, value in configuration.settings) or "none"
    value = getattr(configuration, parameter.value)
    return "none" if value is None else f"{value:g}"


def manner(mechanism: Mechanism) -> str:
    """How a change is made, as the end of a sentence: "by handover"."""
    return "live" if mechanism is Mechanism.LIVE else f"by {mechanism}"


def listing(words: Sequence[str]) -> str:
    """One, two and three."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1]))) if words else ""


def seeds(aggregates: Sequence[Aggregate]) -> list[int]:
    """All seeds of these runs, in order."""
    return sorted({summary.record.seed for aggregate in aggregates for summary in aggregate.summaries})
