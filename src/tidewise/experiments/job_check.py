"""Looks at everything that a job needs and says what would be done, without starting anything."""

from __future__ import annotations

import secrets

from tidewise.engines.spark.cgroups import CpuLimits
from tidewise.experiments.job_file import NOT_OURS, JobFile
from tidewise.host.java import find_java
from tidewise.host.spark_home import find_spark


def check_job(job: JobFile) -> list[str]:
    """Sentences for people; BadInputError or TemporaryError for the first thing that is missing."""
    java, spark = find_java(), find_spark()
    told = [f"Program: {' '.join(job.program.command)}", f"Java {java.major}: {java.home}", f"Spark: {spark}"]
    if job.is_local:
        told.append(f"Cluster: one of its own on 127.0.0.1, with {job.table.cluster.workers} workers")
        note = job.cpu_note(cpu_reason())
    else:
        master = job.master()
        master.check()
        told.append(f"Cluster: {master.master_url}, which answers")
        if not master.fits(
            count=job.start.executors,
            slots=job.start.slots_per_executor,
            memory_mib=job.start.memory_mib_per_executor,
        ):
            told.append(f"Careful: {master.blind_spot() or 'the cluster has no room for the start at this moment'}")
        note = job.cpu_note(NOT_OURS)
    told.append(f"Start: {job.start}")
    told.append(f"Policy: {job.label}, over {len(job.space):,} configurations")
    if (beginning := job.begins_with(job.similar())) is not None:
        told.append(beginning)
    told += [f"Change of {sentence}" for sentence in job.changes()]
    if note is not None:
        told.append(f"Careful: {note}")
    if job.table.checkpoint is not None and job.checkpoint is None:
        told.append("Careful: the checkpoint is not on this machine, so what is committed cannot be verified from here")
    return told


def cpu_reason() -> str | None:
    """Why the CPU of executors could not be limited on a cluster of our own; None: it could."""
    found = CpuLimits.detect(f"tidewise-{secrets.token_hex(4)}")
    if isinstance(found, str):
        return found
    found.remove()
    return None
