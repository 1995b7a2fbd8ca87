from __future__ import annotations

import sqlite3
import threading
import typing
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidewise.control import Durability, SqliteJournal
from tidewise.control.codec import decode, encode
from tidewise.core import (
    BadInputError,
    ControllerStarted,
    Decided,
    FaultInjected,
    JournalEvent,
    JournalVersionError,
    Keep,
    Origin,
    Paused,
    PermanentError,
    Reason,
    Resumed,
    TemporaryError,
)

from .fakes import config
from .strategies import EVENTS

PAUSED, RESUMED = Paused(at_s=1.0, by="ada"), Resumed(at_s=2.0, by="ada")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.journal"


def written(path: Path, events: Iterable[JournalEvent] = (PAUSED,)) -> Path:
    with SqliteJournal(path) as journal:
        journal.append(events)
    return path


def test_every_class_of_event_has_a_strategy() -> None:
    assert set(EVENTS) == set(typing.get_args(JournalEvent))


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: str(kind.__name__))
def test_every_event_comes_back_as_it_was_written(kind: type[JournalEvent]) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(EVENTS[kind])
    def check(event: JournalEvent) -> None:
        back = decode(*encode(event), where="here")
        assert type(back) is kind
        assert back == event
        # Equal is not enough: 1 == 1.0 == True.
        assert repr(back) == repr(event)

    check()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.one_of(list(EVENTS.values())), max_size=4), max_size=5))
def test_a_file_gives_back_all_events_in_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[JournalEvent]]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "a run?#%.journal"
    with SqliteJournal(path) as journal:
        for batch in batches:
            journal.append(batch)
    expected = [event for batch in batches for event in batch]
    with SqliteJournal(path) as journal:
        assert list(journal.read()) == expected
    with SqliteJournal.open_readonly(path) as journal:
        assert list(journal.read()) == expected


def test_long_journals_are_read_in_pieces_and_in_order(path: Path) -> None:
    events = [Paused(at_s=float(number), by="ada") for number in range(2500)]
    with SqliteJournal.open_readonly(written(path, events)) as journal:
        assert list(journal.read()) == events


def test_numbers_of_numpy_are_written_as_plain_ones(path: Path) -> None:
    event = ControllerStarted(at_s=np.float64(1.5), version="1", policy="p", configuration=config(int(np.int64(3))))
    reason = Reason(code="a", sentence="b", evidence={"n": np.int64(3)})  # type: ignore[dict-item]  # what a careless policy does
    decided = Decided(at_s=2.0, origin=Origin.POLICY, decision=Keep(reason=reason))
    with SqliteJournal.open_readonly(written(path, [event, decided])) as journal:
        assert list(journal.read()) == [event, decided]


def test_an_event_that_cannot_be_written_leaves_nothing_behind(path: Path) -> None:
    with SqliteJournal(path) as journal:
        with pytest.raises(PermanentError, match="cannot be written"):
            journal.append([PAUSED, FaultInjected(at_s=2.0, fault="\udc00")])
        with pytest.raises(PermanentError, match="holds no str"):
            journal.append([PAUSED, typing.cast("JournalEvent", _Named())])
        journal.append([RESUMED])
        assert list(journal.read()) == [RESUMED]


class _Named(str):
    at_s = 1.0
    __slots__ = ()


_Named.__name__ = "str"


def test_a_journal_of_another_format_is_refused_with_one_sentence(path: Path) -> None:
    connection = sqlite3.connect(written(path))
    connection.execute("UPDATE meta SET value = '99' WHERE name = 'format_version'")
    connection.commit()
    connection.close()
    for build in (SqliteJournal, SqliteJournal.open_readonly):
        with pytest.raises(JournalVersionError, match="format 99"):
            build(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_text("This is a letter, and long enough to be taken for something else. " * 100)
    for build in (SqliteJournal, SqliteJournal.open_readonly):
        with pytest.raises(BadInputError, match=r"run\.journal"):
            build(path)


def test_another_programs_database_is_refused_and_left_as_it_was(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE song (name TEXT)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    for build in (SqliteJournal, SqliteJournal.open_readonly):
        with pytest.raises(BadInputError, match="another program"):
            build(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE event SET body = '{\"at_s\": 1.0'",
        'UPDATE event SET body = \'{"at_s": 1.0, "by": " "}\'',
        "UPDATE event SET kind = 'Nonsense'",
    ],
)
def test_a_damaged_line_is_named(path: Path, statement: str) -> None:
    connection = sqlite3.connect(written(path))
    connection.execute(statement)
    connection.commit()
    connection.close()
    with SqliteJournal(path) as journal, pytest.raises(BadInputError, match="Line 1 of"):
        list(journal.read())


def test_a_damaged_page_is_told_as_damage(path: Path) -> None:
    written(path, [Paused(at_s=float(number), by="ada") for number in range(2000)])
    content = bytearray(path.read_bytes())
    content[8192:-4096] = b"\xff" * (len(content) - 8192 - 4096)
    path.write_bytes(content)
    with pytest.raises(BadInputError, match="damaged"), SqliteJournal.open_readonly(path) as journal:
        list(journal.read())


def test_an_empty_journal_is_told_with_what_to_do(path: Path) -> None:
    path.touch()
    with pytest.raises(BadInputError, match=r"is empty: its run has only just begun.*put a copy of its journal there"):
        SqliteJournal.open_readonly(path)


def test_reading_a_journal_that_is_over_leaves_nothing_beside_it(path: Path) -> None:
    written(path)
    (path.with_name(path.name + ".lock")).unlink()
    before = sorted(path.parent.iterdir())
    with SqliteJournal.open_readonly(path, is_over=True) as journal:
        assert list(journal.read())
        assert sorted(path.parent.iterdir()) == before


def test_what_a_reader_kept_in_the_log_is_read_of_a_journal_that_is_over(path: Path) -> None:
    writer = SqliteJournal(path)
    writer.append([Paused(at_s=1.0, by="ada")])
    reader = SqliteJournal.open_readonly(path)
    assert list(reader.read())
    writer.close()
    with SqliteJournal.open_readonly(path, is_over=True) as journal:
        assert len(list(journal.read())) == 1
    reader.close()


def test_a_missing_journal_is_refused_for_reading_and_not_made(path: Path) -> None:
    with pytest.raises(BadInputError, match="no journal"):
        SqliteJournal.open_readonly(path)
    assert not path.exists()


def test_a_journal_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="cannot be written"):
        SqliteJournal(tmp_path / "nowhere" / "run.journal")


