"""A small plan that is right, for tests to run or to break."""

from __future__ import annotations

from pathlib import Path

GOOD = """\
name = "small"
profile = "paper-cluster"
duration = "1h"
seeds = [1, 2]

[space]
executors = "1..24"
memory_per_executor = "4GiB"
commit_interval = "10s"

[promises]
latency_p95 = "3s"
good_share = 0.9
recovery = "180s"

[failures]
kind = "network-delay"
every = "30min"

[[loads]]
name = "waves"
shape = "sine"
mean_per_s = 40000.0
amplitude_share = 0.5
period = "30min"
noise = 0.05

[[policies]]
policy = "static"

[[policies]]
policy = "reactive"
target_cpu = 0.5
mechanism = "in-place-rescale"
"""


def write_plan(folder: Path, text: str = GOOD) -> Path:
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path
