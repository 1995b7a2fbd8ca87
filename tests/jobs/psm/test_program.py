"""The program of the price search machine says in a sentence what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidewise.jobs.psm import __main__ as program
from tidewise.jobs.psm.__main__ import main
from tidewise.jobs.psm.queries import QUERIES
from tidewise.jobs.query import Query

EMBEDDED = ["--schedule", "s", "--checkpoint", "c"]
REAL_TIME = ["--source", "kafka", "--brokers", "b:1", "--topic", "t", "--sink", "kafka", "--out-topic", "o"]
REAL_TIME += ["--checkpoint", "c", "--mode", "real-time"]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The sentence with which the program ends."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--query", "q2.", *EMBEDDED], "there is no query 'q2.'; did you mean 'q2'?"),
        (["--query", "median", *EMBEDDED], "there is no query 'median'; known: q1, q2, q3, q4, q5"),
        (
            ["--query", "q2", "--state-provider", "hdfs", *EMBEDDED],
            "q2 needs --state-provider rocksdb, not hdfs",
        ),
        (["--query", "q3", "--window", "100", *EMBEDDED], "--window is for --query q2, not for q3; leave it out"),
        (["--query", "q4", "--slide", "100", *EMBEDDED], "--slide is for --query q2, not for q4; leave it out"),
        (["--query", "q2", "--slide", "0", *EMBEDDED], "--slide is a number of clicks, 1 or more, not 0"),
        (["--query", "q2", "--window", "-1", *EMBEDDED], "--window is a number of clicks, 1 or more, not -1"),
        (EMBEDDED, "the following arguments are required: --query"),
    ],
)
def test_what_cannot_be_is_refused(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(arguments, capsys) == f"psm: error: {sentence}"


@pytest.mark.parametrize("name", [query.name for query in QUERIES.values() if query.real_time])
def test_real_time_mode_is_refused_where_spark_refuses_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = refused([*REAL_TIME, "--query", name], capsys)
    assert sentence == f"psm: error: --mode real-time is not for {name}: {QUERIES[name].real_time}; leave it out"


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        (["--window", "300", "--slide", "20"], "last 300 clicks, each time that 20 more have come."),
        (["--window", "300"], "last 300 clicks, each time that 1,000 more have come."),
        ([], "last 10,000 clicks, each time that 1,000 more have come."),
    ],
)
def test_the_sizes_of_windows_are_those_that_are_asked_for(
    sizes: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, Query]] = []
    monkeypatch.setattr(program, "run_asked", lambda *given: asked.append(given[2]))
    main(["--query", "q2", *sizes, *EMBEDDED])
    (queries,) = asked
    assert list(queries) == list(QUERIES)
    assert queries["q2"].sentence == f"The median price of a product's {sentence}"


def test_the_help_tells_the_queries_and_the_sizes_of_windows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "which one: q1, q2, q3, q4, q5" in told
    assert "last clicks of a product (10000)" in told
