"""`tidewise verify` as a user meets it: sentences, one JSON document, and exit codes that a script can rely on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.engines.spark.histories import counting


@pytest.fixture
def cli(tidewise: Tidewise) -> Tidewise:
    return lambda *arguments: tidewise("verify", *arguments)


def test_a_clean_query_is_told_in_sentences_and_exits_with_0(cli: Tidewise, tmp_path: Path) -> None:
    story = counting(tmp_path)
    code, out, err = cli(str(story.write()), "--sink", str(story.write_sink()))
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "Proved: batches 0 to 7 (8) were each committed once and in order.",
        'Source 0: from its beginning to {"records":80}, 80 records.',
        "Owners of the checkpoint: 1 (epochs 1 to 1).",
        "Sink: 16 listed files looked at.",
    ]


def test_a_violation_is_told_after_the_outcome_and_exits_with_1(cli: Tidewise, tmp_path: Path) -> None:
    story = counting(tmp_path)
    sink = story.write_sink()
    (sink / "part-00000-3-c000.json").unlink()
    code, out, _ = cli(str(story.write()), "--sink", str(sink))
    assert code == 1
    first, second, *_ = out.splitlines()
    assert first == f"NOT proved: 1 violation found in {story.checkpoint}."
    assert "part-00000-3-c000.json" in second


def test_json_is_one_document_with_the_same_exit_code(cli: Tidewise, tmp_path: Path) -> None:
    story = counting(tmp_path, kept_from=6)
    assert story.ledger is not None
    del story.ledger[2]
    code, out, err = cli(str(story.write()), "--json")
    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["clean"] is False
    assert told["checkpoint"] == str(story.checkpoint)
    assert [one["code"] for one in told["violations"]] == ["gap"]
    assert told["sources"][0]["count"] == 80
    assert told["owners"] == [{"name": "app-1", "epoch": 1, "first_batch": 0, "last_batch": 7}]


def test_bad_input_is_one_sentence_and_exits_with_2(cli: Tidewise, tmp_path: Path) -> None:
    checkpoint = counting(tmp_path).write()
    code, out, err = cli(str(tmp_path))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert f"did you mean {checkpoint}?" in err
    code, _, err = cli(str(checkpoint), "--sink", str(tmp_path))
    assert code == 2
    assert "_spark_metadata" in err
