"""`tidewise explain`: sentences and documents of a run whose truth is known, and refusals in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.jobs import write_job
from tests.experiments.journals import BEGAN_S, EXPECTED, a_run, change, keep, report, write_journal
from tidewise.cli.explain import amount_text, evidence_text
from tidewise.core import ControllerStarted, FaultInjected, JobStatus


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a run that is on."""
    folder = tmp_path / "home"
    write_journal(folder / "small-reactive-1.partial", a_run())
    write_job(folder)
    (folder / "began.json").write_text(json.dumps({"unix_s": 1_800_000_000.0 - BEGAN_S}), encoding="utf-8")
    return folder


def test_one_decision_is_told_in_full(tidewise: Tidewise, home: Path) -> None:
    code, out, err = tidewise("explain", str(home), "--at", "1m45s")
    assert (code, err) == (0, "")
    for sentence in (
        "At 1m40s (",
        "the policy decided: executors 4 → 2.",
        "Why: Fewer executors are enough.",
        "It rested on: backlog records 12.",
        "It expected, over the next 1 min 40 s: a rate of up to 1,050/s, hardly more than 1,100/s (now 1,000/s)",
        "a p95 latency of 1.00 s, hardly more than 1.50 s",
        "a recovery from the worst failure in 20 s, hardly more than 40 s",
        "a cost of 0.090 USD an hour after 0.180",
        "By its reckoning that saves 0.090 USD an hour; the change itself costs 0.001",
        "97.0 %",
        "1.25 times as wide as usual",
        "The guards let it pass.",
        "The change went live, took 5 s, without a gap.",
        "It came through its time of probation at 8m20s",
        "the rate peaked at 1,200/s: a miss, above the expected high level in 1 of 10 reports",
        "What came in the 95 s from the end of the change, at 1m45s (",
        "p95 latency was 1.00 s as a rule and 2.00 s at worst: a miss, above the expected high level in 2 of 9 reports",
        "Over the whole run, the rate lay at or below the expected high level in 90.0 % of 10 reports and p95",
        "latency in 77.8 % of 9 reports.",
        "Where expectations are good, 90 % or more lie there.",
    ):
        assert sentence in out


def test_a_keep_is_told_with_the_last_change_before_it(tidewise: Tidewise, home: Path) -> None:
    _, out, _ = tidewise("explain", str(home), "--at", "5m")
    assert "keep the job as it is" in out
    assert "The last decision that changed something came at 1m40s" in out


def test_before_the_first_decision_there_is_none(tidewise: Tidewise, home: Path) -> None:
    _, out, _ = tidewise("explain", str(home), "--at", "5s")
    assert "Nothing had been decided by 5s; the first came at 1m00s" in out
    _, out, _ = tidewise("explain", str(home), "--at", "5s", "--json")
    assert json.loads(out)["decision"] is None


def test_the_timeline_folds_what_was_kept(tidewise: Tidewise, home: Path) -> None:
    code, out, _ = tidewise("explain", str(home))
    assert code == 0
    assert "is on, or its controller was killed: 10m00s under the policy tidewise" in out
    assert "Of 11 decisions, 1 changed something, 10 kept the job as it was" in out
    (told,) = (line for line in out.splitlines() if "executors 4 → 2" in line)
    assert told.split("; ") == [
        "    1m40s executors 4 → 2",
        "live",
        "cost 0.180 → 0.090 USD/h expected, 0.090 USD came",
        "p95 1.00 s expected, 1.50 s at most, 1.00 s came (missed in 2 of 9 reports)",
    ]
    assert "kept 9 times" in out


def test_latency_and_cost_are_told_of_the_time_until_the_next_change(tidewise: Tidewise, tmp_path: Path) -> None:
    began = a_run()[0]
    reports = [report(float(at_s)) for at_s in range(10, 130, 10)]
    later = change(25.0, source=4, target=2)
    write_journal(tmp_path / "run.partial", [began, keep(0.0, EXPECTED), *reports[:2], *later, *reports[2:]])
    code, out, _ = tidewise("explain", str(tmp_path / "run"), "--at", "5s")
    assert code == 0
    assert "What came in the 10 reports of the following 1 min 40 s:" in out
    assert "What came in the 25 s until the next change, at 25s (2 reports):" in out


