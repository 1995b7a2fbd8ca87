"""Search: the cheapest configuration that keeps the promises, and what to profile to find a cheaper one."""

from tidewise.search.ask import Ask, Terms, ask
from tidewise.search.choice import Choice, Infeasible, cheapest
from tidewise.search.pareto import Rows, front_rows, hypervolume
from tidewise.search.promises import Keeping, Promise, keeping
from tidewise.search.suggest import Profiler

__all__ = [
    "Ask",
    "Choice",
    "Infeasible",
    "Keeping",
    "Profiler",
    "Promise",
    "Rows",
    "Terms",
    "ask",
    "cheapest",
    "front_rows",
    "hypervolume",
    "keeping",
]
