"""What the operators of a simulated job show in a report: the whole job's figures, cut by their shares of the work."""

from __future__ import annotations

from collections.abc import Sequence

from tidewise.core import OperatorReport
from tidewise.engines.simulator.profile import OperatorProfile
from tidewise.engines.simulator.stretch import Stretch


class Operators:
    """The operators of a job, which take turns on its slots: of the time these are busy, each has its share.

    What waits does so before the one that takes longest.
    """

    def __init__(self, profiles: Sequence[OperatorProfile]) -> None:
        slowest = max((one.work_share for one in profiles), default=0.0)
        first_slowest = next((place for place, one in enumerate(profiles) if one.work_share == slowest), None)
        # Plain tuples: they are read at every report.
        self._parts = tuple(
            (one.name, one.kind, one.work_share, one.records_share, place == first_slowest)
            for place, one in enumerate(profiles)
        )

    def reports(self, stretch: Stretch, *, seconds: int, slots: int) -> tuple[OperatorReport, ...]:
        """What each did in these seconds, in their order; nothing where the profile declares none."""
        if not self._parts:
            return ()
        per_s = max(0.0, stretch.processed) / seconds
        busy_slots = min(1.0, stretch.busy_share) * slots
        # Records a second of one slot that does nothing but this job's records, the whole way.
        per_slot = per_s / busy_slots if busy_slots > 0.0 and per_s > 0.0 else None
        known, worked_s, queued_s = stretch.latency_p50_s is not None, stretch.worked_s, stretch.queued_s
        return tuple(
            OperatorReport(
                name=name,
                kind=kind,
                channels=slots,
                input_rate_per_s=per_s * records,
                throughput_per_channel_per_s=None if per_slot is None else per_slot * records / work,
                latency_s=work * worked_s + (queued_s if slowest else 0.0) if known else None,
            )
            for name, kind, work, records, slowest in self._parts
        )
