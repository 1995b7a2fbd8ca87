"""The programs between topics of a real broker: right answers, dead letters, real-time mode, and what is not there."""

from __future__ import annotations

import datetime
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.jobs import answers
from tests.jobs.running import PATIENCE_S, observed, progress, to_the_end, values_of
from tidewise.experiments.produce import Produced, Production, produce
from tidewise.jobs import copy, ysb
from tidewise.jobs.program import keep_dead_letters, options_of, parsed, records_of, session_of, writer_of
from tidewise.jobs.records.encoding import is_broken
from tidewise.jobs.records.kinds import Disorder
from tidewise.jobs.records.ysb import campaigns
from tidewise.jobs.schedule import Schedule
from tidewise.kafka import topics
from tidewise.kafka.broker import LocalBroker

pytestmark = pytest.mark.xdist_group("jobs")

SCHEDULE = Schedule(began_unix_s=1_700_000_003.0, rates_per_s=(100.0,) * 40, after="stop")
TOTAL = 4000
LATE = Disorder(share=0.3, most_s=8.0)
BROKEN_SHARE = 0.05
PARTITIONS = 2


def fill(address: str, topic: str, *, disorder: Disorder | None = None, broken_share: float = 0.0) -> Produced:
    """All records of the schedule, at once, with the event times that it has."""
    wanted = Production(
        job="ysb",
        brokers=address,
        topic=topic,
        partitions=PARTITIONS,
        processes=1,
        disorder=disorder or Disorder(),
        broken_share=broken_share,
        at_once=True,
    )
    produced = produce(wanted, SCHEDULE, began_unix_s=SCHEDULE.began_unix_s)
    assert (produced.report.acknowledged, produced.grew_by) == (TOTAL, TOTAL)
    return produced


def milliseconds(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def test_ysb_counts_the_good_records_and_keeps_the_broken_ones(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path
) -> None:
    produced = fill(broker.address, "events", disorder=LATE, broken_share=BROKEN_SHARE)
    topics.create(broker.address, "views", PARTITIONS)
    kafka = ["--source", "kafka", "--brokers", broker.address, "--topic", "events"]
    kafka += ["--sink", "kafka", "--out-topic", "views", "--dead-letters", str(tmp_path / "letters")]
    kafka += ["--checkpoint", str(tmp_path / "checkpoint"), "--max-records-per-batch", "1500"]
    given = parsed(options_of("a test"), kafka)
    assert session_of(given) is spark
    events = records_of(spark, given, ysb.KIND)
    views = ysb.views_per_campaign(events, ysb.ads_of(spark, seed=0), sliding=False)
    query = to_the_end(views, given, output_mode="update", key="campaign_id")

    ordinals = np.arange(TOTAL)
    broken = is_broken(ordinals, seed=0, share=BROKEN_SHARE)
    pieces = produced.schedule.pieces(0, TOTAL)
    made = ysb.KIND.batch(seed=0, first=0, end=TOTAL, pieces=pieces, disorder=LATE)
    good = [row for row in answers.rows(made) if not broken[row["ordinal"]]]
    expected = answers.views_per_campaign(good, dict(campaigns(0)), slide_ms=answers.WINDOW_MS)
    said = list(values_of(broker.address, "views"))
    found = {
        (milliseconds(row["start"]), row["campaign_id"]): (row["views"], milliseconds(row["last_update"]))
        for row in said
    }
    assert found == expected
    assert len(said) > len(expected), "no window was told again by a later batch: this test shows too little"
    assert observed(query, "dead_letters", "records") == broken.sum() > 0

    letters = keep_dead_letters(spark, given, ysb.KIND)
    assert letters is not None
    letters.processAllAvailable()
    letters.stop()
    batches = [entry["numInputRows"] for entry in progress(letters) if entry["numInputRows"]]
    assert batches == [TOTAL], "the limit of the other query's batches holds this one back"
    kept = pq.read_table(given.dead_letters, columns=["partition", "offset", "reason"]).to_pylist()
    # A partition has its ordinals in their order.
    homes = ysb.KIND.partitions(ordinals, PARTITIONS)
    places = {
        (number, offset) for number in range(PARTITIONS) for offset in np.flatnonzero(broken[homes == number]).tolist()
    }
    assert sorted((row["partition"], row["offset"]) for row in kept) == sorted(places)
    reasons = Counter(row["reason"].partition(":")[0] for row in kept)
    assert set(reasons) == {"malformed", "oversized"}


def test_a_topic_that_is_not_there_is_told_in_a_sentence(
    spark: SparkSession, broker: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        ysb.main(
            ["--source", "kafka", "--brokers", broker.address, "--topic", "evnts", "--checkpoint", str(tmp_path / "c")]
        )
    assert stopped.value.code == 2
    sentence = f"there is no topic 'evnts' at {broker.address}: make it, or correct --topic"
    assert capsys.readouterr().err.splitlines()[-1] == sentence
    assert spark.streams.active == []


def test_a_broker_that_comes_late_is_waited_for(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))  # bound, but nobody listens yet
        address = f"127.0.0.1:{server.getsockname()[1]}"
        kafka = ["--source", "kafka", "--brokers", address, "--topic", "t", "--checkpoint", str(tmp_path / "c")]
        later = threading.Timer(1.0, server.listen)
        later.start()
        assert session_of(parsed(options_of("a test"), kafka)) is spark
        later.join()
    told = capsys.readouterr().err
    assert f"no broker listens at {address}; waiting for it, up to 120 s" in told


def test_real_time_mode_copies_every_record(spark: SparkSession, broker: LocalBroker, tmp_path: Path) -> None:
    fill(broker.address, "live")
    topics.create(broker.address, "copied", PARTITIONS)
    kafka = ["--source", "kafka", "--brokers", broker.address, "--topic", "live", "--sink", "kafka"]
    kafka += ["--out-topic", "copied", "--checkpoint", str(tmp_path / "checkpoint")]
    given = parsed(options_of("a test"), [*kafka, "--mode", "real-time", "--trigger", "5 seconds"])
    assert session_of(given) is spark
    query = writer_of(
        copy.ordinals(records_of(spark, given, ysb.KIND), state_mib=0), given, output_mode="append"
    ).start()
    deadline_s = time.monotonic() + PATIENCE_S
    try:
        while sum(reach.records for reach in topics.ends(broker.address, "copied").values()) < TOTAL:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline_s, f"not all records were copied in {PATIENCE_S} s"
            time.sleep(0.2)
    finally:
        query.stop()
    assert {row["ordinal"] for row in values_of(broker.address, "copied")} == set(range(TOTAL))
