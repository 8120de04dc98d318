"""A primary is killed while clients import, and its synchronous standby is promoted: nothing that was acknowledged is lost."""

from __future__ import annotations

import asyncio

import pytest

from soak import outages

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_a_failover_to_a_synchronous_standby_loses_no_acknowledged_import_and_does_none_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("BEFORE", "NOTICE", "AFTER"):
        monkeypatch.setattr(outages, name, 0.5)
    assert asyncio.run(outages.observe("synchronous-failover", connections=10))
    _, name, saw, _, lost, twice, _ = capsys.readouterr().out.split("|")
    assert (name.strip(), int(lost), int(twice)) == ("synchronous-failover", 0, 0)
    assert int(saw.split()[0]) > 0 and "no answer" not in saw
