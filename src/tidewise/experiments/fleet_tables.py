"""Where the tables of a fleet lie: those of telemetry, and beside them what was made of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidewise.pipeline.context import spark_told
from tidewise.pipeline.grouped import has_answers

if TYPE_CHECKING:
    from tidewise.pipeline.grouped import Frame, Session

OBSERVATIONS = "observations_60s"
MODELS = "models"
"""What `fit_fleet` writes, a row per job."""
BACKTEST = "backtest"
"""What `backtest_fleet` writes, a row per job, model and horizon."""


def open_fleet(session: Session, tables: Path) -> dict[str, Frame]:
    """All tables of a folder as views of their names; BadInputError where it holds none.

    PermanentError where a file cannot be read.
    """
    from tidewise.pipeline.telemetry_tables import open_tables  # noqa: PLC0415 - it needs PySpark, an optional extra

    with spark_told("the tables"):
        views = dict(open_tables(session, tables))
        for name in (MODELS, BACKTEST):
            if has_answers(tables / name):
                views[name] = session.read.parquet(str(tables / name))
                views[name].createOrReplaceTempView(name)
    return views
