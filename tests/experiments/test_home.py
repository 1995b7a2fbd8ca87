"""Which folder a job is kept in, and what its runs have cost when several controllers had it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.experiments.jobs import write_job
from tidewise.control import SqliteJournal
from tidewise.core import BadInputError, Meter, Paused, Purpose, Resumed, Usage
from tidewise.experiments.channel import Channel
from tidewise.experiments.controller import Home
from tidewise.experiments.job_file import JobFile
from tidewise.experiments.live_meter import LiveMeter


@pytest.fixture
def job(tmp_path: Path) -> JobFile:
    return JobFile(write_job(tmp_path))


def end(folder: Path) -> None:
    (folder / "small-reactive-1").mkdir(parents=True)
    (folder / "small-reactive-1" / "run.json").touch()


def test_by_default_a_job_goes_where_it_was_left_or_else_where_nothing_has_ended(tmp_path: Path, job: JobFile) -> None:
    runs = tmp_path / "runs"
    assert Home.default(job, runs).folder == runs / "small"
    end(runs / "small")
    (runs / "small-2" / "small-reactive-1.partial").mkdir(parents=True)
    home = Home.default(job, runs)
    assert home.folder == runs / "small-2"
    assert home.run_folder == runs / "small-2" / "small-reactive-1"


def test_a_home_whose_run_has_ended_or_that_is_another_runs_is_refused(tmp_path: Path, job: JobFile) -> None:
    end(tmp_path / "ended")
    with pytest.raises(BadInputError, match=r"has ended .*choose another folder"):
        Home.of(job, tmp_path / "ended")
    (tmp_path / "other" / "small-static-1.partial").mkdir(parents=True)
    with pytest.raises(BadInputError, match="belongs to the run small-static-1"):
        Home.of(job, tmp_path / "other")


def test_a_second_controller_is_refused_while_the_first_one_lives(tmp_path: Path, job: JobFile) -> None:
    home = Home.of(job, tmp_path / "home")
    home.folder.mkdir()
    channel = Channel(home.folder, lambda _do, _arguments: {})
    with pytest.raises(BadInputError, match="is under control already"):
        home.refuse_a_second()
    channel.close()
    home.refuse_a_second()


def test_the_clock_of_a_run_begins_once(tmp_path: Path, job: JobFile) -> None:
    home = Home.of(job, tmp_path / "home")
    home.folder.mkdir()
    first_s = home.clock().now_s()
    began = (home.folder / "began.json").read_text(encoding="utf-8")
    assert first_s <= home.clock().now_s() < 60.0
    assert (home.folder / "began.json").read_text(encoding="utf-8") == began
    (home.folder / "began.json").write_text("{}", encoding="utf-8")
    with pytest.raises(BadInputError, match="cannot be read"):
        home.clock()


def test_a_wall_clock_that_was_put_back_does_not_turn_the_run_back(tmp_path: Path, job: JobFile) -> None:
    home = Home.of(job, tmp_path / "home")
    home.partial.mkdir(parents=True)
    with SqliteJournal(home.partial / "journal.sqlite") as journal:
        journal.append([Paused(at_s=500.0, by="ops"), Resumed(at_s=700.0, by="ops")])
    assert 700.0 <= home.clock().now_s() < 760.0


def test_a_run_keeps_the_job_file_that_it_began_with(tmp_path: Path, job: JobFile) -> None:
    home = Home.of(job, tmp_path / "home")
    home.folder.mkdir()
    assert home.keep(job)
    (home.folder / "job").mkdir()
    (home.folder / "job" / "job.json").touch()
    job.path.write_text(job.text.replace('name = "small"', 'name = "edited"'), encoding="utf-8")
    edited = JobFile(job.path)
    assert not home.keep(edited)
    again = JobFile(job.path, kept=home.job_file)
    assert (edited.name, again.name) == ("edited", "small")
    assert again.program == job.program, "what it names is beside the file that the user wrote"


def test_a_job_that_never_began_takes_the_file_as_it_is_now(tmp_path: Path, job: JobFile) -> None:
    home = Home.of(job, tmp_path / "home")
    home.folder.mkdir()
    home.keep(job)
    job.path.write_text(job.text + "\n# better\n", encoding="utf-8")
    assert home.keep(JobFile(job.path))
    assert home.job_file.read_text(encoding="utf-8").endswith("# better\n")


@dataclass
class Metered:
    """A job of which only the meter is asked."""

    core_s: float

    def meter(self) -> Meter:
        return {Purpose.EXECUTORS: Usage(core_s=self.core_s, memory_mib_s=0.0)}


def test_what_earlier_controllers_metered_counts_and_the_time_between_costs_as_before(tmp_path: Path) -> None:
    path = tmp_path / "meter.json"
    first = LiveMeter(path, began_s=100.0)
    assert cores(first.read(Metered(20.0), now_s=120.0)) == 20.0  # type: ignore[arg-type]  # only the meter is asked
    second = LiveMeter(path, began_s=100.0)
    # 20 s for 20 core-seconds, then 10 s that nobody metered.
    assert cores(second.read(Metered(0.0), now_s=130.0)) == pytest.approx(30.0)  # type: ignore[arg-type]  # as above
    assert cores(second.read(Metered(5.0), now_s=135.0)) == pytest.approx(35.0)  # type: ignore[arg-type]  # as above


def cores(meter: Meter) -> float:
    return meter[Purpose.EXECUTORS].core_s


def test_a_job_that_only_was_to_be_advised_on_is_not_taken_back_to_be_changed(tmp_path: Path, job: JobFile) -> None:
    for advice_only, other in ((True, "run"), (False, "advise")):
        home = Home.of(job, tmp_path / f"home-{other}")
        home.refuse_the_other(advice_only=not advice_only)
        (home.folder / "job").mkdir()
        (home.folder / "job" / "job.json").write_text("{}", encoding="utf-8")
        home.refuse_the_other(advice_only=not advice_only)
        with pytest.raises(BadInputError, match=f"was begun by `tidewise {other}`"):
            home.refuse_the_other(advice_only=advice_only)


def test_advice_has_a_home_of_its_own(tmp_path: Path, job: JobFile) -> None:
    assert Home.default(job, tmp_path, name="small-advice").folder == tmp_path / "small-advice"
