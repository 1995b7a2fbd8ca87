"""A stream in a process of its own, to be killed: `python -m tests.pipeline.telemetry_child LINES TABLES`."""

from __future__ import annotations

import sys
from pathlib import Path

from tidewise.pipeline.context import spark_session
from tidewise.pipeline.telemetry_stream import FolderSource, StreamSettings, run_stream

SETTINGS = StreamSettings(buckets=4, partitions=2)

if __name__ == "__main__":
    with spark_session("local[2]") as session:
        source = FolderSource(folder=Path(sys.argv[1]), files_per_batch=1)
        run_stream(source, Path(sys.argv[2]), session=session, once=True, settings=SETTINGS)
