"""A right history is proved; whatever is done to it is found, and named."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines.spark.histories import COMMIT, Story, counting, entry, ledger_line
from tidewise.core import BadInputError
from tidewise.engines.spark.audit import Audit, audit, committed_in_kafka, state_partitions


def codes(found: Audit) -> set[str]:
    return {one.code for one in found.violations}


def of_entries(folder: Path, *entries: str) -> Audit:
    """The audit of a checkpoint that still keeps all its batches."""
    return audit(Story(folder=folder, offsets=dict(enumerate(entries))).write())


def of_sources(folder: Path, *offsets: str) -> Audit:
    return of_entries(folder, *(entry(batch, offset) for batch, offset in enumerate(offsets)))


def test_a_right_history_is_proved_from_ledger_and_checkpoint(tmp_path: Path) -> None:
    found = audit(counting(tmp_path, batches=300, kept_from=200).write())
    assert found.clean
    assert (found.first_batch, found.last_batch, found.batches) == (0, 299, 300)
    (source,) = found.sources
    assert (source.start, source.end, source.count, source.unit) == (None, '{"records":3000}', 3000, "records")
    assert found.sentences()[0] == "Proved: batches 0 to 299 (300) were each committed once and in order."
    assert not found.warnings


def test_without_a_ledger_only_what_spark_keeps_is_proved_and_that_is_said(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=10, kept_from=4)
    story.ledger = None
    found = audit(story.write())
    assert found.clean
    assert (found.first_batch, found.last_batch) == (4, 9)
    assert (found.sources[0].start, found.sources[0].count) == ('{"records":50}', 50)
    assert "no ledger" in found.warnings[0]


def test_a_checkpoint_before_its_first_batch_is_clean_and_proves_nothing(tmp_path: Path) -> None:
    found = audit(Story(folder=tmp_path, offsets={}).write())
    assert found.clean
    assert found.first_batch is None
    assert found.sentences()[0].startswith("Nothing to prove yet")


def test_a_checkpoint_tells_into_how_many_parts_its_state_is_cut(tmp_path: Path) -> None:
    checkpoint = counting(tmp_path, batches=11).write()
    assert state_partitions(checkpoint) is None
    last = checkpoint / "offsets" / "10"
    version, _, *sources = last.read_text(encoding="utf-8").split("\n")
    metadata = '{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"6"}}'
    last.write_text("\n".join([version, metadata, *sources]), encoding="utf-8")
    assert state_partitions(checkpoint) == 6
    assert state_partitions(tmp_path / "not-there") is None


def test_a_gap_names_its_range(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=20, kept_from=15)
    assert story.ledger is not None
    del story.ledger[5:9]
    found = audit(story.write())
    assert codes(found) == {"gap"}
    assert "batches 5 to 8 are" in found.violations[0].sentence
    assert found.batches == 16


def test_a_gap_between_the_ledger_and_what_spark_keeps_is_found(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=20, kept_from=15)
    assert story.ledger is not None
    del story.ledger[10:]
    assert "batches 10 to 14 are" in audit(story.write()).violations[0].sentence


def test_a_gap_in_a_long_ledger_is_told_once(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=10_000, kept_from=9_990)
    assert story.ledger is not None
    del story.ledger[1000]
    found = audit(story.write())
    assert [one.sentence[:14] for one in found.violations] == ["batch 1000 is "]
    assert found.batches == 9_999


def test_the_checkpoint_fills_what_the_ledger_lacks(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=20, kept_from=5)
    assert story.ledger is not None
    del story.ledger[8:12]
    del story.ledger[:2]
    found = audit(story.write())
    assert found.clean
    assert (found.first_batch, found.batches) == (2, 18)


def test_two_owners_that_catch_up_may_write_the_same_batches_in_any_order(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=40, kept_from=39)
    assert story.ledger is not None
    second = [ledger_line(b, story.offsets[b], owner="app-2", epoch=2) for b in range(15, 40)]
    story.ledger = [*story.ledger[3:20], *story.ledger[:3], *reversed(second)]
    found = audit(story.write())
    assert found.clean
    assert [(owner.name, owner.epoch, owner.first_batch, owner.last_batch) for owner in found.owners] == [
        ("app-1", 1, 0, 19),
        ("app-2", 2, 20, 39),
    ]


def test_a_batch_committed_again_long_after_is_found(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6000, kept_from=5900)
    assert story.ledger is not None
    story.ledger.append(ledger_line(17, entry(17, '{"records":181}'), owner="app-2", epoch=2))
    assert codes(audit(story.write())) == {"committed-twice"}


def test_an_epoch_that_goes_down_is_an_owner_without_a_lease(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6)
    assert story.ledger is not None
    story.ledger[3] = ledger_line(3, story.offsets[3], owner="app-2", epoch=2)
    found = audit(story.write())
    assert codes(found) == {"epoch-went-down"}
    assert "batch 4 was committed by app-1 under epoch 1, after batch 3" in found.violations[0].sentence


def test_a_late_line_of_the_old_owner_is_fine_where_the_new_one_wrote_the_same(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6)
    assert story.ledger is not None
    new = {b: ledger_line(b, story.offsets[b], owner="app-2", epoch=2) for b in range(6)}
    old = dict(enumerate(story.ledger))
    story.ledger = [old[0], new[1], old[2], new[2], new[3], new[4], new[5]]
    assert audit(story.write()).clean


def test_two_owners_under_one_epoch_are_told_of(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=4)
    assert story.ledger is not None
    story.ledger[3] = ledger_line(3, story.offsets[3], owner="app-2", epoch=1)
    assert "app-1 and app-2 both wrote under epoch 1" in audit(story.write()).warnings


def test_a_torn_last_line_is_tolerated_and_told(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6)
    assert story.ledger is not None
    story.ledger[-1] = story.ledger[-1][:40]
    found = audit(story.write())
    assert found.clean
    assert "ends in a line that was cut off" in found.warnings[0]
    assert found.last_batch == 5  # the checkpoint still has it


def test_a_line_glued_behind_a_torn_one_is_read(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6, kept_from=5)
    assert story.ledger is not None
    story.ledger.insert(3, story.ledger[3][:30])
    found = audit(story.write())
    assert found.clean
    assert found.batches == 6
    assert "unreadable line 4" in found.warnings[0]


def test_a_torn_line_whose_batch_is_nowhere_else_is_a_gap(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6, kept_from=5)
    assert story.ledger is not None
    story.ledger[3] = story.ledger[3][:30] + "\n"
    assert codes(audit(story.write())) == {"gap"}


@pytest.mark.parametrize("line", ["\n", "[1]\n", "{}\n", '{"batch": true}\n', '{"batch": -1}\n', "\udcff\n", "17\n"])
def test_a_line_that_is_no_entry_is_a_warning(tmp_path: Path, line: str) -> None:
    story = counting(tmp_path, batches=6, kept_from=5)
    checkpoint = story.write()
    ledger = checkpoint / "_tidewise" / "ledger.jsonl"
    ledger.write_bytes(line.encode(errors="surrogateescape") + ledger.read_bytes())
    found = audit(checkpoint)
    assert found.clean
    assert found.batches == 6
    assert "unreadable line 1" in found.warnings[0]


def test_a_last_batch_without_its_commit_is_in_flight(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6)
    assert story.ledger is not None
    story.ledger.pop()
    story.uncommitted = {5}
    found = audit(story.write())
    assert found.clean
    assert (found.last_batch, found.in_flight) == (4, 5)
    assert found.sources[0].count == 50


def test_a_batch_without_its_commit_before_the_last_is_found(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=6)
    story.ledger = None
    story.uncommitted = {3}
    assert codes(audit(story.write())) == {"missing-commit"}


def test_a_commit_without_offsets_is_found(tmp_path: Path) -> None:
    checkpoint = counting(tmp_path, batches=6).write()
    (checkpoint / "commits" / "6").write_text(COMMIT)
    assert codes(audit(checkpoint)) == {"commit-without-offsets"}


def test_a_commit_that_the_ledger_tells_otherwise_is_found(tmp_path: Path) -> None:
    checkpoint = counting(tmp_path, batches=6).write()
    (checkpoint / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":7}')
    assert codes(audit(checkpoint)) == {"ledger-differs"}


@pytest.mark.parametrize("text", ["", "v1", "v9\n{}\n{}", "v2\n{}\nno colon", 'v2\n{}\na:{"offset":1}\na:{"offset":2}'])
def test_an_entry_that_spark_could_not_read_is_found(tmp_path: Path, text: str) -> None:
    assert codes(of_entries(tmp_path, text)) == {"unreadable"}


def test_the_batch_that_a_repartition_adds_is_an_empty_range(tmp_path: Path) -> None:
    found = of_sources(tmp_path, '{"records":5}', '{"records":9}', '{"records":9}', '{"records":12}')
    assert found.clean
    assert found.sources[0].count == 12


def test_kafka_is_counted_from_where_it_began_by_topic_and_partition(tmp_path: Path) -> None:
    begun = tmp_path / "checkpoint" / "sources" / "0" / "0"
    begun.parent.mkdir(parents=True)
    begun.write_text('\0v1\n{"orders":{"0":100,"1":40}}')
    found = of_sources(tmp_path, '{"orders":{"0":110,"1":40}}', '{"orders":{"0":111,"1":60}}')
    assert found.clean
    (source,) = found.sources
    assert (source.kind, source.count, source.unit) == ("kafka", 31, "offsets")
    assert source.start == '{"orders":{"0":100,"1":40}}'


def _a_kafka_query(folder: Path) -> Story:
    """As Spark 4.3 writes it: two topics, where they began, and a partition that was added in between."""
    steps = [
        '{"orders":{"1":40,"0":110},"refunds":{"0":7}}',
        '{"orders":{"1":60,"0":111},"refunds":{"0":7}}',
        '{"orders":{"2":5,"1":80,"0":111},"refunds":{"0":9}}',
        '{"orders":{"2":6,"1":80,"0":130},"refunds":{"0":9}}',
    ]
    offsets = {batch: entry(batch, step) for batch, step in enumerate(steps)}
    story = Story(folder=folder, offsets=offsets, ledger=[ledger_line(batch, text) for batch, text in offsets.items()])
    begun = story.checkpoint / "sources" / "0" / "0"
    begun.parent.mkdir(parents=True)
    begun.write_text('\0v1\n{"orders":{"1":0,"0":100},"refunds":{"0":7}}')
    return story


def test_a_kafka_query_is_proved_over_a_partition_that_was_added(tmp_path: Path) -> None:
    story = _a_kafka_query(tmp_path)
    story.kept_from = 2
    found = audit(story.write())
    assert (found.clean, found.warnings, found.batches) == (True, (), 4)
    (source,) = found.sources
    # The one that was added counts from 0, where Spark begins to read it.
    assert (source.kind, source.count, source.unit) == ("kafka", 30 + 80 + 6 + 2, "offsets")
    assert source.end == '{"orders":{"2":6,"1":80,"0":130},"refunds":{"0":9}}'


def test_what_kafka_has_committed_is_what_the_last_committed_batch_says(tmp_path: Path) -> None:
    story = _a_kafka_query(tmp_path)
    story.uncommitted = {3}
    assert committed_in_kafka(story.write()) == {"orders": {0: 111, 1: 80, 2: 5}, "refunds": {0: 9}}


def test_before_its_first_batch_a_kafka_query_stands_where_it_begins(tmp_path: Path) -> None:
    story = _a_kafka_query(tmp_path)
    story.uncommitted = {0, 1, 2, 3}
    assert committed_in_kafka(story.write()) == {"orders": {0: 100, 1: 0}, "refunds": {0: 7}}


def test_of_two_sources_that_read_one_topic_the_slower_counts(tmp_path: Path) -> None:
    offsets = {0: entry(0, '{"orders":{"0":5,"1":9}}', '{"records":3}', '{"orders":{"0":7,"1":8}}')}
    assert committed_in_kafka(Story(folder=tmp_path, offsets=offsets).write()) == {"orders": {0: 5, 1: 8}}


@pytest.mark.parametrize(
    ("entry_text", "sentence"),
    [
        (entry(0, '{"records":3}'), "has committed nothing from Kafka"),
        (entry(0, "-"), "has committed nothing from Kafka"),
        (entry(0, '{"stream":{"shardId-0":5}}'), "has committed nothing from Kafka"),
        ("v9\n{}\n{}", "cannot be read: its first line is 'v9'"),
    ],
)
def test_a_query_without_offsets_of_kafka_is_refused(tmp_path: Path, entry_text: str, sentence: str) -> None:
    checkpoint = Story(folder=tmp_path, offsets={0: entry_text}).write()
    with pytest.raises(BadInputError, match=sentence):
        committed_in_kafka(checkpoint)


def test_a_kafka_partition_that_goes_back_is_found_though_others_advance(tmp_path: Path) -> None:
    found = of_sources(tmp_path, '{"a":{"0":5,"1":5}}', '{"a":{"0":9,"1":9}}', '{"a":{"0":99,"1":8}}')
    assert codes(found) == {"went-back"}
    assert "source 0 in batch 2" in found.violations[0].sentence


def test_a_kafka_partition_may_come_and_go_but_not_begin_again(tmp_path: Path) -> None:
    steps = ['{"a":{"0":5}}', '{"a":{"0":6,"1":3}}', '{"a":{"0":7}}', '{"a":{"0":8}}', '{"a":{"0":9,"1":4}}']
    found = of_sources(tmp_path / "fine", *steps)
    assert found.clean
    assert [one for one in found.warnings if "a/1" in one] == ["source 0 in batch 2 no longer reads a/1"]
    assert codes(of_sources(tmp_path / "again", *steps[:4], '{"a":{"0":9,"1":2}}')) == {"went-back"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("7", "6"),
        ('{"records": 7}', '{"records": 6}'),
        ('{"offset":70,"timestamp":7000}', '{"offset":60,"timestamp":6000}'),
        ('{"logOffset":7}', '{"logOffset":6}'),
        ('{"0":7,"1":7}', '{"0":6,"1":7}'),
        ('{"at":7}', '{"at":6}'),
        ('{"x":7,"y":7}', '{"x":6,"y":7}'),
        ('{"reservoirVersion":7,"index":3,"id":"z"}', '{"reservoirVersion":7,"index":2,"id":"z"}'),
    ],
)
def test_no_kind_of_source_may_go_back(tmp_path: Path, before: str, after: str) -> None:
    assert codes(of_sources(tmp_path / "back", before, after)) == {"went-back"}
    assert of_sources(tmp_path / "forth", after, before).clean


def test_a_delta_source_begins_its_index_again_in_the_next_version(tmp_path: Path) -> None:
    found = of_sources(tmp_path, '{"reservoirVersion":7,"index":3}', '{"reservoirVersion":8,"index":-1}')
    assert found.clean


def test_offsets_that_cannot_be_ordered_are_told_of(tmp_path: Path) -> None:
    mixed = of_sources(tmp_path / "mixed", '{"x":1,"y":5}', '{"x":2,"y":0}')
    opaque = of_sources(tmp_path / "opaque", '{"shard":"b"}', '{"shard":"a"}', "what?")
    assert mixed.clean
    assert opaque.clean
    assert any("only the source knows" in one for one in mixed.warnings)
    assert any("hold no numbers" in one for one in opaque.warnings)


def test_a_source_that_turns_into_another_is_found(tmp_path: Path) -> None:
    assert codes(of_sources(tmp_path, '{"records":7}', '{"logOffset":9}')) == {"source-changed"}


def test_named_sources_are_followed_by_name(tmp_path: Path) -> None:
    found = of_entries(
        tmp_path,
        entry(0, 'orders:{"records":5}', "clicks:-", version="v2"),
        entry(1, 'clicks:{"a":{"0":3}}', 'orders:{"records":6}', version="v2"),
        entry(2, 'orders:{"records":9}', 'clicks:{"a":{"0":8}}', version="v2"),
    )
    assert found.clean
    assert {source.name: source.count for source in found.sources} == {"orders": 9, "clicks": 5}


def test_several_sources_are_told_apart_by_their_place(tmp_path: Path) -> None:
    found = of_entries(
        tmp_path, entry(0, "-", '{"records":9}'), entry(1, '{"records":2}', '{"records":9}'), entry(2, "3", "-")
    )
    assert codes(found) == {"source-changed"}
    assert any("no longer names source 1" in one for one in found.warnings)


def test_many_violations_of_one_kind_are_counted_not_listed(tmp_path: Path) -> None:
    found = of_sources(tmp_path, *(f'{{"records":{n}}}' for n in range(1000, 900, -1)))
    assert len(found.violations) == 6
    assert found.violations[-1].sentence == "94 more of the kind 'went-back'"


# The file sink


def test_a_whole_sink_is_proved(tmp_path: Path) -> None:
    story = counting(tmp_path)
    found = audit(story.write(), sink=story.write_sink())
    assert found.clean
    assert (found.files_checked, found.orphan_files) == (16, 0)


def test_log_entries_that_spark_expired_after_compacting_are_not_missed(tmp_path: Path) -> None:
    story = counting(tmp_path)
    sink = story.write_sink()
    for name in ("0", "1", "2.compact", "3"):
        (sink / "_spark_metadata" / name).unlink()
    found = audit(story.write(), sink=sink)
    assert found.clean
    assert found.files_checked == 16


def test_orphans_are_counted_and_harmless(tmp_path: Path) -> None:
    story = counting(tmp_path)
    sink = story.write_sink()
    (sink / "part-9").write_text("cut")
    (sink / "_day=3").mkdir()
    (sink / "_day=3" / "part-9").write_text("cut")
    (sink / "_temporary").mkdir()
    (sink / "_temporary" / "part-9").write_text("cut")
    found = audit(story.write(), sink=sink)
    assert found.clean
    assert found.orphan_files == 2
    assert any("2 data files that no batch lists" in one for one in found.sentences())


def test_a_committed_batch_that_the_sink_lacks_is_found_and_an_empty_one_told_of(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=8)
    sink = story.write_sink(compact_every=100)
    (sink / "_spark_metadata" / "4").unlink()
    assert codes(audit(story.write(), sink=sink)) == {"sink-batch-missing"}
    assert story.ledger is not None
    story.offsets[4] = entry(4, '{"records":40}')
    story.ledger[4] = ledger_line(4, story.offsets[4])
    found = audit(story.write(), sink=sink)
    assert found.clean
    assert any("no entry for batch 4" in one for one in found.warnings)


def test_a_sink_ahead_of_its_checkpoint_is_found(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=8)
    sink = story.write_sink()
    story.offsets = {batch: text for batch, text in story.offsets.items() if batch < 4}
    story.ledger = None
    assert codes(audit(story.write(), sink=sink)) == {"sink-ahead"}


def test_the_batch_in_flight_may_be_in_the_sink(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=8)
    sink = story.write_sink()
    story.uncommitted = {7}
    story.ledger = None
    assert audit(story.write(), sink=sink).clean


def test_a_file_that_a_compact_entry_leaves_out_is_lost_unless_it_is_the_oldest(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=3)
    checkpoint, sink = story.write(), story.write_sink()
    compact = sink / "_spark_metadata" / "2.compact"
    version, *lines = compact.read_text().split("\n")
    compact.write_text("\n".join([version, *lines[:2], *lines[4:]]))
    assert codes(audit(checkpoint, sink=sink)) == {"sink-file-lost"}
    compact.write_text("\n".join([version, *lines[2:]]))
    aged = audit(checkpoint, sink=sink)
    assert aged.clean
    assert any("retention" in one for one in aged.warnings)


def test_a_deleted_file_is_not_missed(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=2)
    sink = story.write_sink()
    log = sink / "_spark_metadata" / "1"
    first = (sink / "_spark_metadata" / "0").read_text().split("\n")[1]
    log.write_text(log.read_text() + "\n" + first.replace('"add"', '"delete"'))
    (sink / "part-00000-0-c000.json").unlink()
    assert audit(story.write(), sink=sink).clean


def test_a_path_with_odd_characters_is_found_where_it_lies(tmp_path: Path) -> None:
    story = counting(tmp_path / "a b%20ü", batches=4)
    story.folder.mkdir()
    found = audit(story.write(), sink=story.write_sink())
    assert found.clean
    assert found.orphan_files == 0


def test_files_on_another_file_system_are_told_not_missed(tmp_path: Path) -> None:
    story = counting(tmp_path, batches=1)
    sink = story.write_sink()
    log = sink / "_spark_metadata" / "0"
    log.write_text(log.read_text().replace("file:///", "s3a://bucket/"))
    found = audit(story.write(), sink=sink)
    assert found.clean
    assert any("was not looked at" in one for one in found.warnings)


# Bad input


def test_bad_input_is_one_sentence_that_says_what_to_write(tmp_path: Path) -> None:
    checkpoint = counting(tmp_path / "job").write()
    with pytest.raises(BadInputError, match="there is no folder"):
        audit(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInputError, match=r"is not a Spark checkpoint .* name the query's checkpointLocation"):
        audit(tmp_path / "empty")
    for near in (tmp_path, tmp_path / "job", checkpoint / "offsets"):
        with pytest.raises(BadInputError, match=f"did you mean {checkpoint}"):
            audit(near)
    with pytest.raises(BadInputError, match="there is no ledger"):
        audit(checkpoint, ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(BadInputError, match="no _spark_metadata folder"):
        audit(checkpoint, sink=tmp_path)


# Properties


@st.composite
def sources(draw: st.DrawFn) -> Callable[[int], str]:
    """A source whose offset advances with every batch, of any kind that can be ordered."""
    step = draw(st.integers(1, 1000))
    base = draw(st.integers(0, 10**12))
    form: str = draw(
        st.sampled_from(
            [
                '{"records":N}',
                '{"records": N}',
                '{"offset":N,"timestamp":N}',
                '{"logOffset":N}',
                '{"t":{"0":N,"1":N}}',
                "N",
            ]
        )
    )
    return lambda batch: form.replace("N", str(base + step * batch))


@st.composite
def stories(draw: st.DrawFn) -> Callable[[Path], Story]:
    batches = draw(st.integers(4, 30))
    kept_from = draw(st.integers(0, batches - 1))
    offset_of = draw(st.lists(sources(), min_size=1, max_size=3))
    named = draw(st.booleans())
    handovers = sorted(draw(st.sets(st.integers(1, batches - 1), max_size=3)))
    repeated = draw(st.sets(st.integers(0, batches - 1)))

    def make(folder: Path) -> Story:
        offsets, ledger = {}, []
        for batch in range(batches):
            lines = [f"s{n}:{of(batch)}" if named else of(batch) for n, of in enumerate(offset_of)]
            offsets[batch] = entry(batch, *lines, version="v2" if named else "v1")
            epoch = sum(1 for at in handovers if at <= batch)
            ledger.append(ledger_line(batch, offsets[batch], owner=f"app-{epoch}", epoch=epoch))
            if batch in repeated:
                ledger.append(ledger_line(batch, offsets[batch], owner="app-9", epoch=9))
        return Story(folder=folder, offsets=offsets, kept_from=kept_from, ledger=ledger)

    return make


@given(make=stories(), compact_every=st.integers(2, 12))
@settings(max_examples=40)
def test_every_right_history_is_clean(make: Callable[[Path], Story], compact_every: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = make(Path(folder))
        found = audit(story.write(), sink=story.write_sink(compact_every=compact_every))
        assert found.clean, found.sentences()
        assert found.batches == len(story.offsets)
        assert found.files_checked == 2 * len(story.offsets)


def _drop_a_batch(story: Story, batch: int) -> None:
    assert story.ledger is not None
    story.ledger = [line for line in story.ledger if json.loads(line)["batch"] != batch]
    for part in ("offsets", "commits"):
        (story.checkpoint / part / str(batch)).unlink(missing_ok=True)


def _put(story: Story, batch: int, text: str) -> None:
    """Rewrite a batch wherever it is written down."""
    assert story.ledger is not None
    values = [json.loads(line) for line in story.ledger]
    story.ledger = [json.dumps({**v, "offsets": text} if v["batch"] == batch else v) + "\n" for v in values]
    story.offsets[batch] = text


def _swap(story: Story, batch: int) -> None:
    one, other = story.offsets[batch], story.offsets[batch + 1]
    _put(story, batch, other)
    _put(story, batch + 1, one)


def _go_back(story: Story, batch: int) -> None:
    _put(story, batch + 1, story.offsets[batch - 1])


def _change_in_one_place(story: Story, batch: int) -> None:
    assert story.ledger is not None
    story.ledger.append(ledger_line(batch, story.offsets[batch + 1], owner="app-10", epoch=10))


def _change_in_the_checkpoint(story: Story, batch: int) -> None:
    story.kept_from = min(story.kept_from, batch)
    story.offsets[batch] = story.offsets[batch].replace("1794757", "1794758")


Spoil = Callable[[Story, int], None]
IN_THE_STORY: list[Spoil] = [_swap, _go_back, _change_in_one_place, _change_in_the_checkpoint]


def _truncate_a_file(story: Story, batch: int) -> None:
    (story.sink / f"part-00001-{batch}-c000.json").write_text("")


def _delete_a_file(story: Story, batch: int) -> None:
    (story.sink / f"part-00001-{batch}-c000.json").unlink()


def _list_a_file_twice(story: Story, batch: int) -> None:
    logs = story.sink / "_spark_metadata"
    last = max(logs.iterdir(), key=lambda path: int(path.name.split(".")[0]))
    last.write_text(last.read_text() + "\n" + last.read_text().split("\n")[1 + batch % 2])


ON_DISK: list[Spoil] = [_drop_a_batch, _truncate_a_file, _delete_a_file, _list_a_file_twice]
EXPECTED: dict[Spoil, str] = {
    _swap: "went-back",
    _go_back: "went-back",
    _change_in_one_place: "committed-twice",
    _change_in_the_checkpoint: "ledger-differs",
    _drop_a_batch: "gap",
    _truncate_a_file: "file-size",
    _delete_a_file: "file-missing",
    _list_a_file_twice: "sink-file-twice",
}


@given(make=stories(), spoil=st.sampled_from(IN_THE_STORY + ON_DISK), data=st.data())
@settings(max_examples=150)
def test_every_spoilt_history_is_found(make: Callable[[Path], Story], spoil: Spoil, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        story = make(Path(folder))
        batch = data.draw(st.integers(1, len(story.offsets) - 2))
        if spoil in IN_THE_STORY:
            spoil(story, batch)
        story.write()
        story.write_sink(compact_every=data.draw(st.integers(2, 12)))
        if spoil in ON_DISK:
            spoil(story, batch)
            assert story.ledger is not None
            (story.checkpoint / "_tidewise" / "ledger.jsonl").write_text("".join(story.ledger))
        found = audit(story.checkpoint, sink=story.sink)
        assert EXPECTED[spoil] in codes(found), found.sentences()
        assert found.sentences()[0].startswith("NOT proved")
