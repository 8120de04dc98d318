"""SAP CAP (https://cap.cloud.sap) beside the service: the same questions over OData to the same database.

It is installed from npm once, in the versions of cap_project/package-lock.json, into the environment of the tests; without npm or the
network it is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.place import COMPANY, wait_for_answer
from bench.table import say

PROJECT = Path(__file__).with_name("cap_project")  # whose pool has as many connections as the service's
HOME = Path(sys.prefix) / "cap"
PROGRAM = HOME / "node_modules" / ".bin" / "cds-serve"
ROOT = "/odata/v4/bench/"
# the entities of cap_project/srv/bench.cds; CAP writes names without quotation marks
VIEWS = f"""
    create schema cap;
    create view cap.bench_products as
        select id, code, name, description, barcode, price, active,
            category_id as categoryid, unit_id as unitid, updated_at as updatedat
        from data.products where company_id = '{COMPANY}';
    create view cap.bench_invoices as select id, code from data.invoices where company_id = '{COMPANY}';
    create view cap.bench_invoiceitems as
        select id, description, quantity, price, invoice_id as invoiceid, product_id as productid, updated_at as updatedat
        from data.invoice_items where company_id = '{COMPANY}'
"""


@contextlib.contextmanager
def cap(url: str, port: int) -> Iterator[int | None]:
    """Run CAP for the benchmarks' company at a port; yields its process, None if it cannot be installed."""
    if not _install():
        say("CAP: skipped, for npm cannot install it")
        yield None
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(VIEWS.encode())
    parts = conninfo_to_dict(url)
    given = {"host": parts["host"], "port": parts.get("port"), "user": parts["user"], "database": parts["dbname"], "schema": "cap"}
    settings = {"requires": {"db": {"credentials": given}}}
    environment = {"NODE_ENV": "production", "CDS_CONFIG": json.dumps(settings), "PORT": str(port)}
    process = subprocess.Popen(
        [PROGRAM], cwd=HOME, env=os.environ | environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for_answer(f"http://127.0.0.1:{port}{ROOT}products?$top=1")
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def _install() -> bool:
    """Whether CAP is installed, in the versions of the lock file."""
    lock = "package-lock.json"
    has_changed = not (HOME / lock).exists() or (HOME / lock).read_bytes() != (PROJECT / lock).read_bytes()
    npm = shutil.which("npm")
    if npm and (has_changed or not PROGRAM.exists()):
        shutil.rmtree(HOME, ignore_errors=True)
        shutil.copytree(PROJECT, HOME)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run(command, cwd=HOME, capture_output=True, check=False)
    return PROGRAM.exists()
