"""What every engine has to keep, as tests that the simulator, real Spark and anybody's engine can inherit."""

from __future__ import annotations

from tidewise.testing.engine_changes import EngineChangeTests
from tidewise.testing.engine_operation import EngineOperationTests
from tidewise.testing.engine_profiles import EngineProfileTests
from tidewise.testing.engine_reports import EngineRecordTests, EngineReportTests


# pytest runs what comes from the last base first: simple things, changes, the rest, and what all of it adds up to.
class EngineConformance(
    EngineRecordTests, EngineOperationTests, EngineProfileTests, EngineChangeTests, EngineReportTests
):
    """Tests of the promises in `tidewise.core.Engine` and `RunningJob`.

    Inherit and say how the engine is made, what to start with and how patient to be; pytest does the rest::

        from tidewise.testing import EngineConformance


        class TestMyEngine(EngineConformance):
            report_wait_s = 60.0

            def make_engine(self) -> Engine:
                return MyEngine(load=constant(1000))

            def start_configuration(self) -> Configuration:
                return Configuration(executors=2)

    What can be set, times and tolerances above all, is in `tidewise.testing.engine_suite.EngineSuite`.

    The load must last for as long as all of the tests take, and be about the same all the while: what is disturbed is
    told from what is calm. The start has to cope with it: failures are recovered from under it. Two jobs are launched:
    all tests but that of `stop` share one, and each leaves it running; none depends on another. Three profiles are
    made.
    """
