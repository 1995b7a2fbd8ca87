"""The audit reads what Spark itself writes: checkpoints, a file sink, named sources, a repartition."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.spark import audit_job
from tests.engines.spark.histories import ledger_line
from tidewise.engines.spark.audit import LEDGER, audit

pytest.importorskip("pyspark")
pytestmark = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, audit_job.__file__, str(folder)]
    ended = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=280, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return folder


def test_a_real_query_with_a_file_sink_is_proved_over_a_restart_and_spoiling_it_is_found(home: Path) -> None:
    found = audit(home / "files", sink=home / "sink")
    assert found.clean, found.sentences()
    assert found.first_batch == 0
    assert found.last_batch is not None
    assert found.last_batch >= 5
    (source,) = found.sources
    assert (source.kind, source.count) == ("counter", 10 * found.batches)
    assert found.files_checked is not None
    rows = sum(len(path.read_text().splitlines()) for path in (home / "sink").glob("part-*.json"))
    assert found.files_checked > 0
    assert rows >= 10 * found.batches  # a batch cut by the stop may have left files that no batch lists
    if found.orphan_files == 0 and found.in_flight is None:
        assert rows == 10 * found.batches

    (home / "files" / LEDGER).parent.mkdir()
    entries = [
        ledger_line(batch, (home / "files" / "offsets" / str(batch)).read_text())
        for batch in range(found.last_batch + 1)
    ]
    (home / "files" / LEDGER).write_text("".join(entries))
    (home / "files" / "offsets" / "0").unlink()  # as Spark does with the oldest
    (home / "files" / "commits" / "0").unlink()
    again = audit(home / "files", sink=home / "sink")
    assert again.clean, again.sentences()
    assert (again.first_batch, again.sources) == (0, found.sources)

    (home / "files" / LEDGER).write_text("".join(entries[:2] + entries[3:]))
    (home / "files" / "offsets" / "2").unlink()
    next((home / "sink").glob("part-*.json")).write_text("")
    assert {one.code for one in audit(home / "files", sink=home / "sink").violations} == {"gap", "file-size"}


def test_a_real_repartition_of_a_named_source_is_an_empty_range(home: Path) -> None:
    found = audit(home / "state")
    assert found.clean, found.sentences()
    assert (found.first_batch, found.last_batch) == (0, 2)
    (source,) = found.sources
    assert (source.name, source.kind, source.end) == ("lines", "files", '{"logOffset":1}')
    assert '"spark.sql.shuffle.partitions":"2"' in (home / "state" / "offsets" / "2").read_text()
