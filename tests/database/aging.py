"""A log with a past: changes that have just been made are moved into earlier months, as if they had been made then."""

from __future__ import annotations

import time

from tests.conftest import Operator

MONTHS = """
    delete from bds.change_months;
    insert into bds.change_months (company_id, month, first_id)
    select company_id, date_trunc('month', created_at, 'UTC'), min(id) from bds.change_log group by 1, 2;
    update bds.clocks c set month = (select max(m.month) from bds.change_months m where m.company_id = c.company_id);
"""

EXPIRED = """
    select m.company_id, m.month
    from bds.change_months m
    join bds.companies c on c.id = m.company_id
    join bds_change_log.partitions() p on p.name = bds_change_log.partition_of(m.month)
    where m.month + interval '1 month' <= now() - bds_change_log.retention_of(c.log_retention)
"""


def age(operator: Operator, month: str, condition: str = "true") -> None:
    """Move changes for which the condition is true into a month such as 2020_01, which gets a partition."""
    first = month.replace("_", "-") + "-01Z"
    operator.connection.execute(f"select bds_change_log.make_month('{first}')".encode())
    operator.connection.execute(
        f"update bds.change_log set created_at = timestamptz '{first}' + interval '14 days' where {condition}".encode()
    )
    operator.connection.execute(MONTHS.encode())


def maintain(operator: Operator, options: str = "") -> None:
    """Call bds.maintain until it has done its work.

    A call returns nothing while a service that runs does the same, and keeps an expired month for the next call while a session
    reads the log.
    """
    while not operator.rows(f"select step from bds.maintain({options})") or operator.rows(EXPIRED):
        time.sleep(0.01)
