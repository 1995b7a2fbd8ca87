"""The command that loads a topic, as a user meets it: what it prints, and what it says when something is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from tests.cli.conftest import Tidewise
from tests.experiments.senders import a_report
from tidewise.cli import main
from tidewise.cli import produce as command
from tidewise.experiments.produce import Produced, Production
from tidewise.jobs.schedule import Schedule
from tidewise.kafka.broker import LocalBroker

pytestmark = pytest.mark.xdist_group("jobs")


def in_a_process(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidewise.cli", "produce", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--job", "ysb"), "Missing parameter: load"),
        (("--job", "nexmarc", "--load", "constant rate_per_s=1", "--for", "1s"), "did you mean 'nexmark'?"),
        (("--job", "ysb", "--load", "constant rate_per_s=1"), "has no end of its own: say for how long (--for 60s)"),
        (("--job", "ysb", "--load", "constant rate_per_s=1", "--for", "1"), "has no unit"),
        (("--job", "ysb", "--load", "constant rate_per_s=1", "--for", "500ms"), "a whole number of seconds"),
        (("--job", "ysb", "--load", "nowhere.csv"), "nowhere.csv"),
        (("--job", "ysb", "--load", "constant rate_per_s=1e9", "--for", "1s"), "rates_per_s must lie between"),
        (
            ("--job", "ysb", "--load", "constant rate_per_s=1", "--partitions", "99999999999"),
            "100,000 partitions at most",
        ),
        (("--job", "ysb", "--load", "constant rate_per_s=1", "--partitions", "0"), "1 partition or more, not 0"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tidewise: Tidewise, words: tuple[str, ...], sentence: str) -> None:
    code, out, err = tidewise("produce", *words)
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1
    assert sentence in err


def test_it_sends_and_tells_what_became_of_every_record(broker: LocalBroker) -> None:
    words = ("--job", "tsw", "--brokers", broker.address, "--load", "constant rate_per_s=500", "--for", "2s")
    told = in_a_process(*words, "--partitions", "2", "--json")
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert (found["due"], found["acknowledged"], found["topic_grew_by"], found["topic"]) == (1000, 1000, 1000, "tsw")
    assert found["acknowledged_late"]["p99_s"] > 0.0
    shown = in_a_process(*words, "--at-once")
    assert shown.returncode == 0, shown.stderr
    assert "Acknowledged:  1,000 in" in shown.stdout
    assert "Not sent:      0" in shown.stdout


class Ending(Protocol):
    def __call__(
        self,
        *options: str,
        failed: int = 0,
        unsent: int = 0,
        grew_by: int | None = 100,
        silent: int = 0,
        whole: bool = True,
        unwritten: str | None = None,
    ) -> tuple[int, str, str]: ...


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ending:
    """The exit code and what is printed where 100 records were acknowledged and it ended like that; nothing is sent."""

    def call(
        *options: str,
        failed: int = 0,
        unsent: int = 0,
        grew_by: int | None = 100,
        silent: int = 0,
        whole: bool = True,
        unwritten: str | None = None,
    ) -> tuple[int, str, str]:
        def produce(production: Production, schedule: Schedule, **_: object) -> Produced:
            return Produced(
                production=production,
                schedule=schedule,
                partitions=2,
                processes=2,
                report=a_report(acknowledged=100, failed=failed, unsent=unsent),
                grew_by=grew_by,
                silent=silent,
                whole=whole,
                unwritten=unwritten,
            )

        monkeypatch.setattr(command, "produce", produce)
        words = ("produce", "--job", "ysb", "--load", "constant rate_per_s=1", "--for", "1s", *options)
        monkeypatch.setattr(sys, "argv", ["tidewise", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code if isinstance(ended.value.code, int) else 0, told.out, told.err

    return call


def test_all_acknowledged_is_exit_code_0_without_a_caution(ending: Ending) -> None:
    code, out, err = ending()
    assert (code, err) == (0, "")
    assert "Careful" not in out
    assert "LOST" not in out


def test_a_topic_that_grew_by_less_has_lost_records(ending: Ending) -> None:
    code, out, _ = ending(grew_by=93)
    assert code == 1
    assert "LOST:          the topic grew by 93 records only, 7 fewer than were acknowledged" in out
    code, out, _ = ending("--json", grew_by=93)
    assert (code, json.loads(out)["lost"]) == (1, 7)


def test_a_topic_that_grew_by_more_is_only_a_caution(ending: Ending) -> None:
    code, out, _ = ending(grew_by=120)
    assert code == 0
    assert "Careful:       the topic grew by 120 records: somebody else writes to it as well" in out
    assert "some that count as failed are there all the same, or somebody" in ending(grew_by=120, failed=20)[1]


def test_a_growth_that_nobody_could_tell_is_said(ending: Ending) -> None:
    code, out, _ = ending(grew_by=None)
    assert code == 0
    assert "by how many records the topic grew could not be told" in out
    code, out, _ = ending("--json", grew_by=None, failed=1)
    assert (code, json.loads(out)["topic_grew_by"], json.loads(out)["lost"]) == (1, None, None)


def test_what_was_not_sent_counts_only_where_nobody_stopped_it(ending: Ending) -> None:
    assert ending(unsent=1)[0] == 1
    code, out, _ = ending(unsent=1, whole=False)
    assert code == 130
    assert "Stopped before its end." in out


def test_failed_records_count_whoever_stopped_it(ending: Ending) -> None:
    assert ending(failed=1)[0] == 1
    code, out, _ = ending(failed=1, whole=False)
    assert code == 1
    assert "1 times: it broke" in out


def test_a_process_without_a_report_is_said(ending: Ending) -> None:
    code, out, _ = ending(silent=1, grew_by=150)
    assert code == 1
    assert "1 of 2 processes gave no report" in out


def test_a_report_that_could_not_be_written_is_said_and_the_result_printed(ending: Ending, tmp_path: Path) -> None:
    reason = "the report could not be written: No space left on device"
    code, out, err = ending("--out", str(tmp_path), unwritten=reason)
    assert (code, err) == (2, f"{reason}\n")
    assert "Acknowledged:  100" in out
    assert "The report:" not in out
    code, out, err = ending("--out", str(tmp_path), "--json", unwritten=reason)
    assert (code, err, json.loads(out)["acknowledged"]) == (2, f"{reason}\n", 100)
