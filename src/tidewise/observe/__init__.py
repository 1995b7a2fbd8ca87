"""What a job's reports show besides their numbers: failures, and how long it took to get over them."""

from tidewise.observe.recoveries import Recovered, RecoveryWatch

__all__ = ["Recovered", "RecoveryWatch"]
