"""Files of the table `observations_60s` as the stream and compaction leave them, made without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from tidewise.pipeline.telemetry_claim import FACTS, FORMAT, write_json
from tidewise.pipeline.telemetry_tables import COMPACTED, commit

TABLE = "observations_60s"
BEGIN_S = 1_767_225_600
_BUCKETS = 4


def window(
    job: str, minute: int, *, load_per_s: float = 100.0, executors: int = 2, **more: object
) -> dict[str, object]:
    """A row as it is stored; `window_s` may be less than a minute: then it is a part of one."""
    window_s = more.pop("window_s", 60.0)
    assert isinstance(window_s, float)
    return {
        "job": job,
        "program": "v1",
        "window_start_unix_s": BEGIN_S + 60 * minute,
        "executors": executors,
        "slots_per_executor": 1,
        "cores_per_executor": 1.0,
        "memory_mib_per_executor": 1024,
        "commit_interval_s": 10.0,
        "window_s": window_s,
        "changing_s": 0.0,
        "load_per_s__sum": window_s * load_per_s,
        **more,
    }


def write_observations(
    tables: Path, rows: Iterable[Mapping[str, object]], *, batch: int = 0, committed: bool = True
) -> None:
    """Add a batch; a negative one takes the place of all before it."""
    places: dict[Path, list[Mapping[str, object]]] = {}
    for row in rows:
        start_s, job = row["window_start_unix_s"], row["job"]
        assert isinstance(start_s, int)
        day = datetime.fromtimestamp(start_s, UTC).date()
        bucket = crc32(str(job).encode()) % _BUCKETS
        places.setdefault(tables / TABLE / f"day={day}" / f"bucket={bucket:02d}" / f"batch={batch}", []).append(row)
    for place, of_place in places.items():
        place.mkdir(parents=True)
        names = dict.fromkeys(name for row in of_place for name in row)
        found = pa.table({name: [row.get(name) for row in of_place] for name in names})
        pq.write_table(found, place / "part-0.parquet", store_schema=False, row_group_size=150)
        if batch < 0:
            write_json(place.parents[1] / COMPACTED, {"generation": -batch, "through": 0})
    write_json(tables / FACTS, {"format": FORMAT, "buckets": _BUCKETS})
    if committed:
        commit(tables, max(batch, 0))
