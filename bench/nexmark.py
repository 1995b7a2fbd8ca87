"""What a core takes of each query of Nexmark and of the price search machine, on one warm Spark of this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidewise.experiments.query_bench import EVENTS_PER_S, BenchSettings, Step, bench_queries, chosen_queries
from tidewise.report.query_page import bench_facts, bench_headlines, bench_warnings
from tidewise.report.query_table import markdown_tables


def measure(_traces: Path | None) -> str:
    """All queries of Nexmark, three times in turn."""
    return _section("nexmark")


def measure_psm(_traces: Path | None) -> str:
    """All queries of the price search machine, three times in turn."""
    return _section("psm")


def _section(benchmark: str) -> str:
    chosen = chosen_queries(benchmark, None, state_store="rocksdb")
    settings = BenchSettings(
        benchmark=benchmark,
        queries=tuple(chosen),
        cores=os.cpu_count() or 1,
        events_per_s=EVENTS_PER_S[benchmark],
    )
    with tempfile.TemporaryDirectory(prefix="tidewise-bench-") as folder:
        bench = bench_queries(settings, chosen, Path(folder), say=print, progress=_tell)
    of_queries, of_stages = markdown_tables(bench.queries)
    sentences = "".join(f"- {sentence}\n" for sentence in (*bench_warnings(bench), *bench_headlines(bench)))
    return (
        f"`tidewise bench {benchmark}`, all queries: {bench_facts(bench)}. What each figure is stands in "
        f"[the page about it](bench.md).\n\n{of_queries}\n{sentences}\n"
        f"Where their time goes, by operator, in all batches of the run that took the median time:\n\n{of_stages}"
    )


def _tell(step: Step) -> None:
    seconds = "failed" if step.figures is None else f"{step.figures.seconds:.1f} s"
    print(f"{step.done} of {step.total}: {step.query}, repeat {step.repeat}: {seconds}", flush=True)
