"""/metrics: who may read it, its response, and the sampling of values that only this process can measure.

It is served on the port of everything else: processes could not share one of its own, which would have to be protected, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

import psycopg
from aiohttp import web

from app import metrics
from app.auth.tokens import secrets_equal
from app.database.database import Database
from app.database.servers.place import Place
from app.errors import ServiceError
from app.metrics import QUEUE_LIMIT, Backlog, Sampler
from app.service.middleware import DATABASE

log = logging.getLogger("bds.http")

INTERVAL = 1.0  # seconds between two samples
BACKLOG = "select b.*, c.counts from bds_service.backlog(%s) b cross join bds.problem_counts c"
BACKLOG_TIMEOUT = 2.0  # seconds for the query of the backlog
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


def require_metrics_access(request: web.Request) -> None:
    """Raise unauthorized or forbidden unless the sender may read the metrics.

    With BDS_METRICS_TOKEN set, the request must carry that token.  Without it, the request must come from this machine and not
    through a proxy, because requests through a local proxy come from this machine for every client.
    """
    token = request.app[DATABASE].config.metrics_token
    if token is not None:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secrets_equal(given.strip(), token):
            challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
            raise ServiceError("unauthorized", "expected the token of BDS_METRICS_TOKEN", headers=challenge)
    elif not _is_local(request):
        raise ServiceError("forbidden", "metrics can be read from this machine only; set BDS_METRICS_TOKEN for other machines")


def _is_local(request: web.Request) -> bool:
    try:
        is_loopback = ipaddress.ip_address(request.remote or "").is_loopback
    except ValueError:
        return False
    return is_loopback and not any(name in request.headers for name in FORWARDED)


async def show_metrics(database: Database, sampler: Sampler, request: web.Request) -> web.Response:
    """Answer with all metrics of all processes."""
    sampler.sample(database.pools(), database.limits(), database.home.readers.states())
    is_up = await database.home.answers()
    serving = [place for place in database.places() if not place.problem(database.home)]
    backlogs = await asyncio.gather(*(_read_backlog(place) for place in serving)) if is_up else []
    counted = [each for each in backlogs if each]
    backlog = sum(counted[1:], counted[0]) if counted else None
    up = {place.name: place in serving for place in database.places() if not place.is_home}
    accept = request.headers.get("Accept", "")
    body, media_type = await asyncio.to_thread(metrics.exposition, is_up, up, backlog, accept)
    return web.Response(body=body, headers={"Content-Type": media_type, "Cache-Control": "no-store"})


async def _read_backlog(place: Place) -> Backlog | None:
    """Count waiting work; None if the database does not answer in time."""
    try:
        async with asyncio.timeout(BACKLOG_TIMEOUT), place.service() as connection:
            cursor = await connection.execute(BACKLOG, (QUEUE_LIMIT,))
            row = await cursor.fetchone()
    except (psycopg.Error, TimeoutError) as error:
        log.warning("waiting work could not be counted: %s", type(error).__name__)
        return None
    return Backlog(*row) if row else None


async def run_sampling(database: Database, sampler: Sampler) -> None:
    """Sample every INTERVAL seconds, forever; a failed sample is logged."""
    while True:
        try:
            sampler.sample(database.pools(), database.limits(), database.home.readers.states())
        except Exception:
            log.exception("a metrics sample failed")
        await asyncio.sleep(INTERVAL)
