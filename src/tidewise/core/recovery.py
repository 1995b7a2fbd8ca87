"""Recovery from a failure, measured one way everywhere."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from tidewise.core.estimate import Censored, Measured

CALM_S = 15
BEFORE_S = 120
FELT_WITHIN_S = 120
FACTOR = 2.0


def recovery_s(*, waited_s: Sequence[float], up: Sequence[bool], fault_s: float, end: int) -> Measured:
    """From the failure until the latency is within twice its median before, for `CALM_S` seconds in a row."""
    start = int(fault_s)
    before = [waited_s[i] for i in range(start - 1, -1, -1) if up[i] and math.isfinite(waited_s[i])][:BEFORE_S]
    limit = FACTOR * statistics.median(before) if before else math.inf

    def bad(second: int) -> bool:
        return not up[second] or waited_s[second] > limit

    felt = next((i for i in range(start, min(end, start + FELT_WITHIN_S)) if not up[i]), None)
    if felt is None:
        felt = next((i for i in range(start, min(end, start + FELT_WITHIN_S)) if bad(i)), None)
    if felt is None:
        return 0.0
    calm, last_bad = 0, felt
    for second in range(felt, end):
        calm = 0 if bad(second) else calm + 1
        last_bad = second if calm == 0 else last_bad
        if calm == CALM_S:
            return float(second + 1 - CALM_S) - fault_s
    return Censored(at_least=max(0.0, last_bad + 1 - fault_s))
