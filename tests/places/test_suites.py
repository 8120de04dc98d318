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
LEFT_OUT = (
    # those ask the company's database for what is at home: keys, a worker
    "test_the_answer_is_the_report",
    "test_deliveries_are_shown",
    # slow ones, each of whose routes another test that runs takes
    "test_readers_by_id_and_by_updated_at_skip_nothing_over_http",  # a page of changes: test_changes_are_filtered_by_row
    "test_a_cancel_needs_no_import_thread",  # a cancel: test_an_import_that_waits_for_its_turn_can_be_cancelled
    "test_a_queued_import_can_be_cancelled",
    "test_an_import_can_be_cancelled_while_its_body_arrives",
    "test_an_import_with_a_stalled_body_can_be_cancelled",
)


def test_suites_over_http_pass_with_a_company_at_a_second_place() -> None:
    texts = "".join((ROOT / suite).read_text(encoding="utf-8") for suite in SUITES)
    assert [name for name in LEFT_OUT if f"def {name}" not in texts] == []
    chosen = " and ".join(f"not {name}" for name in LEFT_OUT)
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not processes", "-k", chosen, *SUITES]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "BDS_TEST_PLACED": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:]
