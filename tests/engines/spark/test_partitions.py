"""What waits in the partitions of a topic: each told by itself, whatever happens to topics and partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engines.spark.progress_samples import a_kafka_batch, told_by_spark
from tidewise.core import Configuration, JobStatus
from tidewise.engines.spark.partitions import WORST_KEPT, QueryLag
from tidewise.engines.spark.progress import parse_progress
from tidewise.engines.spark.reports import Reporter


def _reporter(window_s: float = 10.0) -> Reporter:
    reporter = Reporter(window_s=window_s)
    reporter.status(JobStatus.RUNNING, 0.0)
    reporter.configuration(Configuration(executors=1, commit_interval_s=1.0), 0.0)
    return reporter


def _lag(reporter: Reporter) -> QueryLag:
    lag = reporter.detail().queries[0].lag
    assert lag is not None
    return lag


def _processed(reporter: Reporter, until_s: float) -> float:
    return sum(report.processed_rate_per_s * report.window_s for report in reporter.observations(until_s))


def test_a_partition_that_lags_does_not_hide_in_the_total() -> None:
    reporter = _reporter()
    for second in range(1, 10):
        ends = {0: 100 * second, 1: 100 * second, 2: 10}
        before = {0: 100 * (second - 1), 1: 100 * (second - 1), 2: 10} if second > 1 else None
        latest = {0: 100 * second, 1: 100 * second, 2: 10 + 5 * (second - 1)}
        reporter.batch(
            a_kafka_batch(
                batch_id=second,
                began_s=float(second),
                start=None if before is None else {"orders": before},
                end={"orders": ends},
                latest={"orders": latest},
            ),
            second + 0.5,
        )
    (report,) = reporter.observations(10.0)
    lag = _lag(reporter)
    assert (lag.partitions, lag.worst[0].topic, lag.worst[0].partition) == (3, "orders", 2)
    # Its oldest record came after the first trigger; the other two wait since the last one.
    assert lag.worst[0].records == pytest.approx(45.0, rel=0.1)
    assert lag.oldest_s == lag.worst[0].oldest_s == pytest.approx(9.0)
    assert lag.oldest_is_known
    assert [one.oldest_s for one in lag.worst[1:]] == [pytest.approx(1.0)] * 2
    assert lag.records == pytest.approx(report.backlog_records, rel=0.05)


def test_what_came_while_a_long_batch_ran_waits_as_well() -> None:
    reporter = _reporter()
    for second in (1, 2, 3):
        reporter.batch(
            a_kafka_batch(
                batch_id=second,
                began_s=float(second),
                start={"orders": {0: 100 * (second - 1)}},
                end={"orders": {0: 100 * second}},
                latest={"orders": {0: 100 * second}},
            ),
            second + 0.5,
        )
    # The next batch began at 4 and has not ended by 20: Spark says nothing, and records go on to come.
    (report, second_report) = reporter.observations(20.0)
    lag = _lag(reporter)
    assert lag.records == pytest.approx(1700.0)
    assert lag.oldest_s == pytest.approx(17.0)
    assert second_report.backlog_records == pytest.approx(lag.records)
    assert report.backlog_records == pytest.approx(700.0)


def test_what_waited_before_the_query_was_heard_of_is_older_than_can_be_told() -> None:
    reporter = _reporter()
    batch = a_kafka_batch(batch_id=7, began_s=2.0, start={"t": {0: 500}}, end={"t": {0: 600}}, latest={"t": {0: 9000}})
    reporter.batch(batch, 2.5)
    reporter.observations(10.0)
    lag = _lag(reporter)
    assert (lag.records, lag.oldest_is_known) == (8400.0, False)
    assert lag.oldest_s == pytest.approx(8.0)


def test_a_trigger_that_found_nothing_leaves_nothing_waiting() -> None:
    reporter = _reporter()
    for second in (1, 2, 3):
        batch = a_kafka_batch(
            batch_id=second,
            began_s=float(second),
            start={"t": {0: 600 * (second - 1), 1: 0}},
            end={"t": {0: 600 * second, 1: 0}},
            latest={"t": {0: 600 * second, 1: 0}},
        )
        reporter.batch(batch, second + 0.5)
    assert _lag(reporter).lagging == 1, "more is to be expected as long as nobody says otherwise"
    reporter.idle("query", 5.0)
    reporter.observations(10.0)
    assert _lag(reporter) == QueryLag(records=0.0, partitions=2, lagging=0, worst=())


def test_a_thousand_partitions_do_not_flood_a_report() -> None:
    reporter = _reporter()
    partitions = range(1000)
    for second in (1, 2):
        batch = a_kafka_batch(
            batch_id=second,
            began_s=float(second),
            start={"t": dict.fromkeys(partitions, 10 * (second - 1))},
            end={"t": dict.fromkeys(partitions, 10 * second)},
            latest={"t": {key: 10 * second + (key if second == 2 else 0) for key in partitions}},
        )
        reporter.batch(batch, second + 0.5)
    lag = _lag(reporter)
    assert (lag.partitions, len(lag.worst)) == (1000, WORST_KEPT)
    assert lag.records >= sum(partitions)
    assert lag.worst[0].partition == 999


def test_a_topic_that_was_there_before_it_was_read_is_counted_from_where_it_is_read() -> None:
    reporter = _reporter()
    first = a_kafka_batch(batch_id=0, began_s=1.0, start=None, end={"a": {0: 100}}, latest={"a": {0: 100}})
    reporter.batch(first, 1.5)
    # Its first million records were deleted long ago.
    second = a_kafka_batch(
        batch_id=1,
        began_s=2.0,
        start={"a": {0: 100}},
        end={"a": {0: 150}, "b": {0: 1_000_030}},
        latest={"a": {0: 150}, "b": {0: 1_000_070}},
        rows=80,
    )
    reporter.batch(second, 2.5)
    assert second.sources[0].partitions[1].start == 1_000_000
    assert _processed(reporter, 10.0) == pytest.approx(180.0)
    assert _lag(reporter).worst[0].topic == "b"


def test_a_topic_that_is_made_anew_goes_on_and_hides_nobody() -> None:
    reporter = _reporter()
    first = a_kafka_batch(
        batch_id=0, began_s=1.0, start=None, end={"a": {0: 9000, 1: 10}}, latest={"a": {0: 9000, 1: 10}}
    )
    reporter.batch(first, 1.5)
    anew = a_kafka_batch(
        batch_id=1,
        began_s=2.0,
        start={"a": {0: 9000, 1: 10}},
        end={"a": {0: 30, 1: 60}},
        latest={"a": {0: 30, 1: 100}},
        rows=80,
    )
    reporter.batch(anew, 2.5)
    after = a_kafka_batch(
        batch_id=2,
        began_s=3.0,
        start={"a": {0: 30, 1: 60}},
        end={"a": {0: 50, 1: 100}},
        latest={"a": {0: 50, 1: 100}},
    )
    reporter.batch(after, 3.5)
    assert _processed(reporter, 10.0) == pytest.approx(9010 + 80 + 60)


@pytest.mark.parametrize(
    ("first", "then", "lost_before", "total"),
    [
        # Partition 0 was made anew, and the report of the batch that read 100 of partition 1 did not come.
        ({"a": {0: 5, 1: 0}}, {"a": {0: 3, 1: 150}}, {"a": {0: 0, 1: 100}}, 5 + 100 + 3 + 50),
        # The topic b was deleted, and the report of the batch that read 50 of a did not come.
        ({"a": {0: 10}, "b": {0: 1000}}, {"a": {0: 70}}, {"a": {0: 60}}, 1010 + 50 + 10),
    ],
)
def test_a_lost_report_is_made_up_for_though_offsets_fall(
    first: dict[str, dict[int, int]],
    then: dict[str, dict[int, int]],
    lost_before: dict[str, dict[int, int]],
    total: int,
) -> None:
    reporter = _reporter()
    reporter.batch(a_kafka_batch(batch_id=0, began_s=1.0, start=None, end=first, latest=first), 1.5)
    reporter.batch(a_kafka_batch(batch_id=2, began_s=3.0, start=lost_before, end=then, latest=then), 3.5)
    assert _processed(reporter, 10.0) == pytest.approx(total)


def test_offsets_without_records_make_an_advance_and_no_rows() -> None:
    # A transaction leaves an offset that holds no record: the partition has still come so far.
    reporter = _reporter()
    for number in (1, 2):
        batch = a_kafka_batch(
            batch_id=number,
            began_s=float(number),
            start={"t": {0: 11 * (number - 1)}},
            end={"t": {0: 11 * number}},
            latest={"t": {0: 11 * number}},
            rows=10,
        )
        reporter.batch(batch, number + 0.5)
    assert _processed(reporter, 10.0) == pytest.approx(22.0)
    assert _lag(reporter).worst[0].oldest_s == pytest.approx(8.0)


def test_a_batch_that_does_not_say_what_is_newest_takes_nothing_back() -> None:
    # As Spark tells of a batch that it runs again after a restart.
    reporter = _reporter()
    for number in (1, 2, 3):
        batch = a_kafka_batch(
            batch_id=number,
            began_s=float(number),
            start={"t": {0: 100 * (number - 1)}},
            end={"t": {0: 100 * number}},
            latest={"t": {0: 100 * number + 50}},
        )
        reporter.batch(batch, number + 0.5)
    replayed = a_kafka_batch(
        batch_id=4, began_s=8.0, start={"t": {0: 300}}, end={"t": {0: 400}}, latest=None, run_id="run-2"
    )
    reporter.batch(replayed, 8.5)
    (report,) = reporter.observations(10.0)
    assert not reporter.detail().queries[0].backlog_known
    assert report.backlog_records == pytest.approx(650.0)
    assert _lag(reporter).records == pytest.approx(650.0)


def test_a_first_batch_that_does_not_say_what_is_newest_makes_no_input_of_what_waited() -> None:
    reporter = _reporter()
    reporter.batch(a_kafka_batch(batch_id=4, began_s=1.0, start={"t": {0: 0}}, end={"t": {0: 9}}, latest=None), 1.5)
    second = a_kafka_batch(batch_id=5, began_s=2.0, start={"t": {0: 9}}, end={"t": {0: 20}}, latest={"t": {0: 100_020}})
    reporter.batch(second, 2.5)
    (report,) = reporter.observations(10.0)
    assert report.input_rate_per_s == 0.0
    assert report.backlog_records == pytest.approx(100_000.0)


def test_a_real_query_that_falls_behind_is_followed_over_a_restart() -> None:
    # 50 offsets a batch, then 500; 500 come per second. The first batch after the restart was run again.
    runs = [parse_progress(text) for text in told_by_spark("kafka")]
    began_unix_s = runs[0].began_unix_s
    reporter = _reporter(window_s=1.0)
    lags = []
    for progress in runs:
        at_s = 1.0 + progress.committed_unix_s - began_unix_s
        reporter.batch(progress, at_s)
        reporter.observations(at_s)
        lags.append(_lag(reporter))
    assert all(later.records > earlier.records for earlier, later in pairwise(lags[:9]))
    assert [one.partition for one in lags[-1].worst[:1]] == [0]
    last = runs[-1].sources[0]
    assert last.latest is not None
    assert last.end is not None
    # As Spark said at the start of the last batch, and what has come since then.
    assert last.latest - last.end <= lags[-1].records <= last.latest - last.end + 500 * 2
    assert (lags[-1].oldest_s or 0.0) > 10.0


_STEP = st.fixed_dictionaries(
    {
        "what": st.sampled_from(
            ["batch"] * 8 + ["more partitions", "another topic", "topic gone", "made anew", "lost report", "look"]
        ),
        "arrivals": st.lists(st.integers(0, 500), min_size=4, max_size=4),
        "most_rows": st.sampled_from([50, 500, 10**9]),
        "base": st.sampled_from([0, 7, 10**6]),
    }
)


@dataclass
class _Broker:
    """Topics and a query that reads them as Spark does, with the true numbers beside."""

    newest: dict[str, dict[int, int]] = field(default_factory=lambda: {"t0": {0: 40, 1: 3}})
    first: dict[str, dict[int, int]] = field(default_factory=lambda: {"t0": {0: 0, 1: 0}})
    read: dict[str, dict[int, int]] | None = None
    batches: int = 0
    committed: int = 0
    topics: int = 1

    def arrive(self, records: list[int]) -> None:
        for number, (topic, key) in enumerate((topic, key) for topic, parts in self.newest.items() for key in parts):
            self.newest[topic][key] += records[number % len(records)]

    def add_topic(self, base: int) -> None:
        self.newest[f"t{self.topics}"] = {0: base}
        self.first[f"t{self.topics}"] = {0: base}
        self.topics += 1

    def make_anew(self) -> None:
        topic = max(self.newest)
        # With more records than were read of the old one nobody could tell it from the old one.
        self.newest[topic] = dict.fromkeys(self.newest[topic], 0)
        self.first[topic] = dict.fromkeys(self.newest[topic], 0)

    def batch(self, most_rows: int) -> dict[str, object]:
        start, rows = self.read, 0
        end: dict[str, dict[int, int]] = {}
        for topic, parts in self.newest.items():
            end[topic] = {}
            for key, newest in parts.items():
                begin = (start or {}).get(topic, {}).get(key, self.first[topic][key])
                if begin > newest:
                    begin = 0  # made anew
                end[topic][key] = min(newest, begin + most_rows)
                rows += end[topic][key] - begin
        self.read = end
        self.committed += rows
        self.batches += 1
        latest = {topic: dict(parts) for topic, parts in self.newest.items()}
        return {"batch_id": self.batches, "start": start, "end": end, "latest": latest, "rows": rows}

    @property
    def is_same(self) -> bool:
        """Whether the next batch goes on with the same partitions."""
        read = {(topic, key): at for topic, parts in (self.read or {}).items() for key, at in parts.items()}
        newest = {(topic, key): at for topic, parts in self.newest.items() for key, at in parts.items()}
        return read.keys() == newest.keys() and all(newest[key] >= at for key, at in read.items())

    @property
    def waiting(self) -> int:
        assert self.read is not None
        return sum(at - self.read[topic][key] for topic, parts in self.newest.items() for key, at in parts.items())


@given(steps=st.lists(_STEP, min_size=1, max_size=30))
def test_whatever_happens_to_topics_every_record_is_counted_once(steps: list[dict[str, object]]) -> None:
    reporter, broker, now_s, processed = _reporter(), _Broker(), 1.0, 0.0
    for step in [*steps, {"what": "batch", "arrivals": [1], "most_rows": 50, "base": 0}]:
        what, arrivals, most_rows, base = step["what"], step["arrivals"], step["most_rows"], step["base"]
        assert isinstance(arrivals, list)
        assert isinstance(most_rows, int)
        assert isinstance(base, int)
        now_s += 1.0
        if what == "another topic":
            broker.add_topic(base)
        elif what == "more partitions":
            topic = max(broker.newest)
            broker.newest[topic][len(broker.newest[topic])] = 0
            broker.first[topic][len(broker.first[topic])] = 0
        elif what == "topic gone" and len(broker.newest) > 1:
            gone = max(broker.newest)
            del broker.newest[gone], broker.first[gone]
        elif what == "made anew":
            broker.make_anew()
        elif what == "look":
            processed += _processed(reporter, now_s - 1.0)
        else:
            broker.arrive(arrivals)
            same = broker.is_same
            batch = broker.batch(most_rows)
            if what == "lost report" and same:
                # Found again by its offsets. What it held of partitions that it was the first to read is lost with it.
                batch = broker.batch(most_rows)
            reporter.batch(a_kafka_batch(began_s=now_s - 0.5, duration_s=0.25, **batch), now_s - 0.25)  # type: ignore[arg-type]  # as made above
    processed += _processed(reporter, now_s + 20.0)
    assert processed == pytest.approx(broker.committed, abs=1e-3)
    lag = _lag(reporter)
    assert lag.partitions == sum(len(parts) for parts in broker.newest.values())
    assert lag.records >= broker.waiting - 1e-6
    assert lag.lagging >= len(lag.worst) == min(lag.lagging, WORST_KEPT)
    assert (lag.oldest_s is None) == (lag.lagging == 0)
    assert all(one.records >= 0.0 and (one.oldest_s or 0.0) >= 0.0 for one in lag.worst)
