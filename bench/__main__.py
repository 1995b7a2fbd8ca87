"""`python -m bench [NAME ...] [--traces FOLDER]`: measure, print, and write the tables to docs/benchmarks.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    decision_time,
    fleet,
    fleet_fit,
    forecast_backtest,
    job_speed,
    nexmark,
    paper_cluster,
    policies,
    policy_decision_time,
    producer_rate,
    qos_latency,
    qos_overload,
    qos_recovery,
    qos_recovery_spark,
    real_spark,
    real_time,
    search_regret,
    simulator_speed,
    spark_agent,
    spark_drain,
    spark_handover,
    spark_live,
    spark_profile,
    spark_recovery,
    state_price,
    telemetry,
)
from bench.page import Bench, update_page
from tidewise.core import BadInputError

BENCHES: dict[str, Bench] = {
    "simulator-speed": simulator_speed.measure,
    "decision-time": decision_time.measure,
    "forecast-backtest": forecast_backtest.measure,
    "paper-cluster": paper_cluster.measure,
    policies.NAME: policies.measure,
    "policy-decision-time": policy_decision_time.measure,
    "spark-live": spark_live.measure,
    "spark-drain": spark_drain.measure,
    "spark-handover": spark_handover.measure,
    "spark-handover-state": spark_handover.measure_with_state,
    "spark-recovery": spark_recovery.measure,
    "spark-profile": spark_profile.measure,
    "spark-agent": spark_agent.measure,
    **real_spark.benches(),
    "job-speed": job_speed.measure,
    "nexmark": nexmark.measure,
    "psm": nexmark.measure_psm,
    "state-price": state_price.measure,
    "real-time": real_time.measure,
    "producer": producer_rate.measure,
    "qos-overload": qos_overload.measure,
    "qos-latency": qos_latency.measure,
    "qos-recovery": qos_recovery.measure,
    "qos-recovery-spark": qos_recovery_spark.measure,
    "search-regret": search_regret.measure,
    "fleet": fleet.measure,
    "fleet-fit": fleet_fit.measure,
    telemetry.NAME: telemetry.measure,
}
_ON_REQUEST = set(real_spark.benches())
"""What is made of runs that take hours to come by."""
PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def main() -> None:
    """Run the benchmarks that were named."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(BENCHES)} (default: all)")
    parser.add_argument(
        "--traces",
        type=Path,
        default=None,
        help="a folder with ysb_18h.csv, ysb_profiles.csv and any loads; generated ones are used without it",
    )
    policies.add_options(parser)
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(BENCHES)}")
    try:
        wanted = policies.wanted_of(options)
        _measure(options.names or [name for name in BENCHES if name not in _ON_REQUEST], options.traces, wanted)
    except BadInputError as error:
        parser.error(str(error))


def _measure(names: Sequence[str], traces: Path | None, wanted: policies.Wanted) -> None:
    today = datetime.now(UTC).date().isoformat()
    for name in names:
        print(f"\n== {name}", flush=True)
        section = policies.measure(traces, wanted) if name == policies.NAME else BENCHES[name](traces)
        print(section)
        if name == policies.NAME and not (wanted.is_whole or wanted.page):
            continue
        given = wanted.options if name == policies.NAME else ""
        given += "" if traces is None else " --traces FOLDER"
        update_page(PAGE, name, section, command=f"python -m bench {name}{given}", date=today)


if __name__ == "__main__":
    main()