def test_a_latency_that_is_not_judged_says_why(tidewise: Tidewise, tmp_path: Path) -> None:
    began = a_run()[0]
    before = [report(float(at_s)) for at_s in range(-10, 10, 10)]
    fault = FaultInjected(at_s=BEGAN_S + 1.0, fault="kill-driver")
    down = report(10.0, latency_s=None, status=JobStatus.DOWN)
    late = report(20.0, latency_s=20.0)
    calm = [report(float(at_s)) for at_s in range(30, 130, 10)]
    events = [began, *before, keep(0.0, EXPECTED), fault, down, late, *change(21.0, source=4, target=2), *calm]
    write_journal(tmp_path / "run.partial", events)
    _, out, _ = tidewise("explain", str(tmp_path / "run"), "--at", "0s")
    assert "p95 latency was 20.0 s, and 1 report had no output: not judged, as the job was recovering" in out
    assert "by its reports, so to about the length of one" in out


def test_documents_say_the_same(tidewise: Tidewise, home: Path) -> None:
    _, out, _ = tidewise("explain", str(home), "--at", "105s", "--json")
    told = json.loads(out)
    assert told["decision"]["at_s"] == 100.0
    assert told["decision"]["expected"]["expected_rate_high_per_s"] == 1100.0
    assert told["decision"]["came"]["rate"] == {"held": 9, "of": 10, "share": 0.9}
    assert told["decision"]["came"]["ran_from_s"] == 105.0
    assert told["decision"]["came"]["ran_until_s"] == 200.0
    assert told["expectations_held"]["latency"]["whole_run"]["of"] == 9
    assert told["expectations_held"]["latency"]["whole_run"]["windows"] == 9
    _, out, _ = tidewise("explain", str(home), "--json")
    whole = json.loads(out)
    assert whole["keeps"] == 10
    assert [one["change"]["mechanism"] for one in whole["changes"]] == ["live"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["explain", "gone"], "there is no run gone"),
        (["explain", "home", "--at", "11m"], "it has the times from 0s to 10m00s, which is from"),
        (["explain", "home", "--at", "later"], "'later' is no time; write it like 90s, 1h30min or 14:05"),
        (["explain", "empty"], "it has no journal.sqlite"),
        (["explain", "unborn"], "no controller has begun"),
        (["explain", "damaged"], "is not a journal of Tidewise"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_exit_code_2(
    tidewise: Tidewise, home: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(home.parent)
    Path("empty").mkdir()
    write_journal(Path("unborn"), [])
    Path("damaged").mkdir()
    Path("damaged/journal.sqlite").write_bytes(b"no database" * 100)
    code, out, err = tidewise(*words)
    assert code == 2
    assert out == ""
    assert sentence in err
    assert err.count("\n") == 1


def test_a_run_whose_prices_nobody_wrote_down_is_told_without_money(tidewise: Tidewise, tmp_path: Path) -> None:
    write_journal(tmp_path / "run.partial", a_run())
    code, out, _ = tidewise("explain", str(tmp_path / "run"))
    assert code == 0
    assert "USD" not in out


def test_a_run_that_has_only_begun_is_told(tidewise: Tidewise, tmp_path: Path) -> None:
    started = [event for event in a_run() if isinstance(event, ControllerStarted)]
    write_journal(tmp_path / "run.partial", started)
    code, out, _ = tidewise("explain", str(tmp_path / "run"))
    assert code == 0
    assert "Of 0 decisions" in out


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("busy_share", 0.5, "busy 50.0 %"),
        ("true_rate_per_s", 12345.6, "true rate 12,346/s"),
        ("settle_s", 90, "settle 90 s"),
        ("memory_mib", 2048, "memory 2,048 MiB"),
        ("by", "ada", "by: ada"),
        ("is_warm", True, "is warm: yes"),
        ("unknown", None, None),
        ("executors", 3, "executors 3"),
        ("lag_records", 95_652.4, "lag records 95,652"),
        ("gain_per_s", 0.00002, "gain 0.00002/s"),
        ("latency_score", 0.12345, "latency score 0.1235"),
        ("slower", 1.0, "the job does 100.0 % of what its models say it can"),
        ("late_seconds_used", 0.483, "48.3 % of the late seconds it allows itself were used"),
        ("planned_cost", 0.6096, "over all that it looks ahead its plan costs 0.610 EUR"),
        ("cost_of_keeping", 0.6096, "keeping the job as it is 0.610 EUR"),
    ],
)
def test_any_evidence_can_be_read(name: str, value: object, text: str | None) -> None:
    assert evidence_text(name, value, currency="EUR") == text


@pytest.mark.parametrize(
    ("amount", "text"), [(0.0, "0.00"), (0.00002, "0.00002"), (0.0042, "0.0042"), (0.5, "0.500"), (12345.6, "12,346")]
)
def test_money_has_the_digits_that_matter(amount: float, text: str) -> None:
    assert amount_text(amount) == text
