"""What the producer sustains into a broker on the same machine, and how late its records are."""

from __future__ import annotations

import time
from pathlib import Path

from bench.kafka_source import local_broker
from bench.page import table
from tidewise.experiments.produce import Production, produce
from tidewise.jobs.records.encoding import Encoding
from tidewise.jobs.schedule import Schedule
from tidewise_agent.proc import stat_of

_SECONDS = 60
_GOAL_PER_S, _GOAL_LATE_S = 125_000.0, 1.0
_PARTITIONS = 4
_TRIALS: tuple[tuple[Encoding, float], ...] = (
    ("json", _GOAL_PER_S),
    ("avro", _GOAL_PER_S),
    ("json", 1.4 * _GOAL_PER_S),
    ("avro", 1.4 * _GOAL_PER_S),
)
_PROCESSES = 2


def measure(_traces: Path | None) -> str:
    """A minute at each rate."""
    rows = []
    with local_broker() as (broker, _folder):
        for number, (encoding, rate_per_s) in enumerate(_TRIALS):
            production = Production(
                job="ysb",
                brokers=broker.address,
                topic=f"ysb-{number}",
                partitions=_PARTITIONS,
                encoding=encoding,
                processes=_PROCESSES,
            )
            before, began_s = stat_of(broker.process.pid), time.monotonic()
            done = produce(production, Schedule(began_unix_s=0.0, rates_per_s=(rate_per_s,) * _SECONDS, after="stop"))
            after, took_s = stat_of(broker.process.pid), time.monotonic() - began_s
            report = done.report
            late_s = report.acknowledged_late.quantile_s(0.99) or 0.0
            whole = report.acknowledged == report.due == done.grew_by
            reached = ""
            if rate_per_s == _GOAL_PER_S:
                reached = "yes" if whole and late_s <= _GOAL_LATE_S else "NO"
            busy = 0.0 if before is None or after is None else (after.cpu_s - before.cpu_s) / took_s
            rows.append(
                [
                    encoding,
                    f"{rate_per_s:,.0f}",
                    f"{report.acknowledged:,} of {report.due:,}",
                    f"{report.sent_late.quantile_s(0.99) or 0.0:.3f} s",
                    f"{report.acknowledged_late.quantile_s(0.5) or 0.0:.3f} s",
                    f"{late_s:.3f} s",
                    f"{report.acknowledged_late.worst_s:.2f} s",
                    f"{busy:.2f}",
                    reached,
                ]
            )
            print(rows[-1], flush=True)
    head = [
        "encoding",
        "records/s asked for",
        "acknowledged",
        "handed over late p99",
        "acknowledged late p50",
        "p99",
        "worst",
        "broker's cores",
        "goal reached",
    ]
    return (
        f"YSB records for {_SECONDS} s by {_PROCESSES} processes into {_PARTITIONS} partitions, acknowledged by the "
        "broker (acks=all, idempotent), which has the same two cores. Late: against the time at which each record "
        f"was due. Goal: {_GOAL_PER_S:,.0f} records/s with p99 <= {_GOAL_LATE_S:g} s. What was acknowledged is held "
        "against what the topic grew by.\n\n" + table(head, rows)
    )
