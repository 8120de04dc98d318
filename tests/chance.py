"""How many random cases tests run: as many as every change must pass, or with BDS_TEST_CASES=5 five times as many, before a release.

The cases are the same in each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

TIMES = int(os.environ.get("BDS_TEST_CASES") or 1)


def seeds(number: int) -> range:
    return range(number * TIMES)


def examples(number: int) -> settings:
    """Settings of Hypothesis for so many examples."""
    return settings(
        max_examples=number * TIMES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
