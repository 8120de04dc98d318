"""A read replica: whether it answers as a standby, how far it is behind, and its pool.

app/database/servers/reads.py chooses among replicas.  While one is down it serves nothing: reads that wait for it or run there fail
at once, and are repeated elsewhere.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any, LiteralString

import psycopg
from psycopg.conninfo import conninfo_to_dict

from app.config import Config
from app.database.pool.pools import Pool
from app.database.pool.pulse import NotUsable, Pulse

HISTORY = 3_600  # samples of the primary's position, one a second; beyond the oldest one the replica's own clock gives the lag

WRITTEN: LiteralString = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8"
# null unless the server is a standby; the age in seconds of the last transaction that it has replayed
REPLAYED: LiteralString = """
    select pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::int8,
        coalesce(extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()), 'infinity')::float8
    where pg_is_in_recovery()
"""


class History:
    """Positions in the primary's write-ahead log with the times at which they were seen, from which a replica's lag follows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=HISTORY)

    async def sample(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Store the primary's current position."""
        row = await (await connection.execute(WRITTEN, prepare=False)).fetchone()
        assert row is not None
        self._samples.append((time.monotonic(), row[0]))

    def lag(self, replayed: int, age: float) -> float:
        """Seconds since the primary wrote past `replayed`; 0 if no sample is past it.

        age: seconds since the replica's last transaction, returned if `replayed` is before the oldest sample.
        """
        if not self._samples or replayed < self._samples[0][1]:
            return age
        later = next((at for at, written in self._samples if written > replayed), None)
        return 0.0 if later is None else time.monotonic() - later


class Replica:
    """One replica.  lag: seconds, infinite until it is known."""

    def __init__(self, config: Config, url: str, history: History) -> None:
        place = conninfo_to_dict(url)
        self.name = ":".join(str(place[key]) for key in ("host", "port") if place.get(key)) or "local"
        self.pool = Pool(config, url, "bds_reader", config.pool_size, is_required=False)
        self.pulse = Pulse(f"the replica {self.name}", url, self.pool, probe=self.measure)
        self.lag = math.inf
        self._history, self._max_lag = history, config.read_max_lag

    async def start(self) -> None:
        await self.pulse.start(required=False)
        if self.pulse.is_up:
            await self.pool.open()

    async def stop(self) -> None:
        await self.pulse.stop()
        await self.pool.close()

    @property
    def is_usable(self) -> bool:
        """Whether it answered the last check, as a standby, and lags by no more than BDS_READ_MAX_LAG."""
        return self.pulse.is_up and self.lag <= self._max_lag

    async def measure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Measure the lag.  Raises NotUsable, psycopg.Error."""
        row = await (await connection.execute(REPLAYED, prepare=False)).fetchone()
        if row is None:
            raise NotUsable("it is not a standby: it was promoted, or BDS_READ_DATABASE_URL names another server")
        self.lag = self._history.lag(*row)
