"""The summary as plain data, for programs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tidewise.core import Censored, Measured
from tidewise.experiments import Aggregate
from tidewise.experiments.published import beside
from tidewise.report.published import origin_of


def summary_rows(aggregates: Sequence[Aggregate]) -> list[dict[str, object]]:
    """One row per run, every figure by its name; null for what is not known or has no end."""
    return [
        {
            "load": aggregate.scenario.load,
            "load_origin": origin_of(summary.record) or None,
            "engine": aggregate.scenario.engine,
            "profile": aggregate.scenario.profile or None,
            "policy": aggregate.policy,
            "seed": summary.record.seed,
            "cost": summary.all_in.cost,
            "currency": summary.record.prices.currency,
            "core_h": summary.executors.core_h,
            "gib_h": summary.executors.gib_h,
            "all_in_core_h": summary.all_in.core_h,
            "all_in_gib_h": summary.all_in.gib_h,
            "core_over_static": None if summary.over_baseline is None else summary.over_baseline.core,
            "gib_over_static": None if summary.over_baseline is None else summary.over_baseline.gib,
            "good_share": summary.good_share,
            "promise_share": summary.promise_share,
            "kept_promises": summary.kept_promises,
            "latency_p50_s": None if summary.latency_p50 is None else _finite(summary.latency_p50.p50_s),
            "latency_p95_s": None if summary.latency_p50 is None else _finite(summary.latency_p50.p95_s),
            "latency_p99_s": None if summary.latency_p50 is None else _finite(summary.latency_p50.p99_s),
            "changes": {use.mechanism.value: use.count for use in summary.uses},
            "rollbacks": summary.rollbacks,
            "recovery_mean_s": _number(summary.recovery_mean_s),
            "recovery_max_s": _number(summary.recovery_max_s),
            "recoveries_over_180_s": summary.recoveries_over(),
        }
        for aggregate in aggregates
        for summary in aggregate.summaries
    ]


def published_rows(aggregates: Sequence[Aggregate]) -> list[dict[str, object]]:
    """Every figure that was published of one of these policies on the same job, beside ours; empty: none was."""
    return [
        {
            "load": aggregate.scenario.load,
            "policy": aggregate.policy,
            "figure": one.figure,
            "ours": None if one.is_cut_off or one.value is None else _finite(one.value),
            "ours_at_least": one.value if one.is_cut_off else None,
            "published_least": one.theirs.least,
            "published_most": one.theirs.most,
            "misfit": one.misfit,
            "close": one.is_close,
        }
        for aggregate in aggregates
        for one in beside(aggregate)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(measured: Measured | None) -> float | dict[str, float] | None:
    return {"at_least": measured.at_least} if isinstance(measured, Censored) else measured