def test_a_full_disk_writes_nothing_by_halves_and_says_so(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append([PAUSED])
        connection = journal._connection
        assert connection is not None
        connection.execute("PRAGMA max_page_count = 8")
        many = [Paused(at_s=float(number), by="ada" * 100) for number in range(200)]
        with pytest.raises(PermanentError, match="disk is full"):
            journal.append(many)
        assert list(journal.read()) == [PAUSED]
        connection.execute("PRAGMA max_page_count = 100000")
        journal.append([RESUMED])
    with SqliteJournal.open_readonly(path) as journal:
        assert list(journal.read()) == [PAUSED, RESUMED]


def test_a_write_that_fails_in_the_middle_leaves_no_transaction_open(path: Path) -> None:
    def deny(action: int, *_about: object) -> int:
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_INSERT else sqlite3.SQLITE_OK

    with SqliteJournal(path) as journal:
        assert journal._connection is not None
        journal._connection.set_authorizer(deny)
        with pytest.raises(PermanentError, match="cannot be used"):
            journal.append([PAUSED])
        journal._connection.set_authorizer(None)
        journal.append([RESUMED])
        assert list(journal.read()) == [RESUMED]


def test_a_file_held_by_another_program_is_a_temporary_trouble(path: Path) -> None:
    with SqliteJournal(path, locked_for_s=0.05) as journal:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(TemporaryError, match="holds the journal"):
            journal.append([PAUSED])
        other.execute("ROLLBACK")
        other.close()
        journal.append([PAUSED])
        assert list(journal.read()) == [PAUSED]


def test_a_second_writer_is_refused_until_the_first_closes(path: Path) -> None:
    with SqliteJournal(path), pytest.raises(TemporaryError, match="Another controller"):
        SqliteJournal(path)
    SqliteJournal(path).close()


def test_a_reader_sees_what_is_written_while_the_writer_goes_on(path: Path) -> None:
    with SqliteJournal(path) as writer:
        writer.append([PAUSED])
        with SqliteJournal.open_readonly(path) as reader:
            assert list(reader.read()) == [PAUSED]
            writer.append([RESUMED])
            assert list(reader.read()) == [PAUSED, RESUMED]
            with pytest.raises(PermanentError, match="reading only"):
                reader.append([PAUSED])


def test_a_closed_journal_is_refused_and_may_be_closed_again(path: Path) -> None:
    journal = SqliteJournal(path)
    journal.close()
    journal.close()
    with pytest.raises(PermanentError, match="is closed"):
        journal.append([PAUSED])


def test_nothing_to_write_is_no_transaction(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.append([])
        assert list(journal.read()) == []


@pytest.mark.parametrize(("durability", "synchronous"), [(Durability.PROCESS, 1), (Durability.POWER, 2)])
def test_durability_is_the_users_choice(path: Path, durability: Durability, synchronous: int) -> None:
    with SqliteJournal(path, durability=durability) as journal:
        assert journal._connection is not None
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        assert journal._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_journal_may_be_handed_to_another_thread(path: Path) -> None:
    with SqliteJournal(path) as journal:
        thread = threading.Thread(target=journal.append, args=([PAUSED],))
        thread.start()
        thread.join()
        assert list(journal.read()) == [PAUSED]


def test_a_read_only_folder_can_still_be_reported_on(path: Path) -> None:
    written(path)
    path.with_name(path.name + ".lock").unlink()
    path.parent.chmod(0o555)
    try:
        with SqliteJournal.open_readonly(path) as journal:
            assert list(journal.read()) == [PAUSED]
    finally:
        path.parent.chmod(0o755)


def test_a_journal_that_nobody_writes_any_more_is_read_without_a_trace(path: Path) -> None:
    written(path, [PAUSED, RESUMED])
    before = sorted(path.parent.iterdir())
    with SqliteJournal.open_readonly(path, is_over=True) as journal:
        assert list(journal.read()) == [PAUSED, RESUMED]
    assert sorted(path.parent.iterdir()) == before


def test_what_only_the_log_of_a_journal_holds_is_read_as_well(path: Path, tmp_path: Path) -> None:
    """As it is found where its writer was killed."""
    killed = tmp_path / "killed"
    killed.mkdir()
    with SqliteJournal(path) as journal:
        journal.append([PAUSED])
        for one in (path, path.with_name(f"{path.name}-wal")):
            (killed / one.name).write_bytes(one.read_bytes())
    with SqliteJournal.open_readonly(killed / path.name, is_over=True) as journal:
        assert list(journal.read()) == [PAUSED]


def test_an_empty_journal_is_called_empty(path: Path) -> None:
    path.touch()
    with pytest.raises(BadInputError, match="is empty: its run has only just begun"):
        SqliteJournal.open_readonly(path)
