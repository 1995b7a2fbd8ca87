"""What is told of a replayed run: how far it can be trusted, and of how many replays a spread is."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from tests.report.whatifs import answer, recorded
from tidewise.experiments.whatif_recording import Recording
from tidewise.experiments.whatif_replay import Trust
from tidewise.report.whatif import fit_table, misfit_table, whatif_sentences, whatif_table


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return recorded(tmp_path_factory.mktemp("recorded"))


@pytest.mark.parametrize(
    ("off", "replayed", "trust", "said"),
    [
        (0.1, (1.02, 0.93), Trust.WELL, "The fit explains this run well. Fitted"),
        (0.1, (1.0, 0.85), Trust.ROUGHLY, "roughly, because a replay of it has 85.0 % good reports instead of 95.0 %."),
        (0.1, (1.1, 0.85), Trust.ROUGHLY, " good reports instead of 95.0 % and costs 1.10 instead of 1.00 "),
        (0.1, (0.9, 0.95), Trust.ROUGHLY, "roughly, because a replay of it costs 0.90 instead of 1.00 "),
        (0.2, (0.9, 0.95), Trust.ROUGHLY, "The fit explains this run roughly. Fitted"),
        (0.1, (1.0, 0.578), Trust.NOT, " has 57.8 % good reports instead of 95.0 %: do not trust the figures. Fitted"),
        (0.4, (1.0, 0.95), Trust.NOT, "The fit does not explain this run: do not trust the figures. Fitted"),
    ],
)
def test_a_fit_is_trusted_no_more_than_its_replay_of_what_is_known(
    recording: Recording, off: float, replayed: tuple[float, float], trust: Trust, said: str
) -> None:
    told = answer(recording, off=off, replayed=replayed)
    assert told.trust is trust
    sentences = whatif_sentences(told)
    (sentence,) = [one for one in sentences if one.startswith("The fit ")]
    assert said in sentence
    assert (sentences[0] == sentence) == (trust is Trust.NOT)


@pytest.mark.parametrize(
    ("costs", "told"),
    [
        ((1.5,), "would have cost 1.50 USD, 0.50"),
        ((1.0, 2.0), "would have cost 1.50 USD (2 draws: 1.00 to 2.00), 0.50"),
        (tuple(1.0 + 0.1 * number for number in range(11)), "would have cost 1.50 USD (90 %: 1.05 to 1.95), 0.50"),
    ],
)
def test_a_spread_says_of_how_many_replays_it_is(recording: Recording, costs: tuple[float, ...], told: str) -> None:
    sentences = whatif_sentences(answer(recording, costs=costs, shares=(0.9,) * len(costs)))
    assert any(told in sentence for sentence in sentences), sentences


def test_good_reports_are_called_what_they_are(recording: Recording) -> None:
    sentences = whatif_sentences(answer(recording))
    assert sentences[0].endswith(" and kept its promised latency in 95.0 % of its reports.")
    assert "with 96.0 % good reports (3 draws: 95.0 to 97.0 %)" in sentences[1]


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("draws", [1, 2, 7])
def test_no_figure_of_a_table_is_cut_whatever_the_width(recording: Recording, width: int, draws: int) -> None:
    out = StringIO()
    costs = tuple(1.0 + 0.1 * number for number in range(draws))
    shown = answer(recording, costs=costs, shares=tuple(0.9 + 0.01 * number for number in range(draws)))
    for table in (whatif_table, misfit_table, fit_table):
        Console(file=out, width=width).print(table(shown, width=width))
    text = out.getvalue()
    assert "…" not in text
    for figure in ("failures.driver-kill.warm_up.share", "2.2e-05", "1.87e-05..2.59e-05", "10 %", "reactive (the"):
        assert figure in text
    assert ("1.00..1.10)" in text) == (draws == 2)
    assert ("in brackets: 2 draws" in text) == (draws == 2)
    assert ("in brackets: 90 %" in text) == (draws == 7)
    assert (".." in text.partition("How far off")[0]) == (draws > 1)
