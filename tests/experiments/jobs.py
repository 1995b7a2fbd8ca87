"""A small job file that is right, for tests to run or to break."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
name = "small"
program = "small.py"
arguments = ["--fast"]
handover = true
replayable_sources = ["tidewise-embedded"]
latency = "event-time"

[environment]
MODE = "test"

[cluster]
workers = 1

[conf]
spark.sql.streaming.minBatchesToRetain = 50
"spark.ui.enabled" = false

[space]
executors = "1..4"
memory_per_executor = ["1GiB", "2GiB"]
commit_interval = "1s"

[start]
executors = 2
memory_per_executor = "1GiB"

[promises]
latency_p95 = "3s"

[control]
report_every = "2s"
decide_every = "5s"

[policy]
policy = "reactive"
target_cpu = 0.5
"""


def write_job(folder: Path, text: str = GOOD) -> Path:
    (folder / "small.py").write_text("raise SystemExit\n", encoding="utf-8")
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path
