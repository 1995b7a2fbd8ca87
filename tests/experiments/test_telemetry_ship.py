"""Telling rows to a place: none is lost whatever dies or is away, and nothing of the runs is touched."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.engines.spark.event_log_lines import UNIX_MS, a_steady_job
from tests.experiments.jobs import GOOD, write_job
from tests.experiments.journals import BEGAN_S, a_run, config, report, write_journal
from tests.experiments.shipping import BEGAN_UNIX_S, RUN, Place, a_home, end_run
from tidewise.control import SqliteJournal
from tidewise.core import BadInputError, ControllerStarted, ControllerStopped, PermanentError, TemporaryError
from tidewise.experiments import telemetry_ship, telemetry_sources
from tidewise.experiments.advise_terms import terms_of_job
from tidewise.experiments.explain_run import find_recorded
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.telemetry_folder import LineFolder
from tidewise.experiments.telemetry_ship import Shipped, Shipper, refuse_twice
from tidewise.experiments.telemetry_sources import LogSource, RunSource, Source, read_memory
from tidewise.experiments.telemetry_target import Sink
from tidewise.host import private_files

ENDED = ControllerStopped(at_s=BEGAN_S + 601.0, reason="it was stopped")
ALL = 62
"""Rows of `a_run`: sixty reports, a change and a recovery."""


class Told:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def __call__(self, sentence: str) -> None:
        self.sentences.append(sentence)


def shipper(sources: Sequence[Source], place: Sink, *, once: bool = True, told: Told | None = None) -> Shipper:
    return Shipper(sources, place, target="place", tell=told or Told(), once=once, patience_s=0.0)


def ship(run: Path, place: Sink, *, once: bool = True) -> Shipped:
    return shipper([RunSource(find_recorded(run))], place, once=once).run()


class _KilledError(BaseException):
    """As if the process had been killed."""


class Deadly(Place):
    """Takes rows; whoever sends the second time is killed before it is told so."""

    def send(self, lines: Sequence[tuple[str, str]]) -> None:
        super().send(lines)
        if self.sends == 2:
            raise _KilledError


def test_all_rows_of_a_run_are_told_once_and_not_again(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    place = Place()
    shipped = ship(run, place)
    assert shipped.rows == {"report": 60, "change": 1, "recovery": 1}
    assert place.numbers == list(range(1, ALL + 1))
    assert {job for job, _ in place.lines} == {"small"}
    assert place.rows[0]["at_unix_s"] == BEGAN_UNIX_S + BEGAN_S + 10.0
    assert ship(run, place).total == 0
    assert len(place.lines) == ALL


def test_somebody_who_is_killed_between_sending_and_remembering_loses_nothing(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    place = Deadly()
    place.most_lines = 10
    with pytest.raises(_KilledError):
        ship(run, place)
    ship(run, place)
    # The second ten come twice, the same in every byte.
    assert place.numbers == [*range(1, 21), *range(11, ALL + 1)]
    assert place.lines[10:20] == place.lines[20:30]


def test_each_place_is_told_all(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    places = Place(), Place()
    for number, place in enumerate(places):
        told = Shipper([RunSource(find_recorded(run))], place, target=f"place {number}", tell=Told(), once=True)
        assert told.run().total == ALL
    assert places[0].lines == places[1].lines


def test_a_place_that_is_away_is_tried_again_and_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_ship, "_FIRST_WAIT_S", 0.01)
    run = a_home(tmp_path, [*a_run(), ENDED])
    place, told = Place(), Told()
    place.away = 4
    one = Shipper([RunSource(find_recorded(run))], place, target="place", tell=told, once=False)
    assert one.run().total == ALL
    assert place.sends >= 5
    assert told.sentences == ["nobody is there; it is tried again, and nothing is lost.", "place answers again."]


def test_where_only_what_is_there_is_told_a_place_is_not_waited_for_without_end(tmp_path: Path) -> None:
    place = Place()
    place.away = 1000
    with pytest.raises(TemporaryError, match="nobody is there"):
        ship(a_home(tmp_path, a_run()), place)


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 60.0
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_a_run_is_followed_until_its_end_through_the_change_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry_ship, "_POLL_S", 0.02)
    events = a_run()
    run = a_home(tmp_path, events[:20])
    place = Place()
    following = threading.Thread(target=ship, args=(run, place), kwargs={"once": False}, daemon=True)
    following.start()
    wait_until(lambda: len(place.lines) >= 12)
    partial = run.with_name(f"{RUN}.partial")
    with SqliteJournal(partial / "journal.sqlite") as journal:
        journal.append([*events[20:]])
    end_run(run)
    following.join(timeout=60.0)
    assert not following.is_alive()
    assert place.numbers == list(range(1, ALL + 1))
    assert not partial.exists(), "nothing of a run that has its name may be made again"
    (memory,) = run.glob("told-*.json")
    known = read_memory(memory)
    assert known is not None
    assert known.line == ALL
    assert json.loads(memory.read_text(encoding="utf-8"))["target"] == "place"


def test_several_runs_are_told_side_by_side_and_one_that_cannot_be_read_does_not_stop_the_others(
    tmp_path: Path,
) -> None:
    one = a_home(tmp_path / "one", [*a_run(), ENDED])
    two = a_home(tmp_path / "two", [*a_run(), ENDED], job=GOOD.replace('"small"', '"other"'))
    broken = write_journal(tmp_path / "c-d-1.partial", a_run())
    sources = [RunSource(find_recorded(run)) for run in (one, broken, two)]
    place, told = Place(), Told()
    shipped = shipper(sources, place, told=told).run()
    assert shipped.total == 2 * ALL
    assert {job for job, _ in place.lines} == {"small", "other"}
    assert len(shipped.problems) == 1
    assert "can be told when it is over" in told.sentences[0]


def test_the_same_twice_is_refused(tmp_path: Path) -> None:
    run = find_recorded(a_home(tmp_path, a_run()))
    with pytest.raises(BadInputError, match="is named twice"):
        refuse_twice([RunSource(run), RunSource(run)])


def test_who_is_stopped_leaves_the_rest_for_the_next(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    place = Place()
    place.most_lines = 10
    one = shipper([RunSource(find_recorded(run))], place)
    place.away = 1000
    stopper = threading.Timer(0.2, one.stop)
    one._patience_s = 600.0
    stopper.start()
    shipped = one.run()
    stopper.join()
    assert shipped.total == 0
    assert shipped.waiting > 0
    place.away = 0
    assert ship(run, place).total == ALL


def test_a_folder_whose_run_was_begun_anew_is_told_from_the_beginning(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    place = Place()
    ship(run, place)
    (tmp_path / "began.json").write_text('{"unix_s": 1.0}', encoding="utf-8")
    assert ship(run, place).total == ALL


def test_a_memory_that_somebody_damaged_is_told(tmp_path: Path) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    ship(run, Place())
    (memory,) = run.with_name(f"{RUN}.partial").glob("told-*.json")
    memory.write_text("{", encoding="utf-8")
    shipped = ship(run, Place())
    assert shipped.total == 0
    assert "cannot be read" in shipped.problems[0]


def test_somebody_who_writes_the_same_memory_in_the_same_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_home(tmp_path, [*a_run(), ENDED])
    write, failures = private_files.write_private, [FileExistsError(17, "there")] * 3

    def busy(path: Path, text: str) -> None:
        if failures:
            raise failures.pop()
        write(path, text)

    monkeypatch.setattr(telemetry_sources, "write_private", busy)
    assert ship(run, Place()).total == ALL
    failures += [FileExistsError(17, "there")] * 9
    shipped = ship(run, Place())
    assert shipped.total == 0
    monkeypatch.setattr(telemetry_sources, "memory_name", lambda *_: "other.json")
    assert "cannot be written down" in ship(run, Place()).problems[0]


def test_a_place_that_refuses_rows_is_an_error(tmp_path: Path) -> None:
    class Refusing(Place):
        def send(self, lines: Sequence[tuple[str, str]]) -> None:
            raise PermanentError(f"not these {len(lines)}")

    with pytest.raises(PermanentError, match="not these"):
        ship(a_home(tmp_path, a_run()), Refusing())


def test_what_is_shipped_to_a_folder_is_there_line_by_line(tmp_path: Path) -> None:
    run = a_home(tmp_path / "home", [*a_run(), ENDED])
    place = Place()
    ship(run, place)
    folder = LineFolder(tmp_path / "rows")
    Shipper([RunSource(find_recorded(run))], folder, target="folder", tell=Told(), once=True).run()
    lines = [line for path in sorted((tmp_path / "rows").iterdir()) for line in path.read_text("utf-8").splitlines()]
    assert lines == [line for _, line in place.lines]


# Event logs.


def log_source(path: Path) -> LogSource:
    return LogSource(path, memory=path.parent / "memory", terms=None, job=None)


def test_a_log_is_told_as_reports_without_promises_or_prices(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=600, executors=8)), encoding="utf-8")
    place = Place()
    shipped = shipper([log_source(path)], place).run()
    assert shipped.rows["report"] == pytest.approx(58, abs=2)
    first = place.rows[0]
    assert (first["job"], first["kind"], first["executors"]) == ("clicks", "report", 8)
    assert first["at_unix_s"] == pytest.approx(UNIX_MS / 1000.0 + 20.0, abs=2.0)
    assert first["cost_per_hour"] is first["promised_latency_p95_s"] is first["policy"] is None
    assert first["load_per_s"] == pytest.approx(1000.0, rel=0.3)
    assert shipper([log_source(path)], place).run().total == 0


def test_a_job_file_says_what_was_promised_of_a_log_and_what_it_costs(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("".join(a_steady_job(seconds=300)), encoding="utf-8")
    job = JobFile(write_job(tmp_path))
    place = Place()
    source = LogSource(path, memory=tmp_path / "memory", terms=terms_of_job(job), job=job.name)
    shipper([source], place).run()
    first = place.rows[0]
    assert (first["job"], first["promised_latency_p95_s"], first["window_s"]) == ("small", 3.0, 2.0)
    assert first["cost_per_hour"] > 0.0


@pytest.mark.parametrize("cut", [0.3, 0.5, 0.9])
def test_a_log_that_grows_and_ends_tells_the_same_as_one_that_has_ended(tmp_path: Path, cut: float) -> None:
    text = a_steady_job(seconds=600)
    whole = tmp_path / "whole" / "app-1"
    whole.parent.mkdir()
    whole.write_text("".join(text), encoding="utf-8")
    expected = Place()
    shipper([log_source(whole)], expected).run()
    path = tmp_path / "app-1.inprogress"
    lines = round(cut * len(text))
    path.write_text("".join(text[:lines]) + text[lines][:20], encoding="utf-8")
    place = Place()
    shipper([log_source(path)], place).run()
    told = len(place.lines)
    assert 0 < told < len(expected.lines)
    with path.open("a", encoding="utf-8") as file:
        file.write(text[lines][20:] + "".join(text[lines + 1 :]))
    # The one who goes on is another process, and the log has its name meanwhile.
    path = path.rename(tmp_path / "app-1")
    shipper([log_source(path)], place).run()
    assert place.lines == expected.lines


def test_a_log_of_too_few_batches_is_told(tmp_path: Path) -> None:
    path = tmp_path / "app-1.inprogress"
    path.write_text("".join(a_steady_job(seconds=14)[:-2]), encoding="utf-8")
    shipped = shipper([log_source(path)], Place()).run()
    assert "fewer than four batches" in shipped.problems[0]
    path.rename(tmp_path / "app-1")
    shipped = shipper([log_source(tmp_path / "app-1")], Place()).run()
    assert "too few to tell" in shipped.problems[0]


def test_an_empty_journal_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry_ship, "_POLL_S", 0.02)
    run = a_home(tmp_path, [])
    place = Place()
    one = shipper([RunSource(find_recorded(run))], place, once=False)
    following = threading.Thread(target=one.run, daemon=True)
    following.start()
    started = ControllerStarted(at_s=BEGAN_S, version="1", policy="p", configuration=config(4))
    with SqliteJournal(run.with_name(f"{RUN}.partial") / "journal.sqlite") as journal:
        journal.append([started, report(10.0)])
    wait_until(lambda: len(place.lines) == 1)
    one.finish(patience_s=0.0)
    following.join(timeout=60.0)
    assert not following.is_alive()
