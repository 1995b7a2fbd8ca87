"""Runs a service for all jobs: finds its topics or folders, gives Spark the connector it needs, and follows it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tidewise.experiments.telemetry_target import Target
from tidewise.kafka import topics
from tidewise.kafka.jars import resolve, spark_connector
from tidewise.pipeline.context import spark_session
from tidewise.pipeline.per_job_query import PARTITIONS, BatchTold, BrokerTarget, FolderTarget, PerJobService, serve


def run_service(
    service: PerJobService,
    *,
    reads: Sequence[Target],
    tells: Target,
    state: Path,
    every_s: float | None,
    master: str = "local[*]",
    partitions: int = PARTITIONS,
    stop: threading.Event | None = None,
    tell: Callable[[str], None] = lambda _: None,
    batch: Callable[[BatchTold], None] = lambda _: None,
) -> int:
    """Run a service until told to stop or, without `every_s`, until all that is there is read; how many lines.

    Topics that are missing are made. From the same `state` it goes on where it was.
    """
    for place in reads:
        if place.folder is None:
            topics.ensure(place.brokers, place.topic)
    if tells.folder is None:
        topics.ensure(tells.brokers, *service.tells, service.problems_topic)
    needs_jars = any(place.folder is None for place in (*reads, tells))
    jars = resolve(spark_connector(), tell=tell) if needs_jars else ()
    with spark_session(master, jars=jars) as session:
        return serve(
            service,
            session=session,
            sources=[place.source() for place in reads],
            target=BrokerTarget(brokers=tells.brokers) if tells.folder is None else FolderTarget(folder=tells.folder),
            checkpoint=state,
            every_s=every_s,
            partitions=partitions,
            stop=stop,
            tell=batch,
        )
