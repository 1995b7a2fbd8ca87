"""How likely each configuration is to keep what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tidewise.core import Promises, format_duration
from tidewise.qos import Belief, Floats
from tidewise.qos.model import Outlook


class Promise(StrEnum):
    """What can be kept or broken."""

    LATENCY = "latency"
    RECOVERY = "recovery"
    MEMORY = "memory"
    """Nobody writes it down, and everybody expects it: the job does not run out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Probabilities, one row per candidate."""

    each: Mapping[Promise, Floats]
    """Of every promise there is."""
    together: Floats
    """Of all at once, as if they were independent; what makes one likely makes the others so, thus it is no less."""
    log_together: Floats
    """Its logarithm, which tells the hopeless apart; minus infinity where a promise is broken for certain."""


def keeping(outlook: Outlook, promises: Promises) -> Keeping:
    """How likely every candidate is to keep each promise."""
    each: dict[Promise, Floats] = {}
    logs = np.zeros(len(outlook.cost_per_hour))
    for promise, (belief, limit) in promised(outlook, promises).items():
        each[promise] = belief.probability_at_most(limit)
        logs += belief.log_probability_at_most(limit)
    each[Promise.MEMORY] = 1.0 - outlook.out_of_memory_probability
    with np.errstate(divide="ignore"):  # The logarithm of what cannot be is minus infinity, as it should be.
        logs += np.log(each[Promise.MEMORY])
    return Keeping(each=each, together=np.asarray(np.exp(logs)), log_together=logs)


def promised(outlook: Outlook, promises: Promises) -> dict[Promise, tuple[Belief, float]]:
    """The quantities with a limit that was promised, and the limit."""
    limits = {
        Promise.LATENCY: (outlook.latency_p95, promises.latency_p95_s),
        Promise.RECOVERY: (outlook.recovery, promises.recovery_s),
    }
    return {name: (belief, limit) for name, (belief, limit) in limits.items() if limit is not None}


def in_words(promise: Promise, promises: Promises) -> str:
    """A promise as it stands in a sentence, after 'keeps'."""
    if promise is Promise.LATENCY and promises.latency_p95_s is not None:
        return f"the latency (p95) within {format_duration(promises.latency_p95_s)}"
    if promise is Promise.RECOVERY and promises.recovery_s is not None:
        return f"the recovery from a failure within {format_duration(promises.recovery_s)}"
    return "the job within its memory"
