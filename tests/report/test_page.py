"""The page is whole, needs nothing from elsewhere, and nothing that a run is called can become markup."""

from __future__ import annotations

import errno
import json
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from tidewise.core import BadInputError, ChangeStatus, PermanentError, Promises
from tidewise.report import build_report, write_report
from tidewise.report.downsample import MOST_POINTS, bin_width_s, binned, steps, thinned
from tidewise.report.markup import figure_text
from tidewise.report.palette import colours
from tidewise.report.timeline import MOST_MARKS, marked_changes

from .samples import SECONDS, a_change, a_comparison, a_run


class Parsed(HTMLParser):
    """Tags with their attributes, ids and the JSON of the figures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.figures: list[str] = []
        self._in_figure = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._in_figure = tag == "script" and dict(attrs).get("type") == "application/json"

    def handle_endtag(self, tag: str) -> None:
        self._in_figure = self._in_figure and tag != "script"

    def handle_data(self, data: str) -> None:
        if self._in_figure:
            self.figures.append(data)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build_report(a_comparison(tmp_path_factory.mktemp("runs")), title="Two loads")


def without_plotly(page: str) -> str:
    script = get_plotlyjs()
    assert page.count(script) == 1, "Plotly has to be on the page, once"
    return page.replace(script, "")


def test_the_page_names_every_policy_load_and_run(page: str) -> None:
    own = without_plotly(page)
    for word in ("static", "reactive", "mpc", "ysb", "tsw", "Two loads", "simulated with profile paper-cluster", "EUR"):
        assert word in own
    for load in ("ysb", "tsw"):
        for seed in (1, 2):
            assert f"{load}-mpc-{seed}" in own


def test_nothing_is_fetched_from_elsewhere(page: str) -> None:
    own = without_plotly(page)
    assert "http://" not in own
    assert "https://" not in own
    assert "@import" not in own
    assert "url(" not in own
    for tag, attributes in Parsed(own).tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")  # type: ignore[union-attr]  # no href of ours is empty


def test_every_link_leads_to_an_anchor_that_is_there_once(page: str) -> None:
    tags = Parsed(without_plotly(page)).tags
    ids = [attributes["id"] for _, attributes in tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for _, attributes in tags if "href" in attributes]
    assert links
    assert {str(link)[1:] for link in links} <= set(map(str, ids))


def test_each_load_has_its_figures_with_named_axes(page: str) -> None:
    figures = [json.loads(text) for text in Parsed(without_plotly(page)).figures]
    assert len(figures) == 2 * 8
    for figure in figures:
        titles = [
            axis.get("title", {}).get("text", "")
            for name, axis in figure["layout"].items()
            if name.startswith(("xaxis", "yaxis"))
        ]
        assert any(titles)
        assert figure["data"]


def test_the_forecast_is_shown_once_as_what_it_is(page: str) -> None:
    loads = [
        figure
        for figure in (json.loads(text) for text in Parsed(without_plotly(page)).figures)
        if figure["data"][0].get("name") == "load"
    ]
    assert [[trace["name"] for trace in figure["data"]] for figure in loads] == [
        ["load", "naive forecast, for comparison"]
    ] * 2


def test_the_same_runs_give_the_same_page(tmp_path: Path) -> None:
    runs = a_comparison(tmp_path)
    assert build_report(runs, title="x") == build_report(list(reversed(runs)), title="x")


def test_the_headline_says_who_saved_what(page: str) -> None:
    # mpc: 5 and 6 executors of 8; quality is the same for all.
    assert "On ysb, the cheapest policy that kept its promises was “mpc” at 0.12 EUR, 31 % less than static" in page
    assert "with 97.8 % good seconds (static: 97.8 %)" in page


def test_the_headline_says_when_the_cheapest_broke_its_promises(tmp_path: Path) -> None:
    late = np.full(SECONDS, 3.0)
    bad = {"latency_p50_s": late, "latency_p95_s": late, "latency_p99_s": late}
    runs = [
        a_run(tmp_path / "a", policy="static"),
        a_run(tmp_path / "b", policy="cheap", executors=2, series=bad),
    ]
    text = build_report(runs, title="x")
    assert "On ysb, no policy that kept its promises cost less than static at 0.18 EUR" in text
    assert "Cheaper on ysb, but not what was promised: “cheap”" in text
    assert "met the promised latency in only 0.0 % of the seconds" in text
    strict = Promises(latency_p95_s=0.1, recovery_s=1.0)
    assert "no policy kept every promise" in build_report(
        [a_run(tmp_path / name, policy=name, promises=strict) for name in ("static", "other")], title="x"
    )


def test_one_run_alone_makes_a_page(tmp_path: Path) -> None:
    text = build_report([a_run(tmp_path / "run", policy="mpc", faults=(), profile=None, engine="spark")], title="x")
    assert "measured on a real engine (spark)" in text
    assert "simulated" not in without_plotly(text)
    assert "On ysb, “mpc” cost 0.18 EUR" in text


def test_a_job_that_never_gave_output_makes_a_page(tmp_path: Path) -> None:
    none = np.full(SECONDS, np.nan)
    latencies = {f"latency_p{level}_s": none for level in (50, 95, 99)}
    text = build_report([a_run(tmp_path / "run", policy="mpc", series=latencies)], title="x")
    assert f"never output before the run ended, counted as infinitely late (over all seeds): mpc {SECONDS}" in text


def test_runs_of_different_length_and_without_baseline_are_explained(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", policy="static"),
        a_run(tmp_path / "b", policy="mpc", seconds=1700, complete=False, duration_s=1800.0),
        a_run(tmp_path / "c", policy="mpc", seed=2),
    ]
    text = build_report(runs, title="x")
    assert "Cut short before their planned end" in text
    assert "For mpc there is no static run of the same length" in text
    assert "The policies were not run equally often: static 1 and mpc 2." in text


HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    changes = (a_change(100.0, reason=f"because {HOSTILE}"),)
    runs = [
        a_run(
            tmp_path / str(seed),
            policy=f"p{HOSTILE}",
            load=f"l{HOSTILE}",
            seed=seed,
            name=f"n{HOSTILE}",
            profile=f"f{HOSTILE}",
            changes=changes,
            versions={HOSTILE: HOSTILE},
        )
        for seed in (1, 2)
    ]
    text = without_plotly(build_report(runs, title=f"t{HOSTILE}"))
    assert "<img" not in text
    parsed = Parsed(text)
    assert all(tag not in {"img", "b"} for tag, _ in parsed.tags)
    assert len(parsed.figures) == 6
    shown = [json.loads(figure) for figure in parsed.figures]
    labels = [word for figure in shown for trace in figure["data"] for word in (trace.get("name", ""), *_texts(trace))]
    assert any("&lt;img" in label for label in labels)
    assert not any("<img" in label or '<b>"' in label for label in labels)


def _texts(trace: dict[str, object]) -> list[str]:
    text = trace.get("text") or []
    return [str(item) for item in text] if isinstance(text, list) else [str(text)]


def test_labels_in_figures_are_wrapped_before_they_are_escaped() -> None:
    assert figure_text("a < b & c", width=5) == "a < b".replace("<", "&lt;") + "<br>&amp; c"


def test_no_runs_no_page() -> None:
    with pytest.raises(BadInputError, match="no runs"):
        build_report([], title="x")


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [a_run(tmp_path / "run", policy="mpc")]
    target = tmp_path / "out" / "report.html"
    write_report(runs, target, title="First")
    assert "First" in target.read_text(encoding="utf-8")

    def full_disk(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(PermanentError, match="No space left on device"):
        write_report(runs, target, title="Second")
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    assert "First" in target.read_text(encoding="utf-8")
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", lambda *_, **__: full_disk())
    with pytest.raises(PermanentError, match="could not be written"):
        write_report(runs, target)


def test_lines_have_few_enough_points_whatever_the_length() -> None:
    for seconds in (1, 1500, 1501, 64_800, 604_800, 40_000_000):
        assert -(-seconds // bin_width_s(seconds)) <= MOST_POINTS
    assert bin_width_s(64_800) == 60


def test_a_bin_is_missing_only_where_all_of_it_is() -> None:
    values = np.array([1.0, np.nan, 3.0, np.nan, np.nan])
    np.testing.assert_array_equal(binned(values, 2, np.nanmax), np.array([1.0, 3.0, np.nan], dtype=np.float32))


def test_steps_keep_every_change_of_value() -> None:
    assert steps(np.array([5, 5, 6, 6, 6, 5])).tolist() == [0, 2, 5]
    assert steps(np.array([5])).tolist() == [0]
    assert thinned(3).tolist() == [0, 1, 2]
    assert thinned(10_000).size == MOST_POINTS


def test_failed_changes_are_always_marked() -> None:
    changes = [a_change(float(at_s)) for at_s in range(5000)]
    changes[4321] = a_change(4321.0, status=ChangeStatus.FAILED)
    marked = marked_changes(changes)
    assert len(marked) == MOST_MARKS
    assert changes[4321] in marked
    assert marked_changes([]) == []


def test_a_policy_keeps_its_colour_and_no_two_share_one() -> None:
    chosen = colours(["static", "a", "b", "c", "d", "e", "f"])
    assert len(set(chosen.values())) == 7
    assert all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in chosen.values())
