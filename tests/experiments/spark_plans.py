"""A tiny plan for real Spark that is right, for tests to run or to break."""

from __future__ import annotations

from pathlib import Path

TINY = """\
name = "tiny"
engine = "spark"
duration = "75s"

[spark]
day = "1h"
warm_up = "10s"

[space]
executors = "1..3"
slots_per_executor = 2
cores_per_executor = 0.35
memory_per_executor = "768MiB"
commit_interval = "2s"

[promises]
latency_p95 = "6s"
good_share = 0.5
recovery = "90s"

[control]
report_every = "5s"
decide_every = "5s"
roll_back = false
cooldown = "5s"
forecast_horizon = "30s"
forecast_step = "5s"

[failures]
kind = ["kill-executor", "kill-driver"]
every = "30s"
first = "20s"
jitter = "0s"
quiet_end = "40s"

[[loads]]
name = "waves"
job = "clicks"
peak_per_s = 2000
shape = "sine"
mean_per_s = 40000.0
amplitude_share = 0.5
period = "1h"

[loads.options]
work = 300
state_provider = "hdfs"
state_partitions = 1

[[policies]]
policy = "static"

[[policies]]
policy = "reactive"
target_cpu = 0.7
metric_window = "5s"
sync_period = "5s"
scale_down_stabilisation = "15s"
scale_up_period = "5s"
scale_down_period = "5s"
"""


def write_spark_plan(folder: Path, text: str = TINY) -> Path:
    path = folder / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path
