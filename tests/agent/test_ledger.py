"""Every committed batch gets into the ledger, once and whole, whatever is torn, purged or restarted."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.agent.checkpoints import commit_text, offsets_text, purge_before, write_batch
from tidewise_agent.ledger import Ledger


def ledger_of(checkpoint: Path, application: str = "a") -> Ledger:
    return Ledger(checkpoint / "_tidewise", checkpoint, application=application)


def lines(checkpoint: Path) -> list[str]:
    return (checkpoint / "_tidewise" / "ledger.jsonl").read_text(encoding="utf-8").splitlines()


def entries(checkpoint: Path) -> list[dict[str, Any]]:
    found = []
    for line in lines(checkpoint):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue  # torn
    return found


def batches(checkpoint: Path) -> list[int]:
    return [entry["batch"] for entry in entries(checkpoint)]


def test_an_entry_holds_what_the_checkpoint_said(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    assert ledger.catch_up(epoch=1) == 0
    write_batch(tmp_path, 0)
    write_batch(tmp_path, 1)
    write_batch(tmp_path, 2, committed=False)
    (tmp_path / "commits" / ".3.crc").write_text("", encoding="utf-8")
    assert ledger.catch_up(epoch=4) == 2
    assert ledger.catch_up(epoch=4) == 0
    assert batches(tmp_path) == [0, 1]
    last = entries(tmp_path)[-1]
    assert (last["offsets"], last["commit"], last["owner"], last["epoch"]) == (
        offsets_text(1),
        commit_text(1),
        "a",
        4,
    )


def test_a_successor_goes_on_where_the_ledger_ends(tmp_path: Path) -> None:
    old, standby = ledger_of(tmp_path, "old"), ledger_of(tmp_path, "new")
    for batch in range(3):
        write_batch(tmp_path, batch)
        old.catch_up(epoch=1)
    for batch in range(3, 5):
        write_batch(tmp_path, batch)
    assert standby.catch_up(epoch=2) == 2
    assert [(entry["batch"], entry["owner"]) for entry in entries(tmp_path)] == [
        (0, "old"),
        (1, "old"),
        (2, "old"),
        (3, "new"),
        (4, "new"),
    ]
    write_batch(tmp_path, 5)
    assert old.catch_up(epoch=3) == 1  # the way back
    assert batches(tmp_path) == list(range(6))


def test_what_was_purged_before_it_was_seen_is_left_out(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    for batch in range(10):
        write_batch(tmp_path, batch)
    purge_before(tmp_path, 6)
    assert ledger.catch_up(epoch=1) == 4
    assert batches(tmp_path) == [6, 7, 8, 9]


def test_an_offsets_entry_that_vanishes_alone_does_not_stop_the_rest(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    for batch in range(4):
        write_batch(tmp_path, batch)
    (tmp_path / "offsets" / "1").unlink()
    assert ledger.catch_up(epoch=1) == 3
    assert batches(tmp_path) == [0, 2, 3]


def test_a_long_entry_at_the_end_is_found_again(tmp_path: Path) -> None:
    write_batch(tmp_path, 0)
    write_batch(tmp_path, 1)
    (tmp_path / "offsets" / "1").write_text("v1\n{}\n" + "x" * 300_000, encoding="utf-8")
    assert ledger_of(tmp_path).catch_up(epoch=1) == 2
    write_batch(tmp_path, 2)
    assert ledger_of(tmp_path).catch_up(epoch=1) == 1
    assert batches(tmp_path) == [0, 1, 2]


@given(cut=st.integers(min_value=0, max_value=400), more=st.integers(min_value=0, max_value=3))
def test_a_torn_last_line_costs_no_batch(cut: int, more: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder)
        for batch in range(3):
            write_batch(checkpoint, batch)
        ledger_of(checkpoint).catch_up(epoch=1)
        path = checkpoint / "_tidewise" / "ledger.jsonl"
        whole = path.read_bytes()
        path.write_bytes(whole[: max(0, len(whole) - cut)])
        for batch in range(3, 3 + more):
            write_batch(checkpoint, batch)
        again = ledger_of(checkpoint)
        again.catch_up(epoch=2)
        assert batches(checkpoint) == list(range(3 + more))
        assert again.catch_up(epoch=2) == 0


@given(
    steps=st.lists(
        st.sampled_from(["commit", "begin", "look", "purge", "restart"]),
        min_size=1,
        max_size=40,
    )
)
def test_every_batch_that_was_there_when_it_was_looked_for_is_in_the_ledger_once(steps: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder)
        ledger, following, seen, kept = ledger_of(checkpoint), 0, set[int](), set[int]()
        for step in steps:
            if step == "commit":
                write_batch(checkpoint, following)
                kept.add(following)
                following += 1
            elif step == "begin":
                write_batch(checkpoint, following, committed=False)
            elif step == "look":
                ledger.catch_up(epoch=1)
                seen |= kept
            elif step == "purge" and kept:
                purge_before(checkpoint, max(kept))
                kept = {max(kept)}
            elif step == "restart":
                ledger = ledger_of(checkpoint)
        ledger.catch_up(epoch=1)
        seen |= kept
        assert (batches(checkpoint) if seen else []) == sorted(seen)
