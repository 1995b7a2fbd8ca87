"""Waits until a job has committed all that is in its topics."""

from __future__ import annotations

import time
from pathlib import Path

from tidewise.core import TemporaryError
from tidewise.engines.spark.audit import committed_in_kafka
from tidewise.engines.spark.job import SparkJob
from tidewise.kafka.lag import lag

CATCH_UP_S = 300.0


def expect_all_committed(job: SparkJob, checkpoints: list[Path], address: str) -> None:
    """Until nothing waits behind any checkpoint; the job may still be getting up from the last kill."""
    waiting: dict[str, object] = {}
    until_s = time.monotonic() + CATCH_UP_S
    while time.monotonic() < until_s:
        assert job.ended is None, job.ended
        try:
            found = {one.name: lag(committed_in_kafka(one), address) for one in checkpoints}
        except TemporaryError as error:
            waiting = {"broker": error}
        else:
            assert not any(each.lost for each in found.values()), found
            waiting = {name: each.records for name, each in found.items() if each.records}
            if not waiting:
                return
        job.reports()
        time.sleep(1.0)
    raise AssertionError(f"not all is committed: {waiting}, {job.problems()}")
