"""Reports as the services get them: rows by their columns."""

from __future__ import annotations

from typing import Any

from tidewise.core import Observation


def report_row(*, line: int, at_unix_s: float, load_per_s: float = 1000.0, **others: object) -> dict[str, Any]:
    """A report of ten seconds; by default of four executors that cope."""
    usual = {
        "job": "job",
        "kind": "report",
        "run": "run",
        "window_s": 10.0,
        "status": "running",
        "executors": 4,
        "slots_per_executor": 1,
        "cores_per_executor": 1.0,
        "memory_mib_per_executor": 1024,
        "commit_interval_s": 1.0,
        "state_partitions": None,
        "input_rate_per_s": load_per_s,
        "processed_rate_per_s": load_per_s,
        "backlog_records": 0.0,
        "cpu_share": 0.6,
        "memory_share": 0.5,
    }
    return {**usual, "line": line, "at_unix_s": at_unix_s, "load_per_s": load_per_s, **others}


def told(observation: Observation, *, line: int, zero_unix_s: float) -> dict[str, Any]:
    """What the services see of an observation."""
    runs = observation.configuration
    return report_row(
        line=line,
        at_unix_s=zero_unix_s + observation.time_s,
        load_per_s=observation.load_per_s,
        window_s=observation.window_s,
        status=str(observation.status),
        executors=runs.executors,
        slots_per_executor=runs.slots_per_executor,
        cores_per_executor=runs.cores_per_executor,
        memory_mib_per_executor=runs.memory_mib_per_executor,
        commit_interval_s=runs.commit_interval_s,
        state_partitions=runs.state_partitions,
        input_rate_per_s=observation.input_rate_per_s,
        processed_rate_per_s=observation.processed_rate_per_s,
        backlog_records=observation.backlog_records,
        cpu_share=observation.cpu_share,
        memory_share=observation.memory_share,
    )
