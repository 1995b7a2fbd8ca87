"""The page and the tables of a benchmark of queries: whole, from one definition, and no word becomes markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from tests.experiments.query_answers import an_answer
from tidewise.experiments.query_bench import BenchSettings, QueryBench
from tidewise.experiments.query_figures import QueryFigures, run_figures
from tidewise.report.query_page import bench_facts, bench_headlines, bench_markdown, bench_page, bench_warnings
from tidewise.report.query_table import COLUMNS, STAGE_COLUMNS, query_table, size, stage_table

NASTY = "<script>alert(1)</script> | failed"


def _query(name: str, *, cpu_s: float, keeps_state: bool) -> QueryFigures:
    answer = an_answer(cpu_s=cpu_s, keeps_state=keeps_state)
    few = an_answer(batches_ms=(700, 200, 210) if keeps_state else (400, 90, 100), keeps_state=keeps_state)
    run = run_figures(answer, few)
    other = replace(run, cpu_s=1.25 * cpu_s)
    return QueryFigures(name=name, sentence=f"What {name} answers.", events=300_000, runs=(run, other, run))


@pytest.fixture
def found() -> QueryBench:
    queries = (
        _query("q0", cpu_s=10.0, keeps_state=False),
        _query("q5", cpu_s=20.0, keeps_state=True),
        QueryFigures(name="q6", sentence="What q6 answers.", events=300_000, runs=(), error=NASTY),
    )
    return QueryBench(
        settings=BenchSettings(benchmark="nexmark", queries=("q0", "q5", "q6"), events=300_000),
        queries=queries,
        seconds=754.0,
        versions={"Spark": "4.3.0", "Java": "17"},
    )


def test_the_page_needs_nothing_else_and_shows_every_query_figure_and_operator(found: QueryBench) -> None:
    page = bench_page(found)
    own = page.replace(get_plotlyjs(), "")
    assert page.count(get_plotlyjs()) == 1
    assert not re.search(r"""(?:src|href)=["'](?!#)""", own)
    assert "<script>alert" not in own
    titles = [column.title for column in COLUMNS] + [column.title for column in STAGE_COLUMNS]
    assert all(own.count(title) >= 2 for title in titles), "in a table and defined"
    drawn = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', own, re.DOTALL)
    assert len(drawn) == 3
    assert {trace["name"] for trace in json.loads(drawn[2])["data"]} == {"MicroBatchScan", "StateStoreSave"}
    assert "<h1>Nexmark on Spark</h1>" in own
    assert "3 queries, measured in 12 min 34 s." in own
    assert "What q6 answers." in own
    assert bench_page(found) == page


def test_the_sentences_say_how_it_was_measured_and_what_came(found: QueryBench) -> None:
    assert bench_facts(found) == (
        "300,000 events in 5 batches · 2,000 events in each second of their own time · "
        "3 repeats, in turn, after one that does not count · local[2], 2 GiB of memory · "
        "state in rocksdb, 2 partitions · events made by the embedded source · "
        "results thrown away, but for those of queries about files · "
        "Spark 4.3.0 · Java 17"
    )
    assert bench_headlines(found) == [
        "A core takes between 15,000 (q5) and 30,000 (q0) events per second.",
        "A batch of 100 events takes between 95 ms (q0) and 205 ms (q5): what it costs before its first event.",
        "q5 keeps the most state: 300 rows, 29.3 KiB of memory.",
    ]
    assert bench_warnings(found) == [f"q6 failed: {NASTY}"]
    assert bench_warnings(replace(found, is_stopped=True))[1] == "It was stopped: 3 of 3 repeats are whole."


def test_the_document_has_both_tables_and_every_row_as_many_cells(found: QueryBench) -> None:
    text = bench_markdown(found)
    tables = [block for block in text.split("\n\n") if "| query |" in block]
    assert len(tables) == 2
    for table in tables:
        rows = [re.split(r"(?<!\\)\|", line) for line in table.splitlines() if line.startswith("|")]
        assert len({len(row) for row in rows}) == 1
    assert "| q5 | 300,000 | 10.0 s | 2.00 | 20.0 s | 30,000 | 15,000 | 12,000..15,000 |" in text
    assert "| q5 | StateStoreSave | 150 ms | 300 ms | 25.0 % | 300 | 2 | 1.50 |" in text


@pytest.mark.parametrize(("width", "columns"), [(220, len(COLUMNS) + 1), (80, 6)])
def test_a_terminal_shows_as_many_columns_as_fit(found: QueryBench, width: int, columns: int) -> None:
    for table in (query_table(found.queries, width=width), stage_table(found.queries, width=width)):
        screen = Console(width=width, file=StringIO())
        screen.print(table)
        shown = screen.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO from above
        assert "…" not in shown
        assert all(len(line) <= width for line in shown.splitlines())
    assert len(query_table(found.queries, width=width).columns) >= columns
    assert "StateStoreSave" in shown


def test_a_benchmark_of_which_everything_failed_is_a_page_as_well(found: QueryBench) -> None:
    page = bench_page(replace(found, queries=found.queries[2:]))
    assert "q6 failed:" in page
    assert bench_headlines(replace(found, queries=found.queries[2:])) == []


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0.0 KiB"), (2_048, "2.0 KiB"), (5 * 2**20, "5.0 MiB"), (3 * 2**30, "3,072 MiB")]
)
def test_sizes_are_told_with_their_unit(count: int, text: str) -> None:
    assert size(count) == text
