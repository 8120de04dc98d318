"""Tests of reads, imports, changes and hooks over HTTP pass with the company at a second place, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
SUITES = (
    "tests/changes/test_incremental.py",
    "tests/changes/test_stream.py",
    "tests/feed/test_http.py",
    "tests/mapper/test_http.py",
    "tests/odata/test_answers.py",
    "tests/odata/test_expand.py",
    "tests/odata/test_paths.py",
    "tests/webhooks/test_registration.py",
)
# those ask the company's database for what is at home: keys, a worker
OF_HOME = "not test_the_answer_is_the_report and not test_deliveries_are_shown"


def test_suites_over_http_pass_with_a_company_at_a_second_place() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not processes", "-k", OF_HOME, *SUITES]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "BDS_TEST_PLACED": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
