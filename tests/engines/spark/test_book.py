"""What a controller has written down is there after its crash, whole, and nobody else can read it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError, ChangeOutcome, ChangeStatus, Configuration
from tidewise.engines.spark.book import Book, configuration_from_dict, configuration_to_dict

CONFIGURATIONS = st.builds(
    Configuration,
    executors=st.integers(min_value=1, max_value=50),
    slots_per_executor=st.integers(min_value=1, max_value=8),
    cores_per_executor=st.floats(min_value=0.25, max_value=8.0),
    memory_mib_per_executor=st.integers(min_value=512, max_value=100_000),
    commit_interval_s=st.floats(min_value=0.0, max_value=600.0),
    state_partitions=st.none() | st.integers(min_value=1, max_value=500),
    settings=st.dictionaries(st.sampled_from(["spark.a", "spark.b"]), st.text(min_size=1)).map(
        lambda settings: tuple(sorted(settings.items()))
    ),
)


@given(configuration=CONFIGURATIONS)
def test_a_configuration_comes_back_as_it_was(configuration: Configuration) -> None:
    told = json.loads(json.dumps(configuration_to_dict(configuration)))
    assert configuration_from_dict(told) == configuration


def test_a_book_comes_back_as_it_was(tmp_path: Path) -> None:
    book = Book.new(tmp_path / "job")
    assert Book.read(tmp_path / "job") == book
    configuration = Configuration(executors=3, state_partitions=8, settings=(("spark.x", "y"),))
    outcome = ChangeOutcome(
        request_id="r",
        status=ChangeStatus.APPLIED,
        finished_at_s=12.5,
        configuration=configuration,
        gap_s=1.25,
        detail="a batch was cut",
    )
    changed = book.having(
        port=4711,
        configuration=configuration_to_dict(configuration),
        applications=({"key": "a", "standby": False},),
        active="a",
        dead=("x", "y"),
        launched=2,
        change="r",
    )
    assert Book.read(tmp_path / "job").change == "r"
    ended = changed.with_outcome(outcome)
    found = Book.read(tmp_path / "job")
    assert found.outcome("r") == outcome
    assert found.outcome("another") is None
    assert found.change is None
    assert (found.port, found.active, found.dead, found.launched) == (4711, "a", ("x", "y"), 2)
    assert found.applications == ({"key": "a", "standby": False},)
    assert configuration_from_dict(found.configuration) == configuration
    assert found.token == book.token == ended.token
    assert changed.outcome("r") is None, "a book was changed in place"


@pytest.mark.parametrize("profile", [{}, {"request_id": "p", "candidates": []}])
def test_a_profile_of_another_version_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, profile: dict[str, object]
) -> None:
    assert Book.new(tmp_path).having(profile=profile).profile_on is None
    assert "cannot be read, so it is forgotten" in caplog.text


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Book.new(tmp_path).having(port=1)
    finally:
        os.umask(before)
    assert (tmp_path / "job.json").stat().st_mode & 0o777 == 0o600
    assert len({Book.new(tmp_path / name).token for name in ("one", "two", "three")}) == 3


def test_a_crash_between_leaves_the_earlier_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book.new(tmp_path)

    def crash(_handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            book.having(port=5)
    assert Book.read(tmp_path) == book
    (tmp_path / "job.json.new").write_text('{"began', encoding="utf-8")  # as a kill in the middle leaves it
    assert Book.read(tmp_path) == book
    assert Book.read(tmp_path).having(port=6).port == Book.read(tmp_path).port == 6


def test_a_folder_has_one_job(tmp_path: Path) -> None:
    assert not Book.exists(tmp_path)
    with pytest.raises(BadInputError, match="there is no job in"):
        Book.read(tmp_path)
    Book.new(tmp_path)
    assert Book.exists(tmp_path)
    with pytest.raises(BadInputError, match="belongs to a job already; choose another folder"):
        Book.new(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"applications": [], "dead": [], "no such field": 1}'])
def test_a_book_that_is_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInputError, match=r"job\.json cannot be read"):
        Book.read(tmp_path)
