"""The numbers on the overview: correct, and cheap for a company of any size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from app.web.chart import SPANS, bounds, draw, round_up
from app.web.view import amount, breakable, relative
from tests.auth.client import make_user
from tests.conftest import Operator
from tests.database.aging import maintain
from tests.service.serving import Service
from tests.web.visitor import Visitor, visitor

NOW = datetime(2026, 3, 1, 12, 34, 56, tzinfo=UTC)


def insert(operator: Operator, company: str, rows: int) -> None:
    operator.write(
        company,
        "insert into data.units (company_id, code, name) select %s, 'U' || n || '-' || (select count(*) from data.units), 'unit' from generate_series(1, %s) n",
        (company, rows),
    )


def test_the_overview_counts_rows_and_changes(anna: Visitor, service: Service) -> None:
    insert(service.operator, "second", 1_234)
    service.operator.write("second", "delete from data.units where code like 'U1-%%'")
    page = anna.get("/?company=second")
    assert "1,235 changes in the last 30 days" in page.text
    rows = dict(zip(page.all("//table[.//th='Entity']/tbody/tr/th"), page.all("//table[.//th='Entity']/tbody/tr/td"), strict=True))
    assert rows["units"] == "1,233" and rows["products"] == "0"
    companies = page.all("//table[.//th='Company']/tbody/tr")
    assert companies[0].startswith("demo 0 never") and companies[1].startswith("second 1,235 20")
    assert page.one("//figcaption//tbody/tr[1]/td") == "1,235"
    assert "estimates" not in page.text


def test_problems_are_mentioned_to_users_of_every_company(anna: Visitor, service: Service) -> None:
    make_user(service, "boss@example.com", "demo", "second", "third")
    boss = visitor(service, "boss@example.com")

    def count() -> None:
        service.operator.connection.execute("update bds.problem_counts set counted_at = '-infinity'")
        maintain(service.operator)

    count()
    assert "bds doctor" not in boss.get("/?company=demo").text
    service.operator.connection.execute("alter table data.units disable trigger bds_log_insert")
    try:
        count()
        line = "The service has 1 problem: the command bds doctor lists it."
        assert line in " ".join(boss.get("/?company=demo").one("//main").split())
        assert "bds doctor" not in anna.get("/?company=demo").text
        metrics = service.ask("/metrics").body.decode()
        assert 'bds_problems{kind="disabled trigger"} 1.0' in metrics
    finally:
        service.operator.connection.execute("alter table data.units enable trigger bds_log_insert")
        count()


def test_an_empty_company_suggests_an_import(anna: Visitor) -> None:
    page = anna.get("/?company=demo")
    assert "0 changes in the last 30 days" in page.text
    assert "Import a file" in page.one("//p[@class='empty']")


def test_counts_beyond_the_limit_are_marked_as_estimates(operator: Operator) -> None:
    operator.company("demo")
    insert(operator, "demo", 500)
    operator.connection.execute("analyze data.units")
    counted = {row[0]: row[1:] for row in operator.rows("select * from bds_service.count_rows('demo', 100)")}
    assert counted["units"] == (500, True)
    assert counted["products"] == (0, False)
    assert ("units", 500, False) in operator.rows("select * from bds_service.count_rows('demo', 500)")


def test_changes_between_times_are_counted_exactly(operator: Operator) -> None:
    operator.company("demo")
    operator.company("other")
    for rows in (3, 1, 40, 7):
        insert(operator, "demo", rows)
        insert(operator, "other", 5)
    times = [at for (at,) in operator.rows("select distinct created_at from bds.change_log order by 1")]
    steps = [
        times[0] - timedelta(days=40),
        times[0] - timedelta(days=1),
        *times,
        times[-1] + timedelta(microseconds=1),
        times[-1] + timedelta(days=90),
    ]
    for company in ("demo", "other"):
        counted = operator.rows("select since, changes from bds_service.count_changes(%s, %s)", (company, steps))
        exact = operator.rows(
            "select b.since, (select count(*) from bds.change_log l where l.company_id = %s and l.created_at >= b.since and l.created_at < b.until)"
            " from (select n, (%s::timestamptz[])[n] as since, (%s::timestamptz[])[n + 1] as until from generate_series(1, %s) n) b order by n",
            (company, steps, steps, len(steps) - 1),
        )
        assert counted == exact
        assert sum(count for _, count in counted) == (51 if company == "demo" else 20)


def test_changes_that_are_no_longer_kept_are_not_counted(operator: Operator) -> None:
    operator.company("demo")
    insert(operator, "demo", 10)
    operator.connection.execute("delete from bds.change_log where id <= 4")
    operator.connection.execute("update bds.change_months set first_id = 5")
    assert operator.rows(
        "select changes from bds_service.count_changes('demo', array[now() - interval '1 day', now() + interval '1 day'])"
    ) == [(6,)]


def test_another_company_cannot_be_counted(operator: Operator, database_url: str) -> None:
    operator.company("demo")
    operator.company("other")
    with psycopg.connect(database_url, autocommit=True) as reader:
        reader.execute("set role bds_reader")
        reader.execute("select set_config('bds.company', 'demo', false)")
        reader.execute("select * from bds_service.count_rows('demo')")
        for call in ("bds_service.count_rows('other')", "bds_service.count_changes('other', array[now(), now()])"):
            with pytest.raises(psycopg.Error) as refused:
                reader.execute(f"select * from {call}".encode())
            assert refused.value.sqlstate == "BD001"


def scans(operator: Operator) -> tuple[int, int]:
    """Sequential scans and rows fetched by index so far, of the log and the units."""
    operator.connection.execute("select pg_stat_force_next_flush()")
    (row,) = operator.rows(
        "select sum(seq_scan)::int, sum(idx_tup_fetch)::int from pg_stat_user_tables"
        " where schemaname in ('bds', 'data') and (relname like 'change_log%%' or relname = 'units')"
    )
    return row[0], row[1]


def test_neither_figure_reads_all_of_a_company(operator: Operator) -> None:
    operator.company("first")  # whose rows would be read before those of the other, if a table were read from its beginning
    operator.company("demo")
    insert(operator, "first", 20_000)
    insert(operator, "demo", 20_000)
    operator.connection.execute("analyze")
    steps = bounds(SPANS["month"], datetime.now(UTC))
    before = scans(operator)
    assert sum(count for (count,) in operator.rows("select changes from bds_service.count_changes('demo', %s)", (steps,))) == 20_000
    assert ("units", True) in [
        (name, is_estimate) for name, _, is_estimate in operator.rows("select * from bds_service.count_rows('demo', 1000)")
    ]
    after = scans(operator)
    assert after[0] == before[0], "a table was read as a whole"
    assert after[1] - before[1] < 3_000, "more rows were fetched than a bound and some halving need"


@pytest.mark.parametrize(
    ("span", "first", "last", "count"),
    [
        ("day", datetime(2026, 2, 28, 13, tzinfo=UTC), datetime(2026, 3, 1, 13, tzinfo=UTC), 24),
        ("month", datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC), 30),
        ("year", datetime(2025, 4, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC), 12),
    ],
)
def test_a_chart_ends_with_the_current_step(span: str, first: datetime, last: datetime, count: int) -> None:
    steps = bounds(SPANS[span], NOW)
    assert (steps[0], steps[-1], len(steps)) == (first, last, count + 1)
    assert steps == sorted(set(steps))


@pytest.mark.parametrize(
    ("highest", "top"),
    [(0, 1), (1, 1), (2, 2), (3, 4), (7, 8), (11, 20), (99, 100), (101, 200), (650, 800), (6671, 8000), (10**9 + 1, 2 * 10**9)],
)
def test_a_chart_goes_up_to_a_round_number(highest: int, top: int) -> None:
    assert round_up(highest) == top


def test_a_bar_is_as_high_as_its_count_and_a_single_change_is_visible() -> None:
    steps = bounds(SPANS["year"], NOW)[:-1]
    chart = draw(SPANS["year"], steps, [0] * 9 + [1, 500, 1000])
    assert [bar.height for bar in chart.bars[-4:]] == [0.0, 1.5, 50.0, 100.0]
    assert chart.ticks == (1000, 500, 0)
    assert chart.axis_labels == ("Apr 2025", "Oct 2025", "Mar 2026")


@pytest.mark.parametrize(
    ("ago", "words"),
    [
        (timedelta(seconds=5), "just now"),
        (timedelta(seconds=-5), "in a moment"),
        (timedelta(seconds=61), "1 min ago"),
        (timedelta(hours=3), "3 h ago"),
        (timedelta(days=1), "1 day ago"),
        (timedelta(days=-90), "in 2 months"),
        (timedelta(days=800), "2 years ago"),
    ],
)
def test_times_are_shown_with_their_distance_from_now(ago: timedelta, words: str) -> None:
    assert relative(NOW - ago, NOW) == words


@pytest.mark.parametrize(
    ("text", "html"),
    [("products[0].price", "products[0]<wbr>.price"), ("a b", "a b"), ("<I>", "&lt;<wbr>I&gt;"), ("orderItems", "order<wbr>Items")],
)
def test_names_may_break_between_their_parts(text: str, html: str) -> None:
    assert breakable(text) == html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("7", "7"), ("-123", "-123"), ("1234", "1,234"), ("-1234567.5", "-1,234,567.5"), ("1234.5600", "1,234.56"), ("1e+300", "1e+300"),
        ("9" * 5_001, ",".join(["999"] * 1_667)),
    ],
)  # fmt: skip
def test_digits_are_grouped_in_numbers_of_any_length(text: str, shown: str) -> None:
    assert amount(text) == shown
