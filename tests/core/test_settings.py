"""Settings: what people write becomes the arguments of a class or a function, or one sentence about what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Literal, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidewise.core import BadInputError, InvalidValueError
from tidewise.core.readers import Reader, Readers, Seconds, did_you_mean, mismatch, read_duration_s
from tidewise.core.settings import read_settings, settings_of


class Colour(StrEnum):
    RED = "red"
    DARK_BLUE = "dark-blue"


class Part(Protocol):
    @property
    def weight(self) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Stone:
    weight: float


@dataclass(frozen=True, kw_only=True)
class Machine:
    name: ClassVar[str] = "machine"

    size: float
    """How large it is."""
    count: int = 3
    eager: bool = False
    label: str = "x"
    colour: Colour | None = Colour.RED
    mode: Literal["fast", "slow"] = "fast"
    limit: float | None = None
    patience_s: float = 90.0
    whole_s: int = 7200
    pause_s: float | None = None
    rate_per_s: float = 1.0
    steps: tuple[tuple[Seconds, float], ...] = ()
    pair: tuple[int, str] = (1, "a")
    marks_s: tuple[float, ...] = (60.0, 90.0)
    parts: tuple[Part, ...] = ()
    raw: Stone | None = None


def a_function(file: Path, *, start_s: float = 0.0, gaps: Literal["refuse", "bridge"] = "refuse") -> None:
    """Reads something.

    `file`: Where it
        stands.
    `start_s`: What is left out.

    `gaps` are not told of here.
    """


def _stone(value: object) -> Stone:
    if not isinstance(value, Mapping):
        raise mismatch(value, "a stone")
    return Stone(**read_settings(Stone, value, where="stone"))  # type: ignore[arg-type]  # checked by then


READERS: Readers = {Part: Reader(allowed="a stone", read=_stone)}


def read(**given: object) -> dict[str, object]:
    return read_settings(Machine, {"size": 1, **given}, where="machine", readers=READERS)


@pytest.mark.parametrize(
    ("name", "value", "argument", "becomes"),
    [
        ("size", 2, "size", 2.0),
        ("count", 5, "count", 5),
        ("eager", True, "eager", True),
        ("label", "none", "label", "none"),
        ("colour", "dark-blue", "colour", Colour.DARK_BLUE),
        ("colour", Colour.RED, "colour", Colour.RED),
        ("colour", "none", "colour", None),
        ("mode", "slow", "mode", "slow"),
        ("limit", 3, "limit", 3.0),
        ("limit", "none", "limit", None),
        ("limit", None, "limit", None),
        ("patience", "2min", "patience_s", 120.0),
        ("whole", "1h", "whole_s", 3600),
        ("pause", "500ms", "pause_s", 0.5),
        ("pause", "none", "pause_s", None),
        ("rate_per_s", 5, "rate_per_s", 5.0),
        ("steps", [["0s", 1], ["1min", 2.5]], "steps", ((0.0, 1.0), (60.0, 2.5))),
        ("pair", [2, "b"], "pair", (2, "b")),
        ("marks", ["1s", "1min"], "marks_s", (1.0, 60.0)),
        ("parts", [{"weight": 2}], "parts", (Stone(weight=2.0),)),
        ("raw", Stone(weight=1.0), "raw", Stone(weight=1.0)),
    ],
)
def test_what_is_written_becomes_an_argument(name: str, value: object, argument: str, becomes: object) -> None:
    found = read(**{name: value})[argument]
    assert found == becomes
    assert type(found) is type(becomes)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("size", "1", "machine: size: '1' is not a number"),
        ("size", True, "machine: size: True is not a number"),
        pytest.param("size", 10**400, "is too large", id="size-huge"),
        ("count", 1.5, "machine: count: 1.5 is not a whole number"),
        ("count", True, "is not a whole number"),
        ("eager", 1, "machine: eager: 1 is not true or false"),
        ("label", 5, "machine: label: 5 is not a text"),
        ("label", ["x"] * 100, "... is not a text"),
        ("colour", "dark-blu", "machine: colour: there is no 'dark-blu'; did you mean 'dark-blue'?"),
        ("colour", "green?", "machine: colour: there is no 'green?'; known: red, dark-blue"),
        ("colour", 5, 'machine: colour: 5 is not "red" or "dark-blue" or "none"'),
        ("mode", "none", "machine: mode: there is no 'none'; known: fast, slow"),
        ("limit", "low", "machine: limit: 'low' is not a number or \"none\""),
        ("patience", 90, 'machine: patience: 90 has no unit; write it like "90s"'),
        pytest.param("patience", 10**400, 'has no unit; write it like "90s"', id="patience-huge"),
        pytest.param("patience", 16**5000, 'this number has no unit; write it like "90s"', id="patience-endless"),
        ("patience", "90", "machine: patience: '90' has no unit"),
        ("patience", True, 'machine: patience: True is not a duration such as "90s"'),
        (
            "patience_s",
            90,
            "machine has no setting 'patience_s'; write it as patience, with its unit: patience = \"90s\"",
        ),
        ("whole", "500ms", "machine: whole: '500ms' is not a whole number of seconds"),
        ("pause", 5, "machine: pause: 5 has no unit"),
        ("rate", 5, "machine has no setting 'rate'; did you mean 'rate_per_s'?"),
        ("name", "x", "machine has no setting 'name'; known: size"),
        ("!", 5, "machine has no setting '!'; known: size, count"),
        ("steps", [[0, 1]], 'machine: steps: 0 has no unit; write it like "0s"'),
        ("steps", [["0s"]], 'is not a list of a duration such as "90s" and a number'),
        ("steps", 5, "machine: steps: 5 is not a list, each item a list of"),
        ("pair", [1, 2], "machine: pair: 2 is not a text"),
        ("parts", [5], "machine: parts: 5 is not a stone"),
        ("parts", [{"weigt": 5}], "machine: parts: stone has no setting 'weigt'; did you mean 'weight'?"),
        ("raw", "granite", "machine: raw: 'granite' is not a Stone (from Python only) or \"none\""),
    ],
)
def test_what_is_wrong_is_told_in_one_sentence(name: str, value: object, said: str) -> None:
    with pytest.raises(BadInputError) as told:
        read(**{name: value})
    assert said in str(told.value)
    assert "\n" not in str(told.value)


def test_what_has_to_be_given_is_told() -> None:
    with pytest.raises(BadInputError, match="machine needs the setting size: a number"):
        read_settings(Machine, {}, where="machine")


def test_settings_are_described_as_a_plan_writes_them() -> None:
    known = {setting.name: setting for setting in settings_of(Machine, readers=READERS)}
    assert (known["size"].default, known["size"].doc) == (None, "How large it is.")
    defaults = {name: setting.default for name, setting in known.items()}
    assert defaults["eager"] == "false"
    assert defaults["colour"] == "red"
    assert defaults["limit"] == "none"
    assert (defaults["patience"], defaults["whole"], defaults["marks"]) == ("90s", "2h", "[1min, 90s]")
    assert known["parts"].allowed == "a list, each item a stone"
    assert known["patience"].argument == "patience_s"


def test_functions_are_described_by_their_docstrings() -> None:
    file, start, gaps = settings_of(a_function)
    assert (file.name, file.doc, file.default) == ("file", "Where it stands.", None)
    assert (start.name, start.doc, start.default) == ("start", "What is left out.", "0s")
    assert (gaps.doc, gaps.default, gaps.allowed) == ("", "refuse", '"refuse" or "bridge"')


def test_an_annotation_that_nobody_can_resolve_is_told() -> None:
    def broken(*, size: float) -> None: ...

    broken.__annotations__["size"] = "Missing"
    with pytest.raises(BadInputError, match="settings of broken cannot be told: name 'Missing'"):
        settings_of(broken)


def test_the_nearest_word_is_offered_or_else_all() -> None:
    assert did_you_mean("sinus", ["sine", "square"]) == "; did you mean 'sine'?"
    assert did_you_mean("mean", ["mode", "mean_per_s"]) == "; did you mean 'mean_per_s'?"
    assert did_you_mean("?", ["sine", "square"]) == "; known: sine, square"
    assert did_you_mean("", ["sine"]) == "; known: sine"
    assert did_you_mean("sine", []) == "; there are none"


@given(st.floats(min_value=0.001, max_value=1e9) | st.integers(min_value=0, max_value=10**9))
def test_what_to_write_instead_of_a_bare_number_can_be_read(number: float) -> None:
    with pytest.raises(InvalidValueError) as told:
        read_duration_s(number)
    assert read_duration_s(str(told.value).rpartition("like ")[2].strip('"')) == pytest.approx(number)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@given(given=st.dictionaries(st.sampled_from([s.name for s in settings_of(Machine)]) | st.text(max_size=5), values))
def test_whatever_is_written_is_read_or_refused_in_one_way(given: dict[str, object]) -> None:
    make: Callable[..., Machine] = Machine
    try:
        arguments = read_settings(make, given, where="machine", readers=READERS)
    except BadInputError:
        return
    assert isinstance(make(**arguments), Machine)
