"""$filter, $orderby and keys in PostgreSQL: the rows that they match."""

from __future__ import annotations

import json

import psycopg
import pytest

from app.query.check.options import parse_query
from app.query.sql import statements as sql_statements
from app.query.sql.rows import ODATA, Style
from tests.query.conftest import Company

# Texts that PostgreSQL can cast and OData does not allow.
NUMERALS = ("0x1F", "1_000", " 12 ", "12\n", "NaN", "1.", "")
DAYS = ("now", "today", "tomorrow", "infinity", "epoch", "1/2/2026", "Jan 5 2026", "20260105", "2026-1-5")
UNREAD = {
    **dict.fromkeys(("Edm.Int16", "Edm.Int32", "Edm.Int64"), (*NUMERALS, "1.0")),
    **dict.fromkeys(("Edm.Decimal", "Edm.Double"), (*NUMERALS, "Infinity", ".5")),
    "Edm.Boolean": ("t", "yes", "1", "TRUE"),
    "Edm.Date": (*DAYS, "2026-02-30"),
    "Edm.TimeOfDay": ("now", "allballs", "081530", "08:15 PM", "08:15:30Z", "25:00", "24:01", "23:59:60"),
    "Edm.DateTimeOffset": (
        *(*DAYS, "2026-01-01", "2026-01-01 00:00 PST", "2026-01-01T00:00", "2026-01-01T00:00 PST", "2026-01-01T24:00:00Z"),
        *("9999-12-31T24:00:00Z", "9999-12-31T23:00:00-05:00", "0001-01-01T00:00:00+05:00", "2026-01-01T00:00:60Z"),
    ),
    "Edm.Duration": ("1 day", "P-1", "--P1D", "P", "-", "-P", "PT", "P1DT", "P1M", "-P1Y", "P2147483648D", "-P-2147483648D"),
    "Edm.Guid": ("0123456789abcdef0123456789abcdef", "{01234567-89ab-cdef-0123-456789abcdef}"),
}
READ = [
    ("Edm.Int64", "-12", "-12"),
    ("Edm.Int32", "+7", "7"),
    ("Edm.Decimal", "-1.5e2", "-150"),
    ("Edm.Boolean", "true", "true"),
    ("Edm.Date", "2026-01-05", "2026-01-05"),
    ("Edm.TimeOfDay", "08:15:30.5", "08:15:30.5"),
    ("Edm.TimeOfDay", "08:15:30.1234567", "08:15:30.123456"),
    ("Edm.TimeOfDay", "24:00", "24:00"),
    ("Edm.TimeOfDay", "24:00", "23:59:59.999999"),
    ("Edm.TimeOfDay", "23:59:59.9999999", "24:00:00.0"),
    ("Edm.DateTimeOffset", "2026-01-05T02:00:00+02:00", "2026-01-05T00:00:00Z"),
    ("Edm.DateTimeOffset", "9999-12-31T23:59:59.9999999Z", "9999-12-31T23:59:59.9999999Z"),
    *(
        ("Edm.Duration", text, f"duration'{text}'")
        for text in ("P1D", "+P1D", "-P1D", "P-1D", "-PT1H", "-P1DT-2H+3M0.25S", "-P2147483648D", "-P1W", "P1Y-12M5D", "PT0.1S")
    ),
    ("Edm.Guid", "01234567-89AB-CDEF-0123-456789abcdef", "01234567-89ab-cdef-0123-456789abcdef"),
]

ANSWERS = [
    # null: a value for eq and ne; every other comparison with it is false
    ("price eq null", "D"),
    ("price ne 12.5", "B C D E"),
    ("price gt 0", "A E"),
    ("not (price gt 0)", "B C D"),
    ("price in (0,null)", "B D"),
    ("null in (1,null)", "A B C D E"),
    ("not (null in ('x'))", "A B C D E"),
    ("not (price in (0,null))", "A C E"),
    ("not contains(description,'heavy')", "C D E"),
    ("contains(description,'heavy') eq null", "B"),
    ("price eq price", "A B C D E"),
    ("not (null eq null)", ""),
    ("null", ""),
    ("not null", ""),
    ("null or active", "A C D"),
    ("not active", "B E"),
    ("active eq false", "B E"),
    ("category eq null", "D"),
    ("category ne null", "A B C E"),
    ("category/name eq null", "D"),
    ("category/name ne 'Hammers'", "C D E"),
    ("category/parent/code eq 'T'", "A B C"),
    ("category/parent eq null", "D E"),
    # text, by code point
    ("description eq 'it''s heavy'", "A"),
    ("name gt 'Z'", "B E"),
    ("contains(name,'%')", "C"),
    ("contains(name,'_\\')", "C"),
    ("contains(name,'')", "A B C D E"),
    ("startswith(name,'Ham')", "A"),
    ("endswith(name,'mmer')", "A"),
    ("endswith(name,'𝒳y')", "E"),
    ("tolower(name) eq 'hammer'", "A"),
    ("contains(tolower(name),'ä')", "C"),
    ("contains(toupper(name),'ÄPFEL')", "C"),
    ("length(name) eq 5", "D E"),
    ("indexof(name,'mm') eq 2", "A B"),
    ("indexof(name,'q') eq -1", "A B C D E"),
    ("substring(name,1) eq 'rill'", "D"),
    ("substring(name,1,2) eq 'am'", "A B"),
    ("substring(name,99) eq ''", "A B C D E"),
    ("substring(name,-5) eq name", "A B C D E"),
    ("substring(name,0,-1) eq ''", "A B C D E"),
    ("substring(name,9999999999999999999) eq ''", "A B C D E"),
    ("substring(name,id,9999999999999999999) eq 'l'", "D"),
    ("trim(name) eq 'Äpfel %_\\'", "C"),
    ("concat(code,concat('-',name)) eq 'D-Drill'", "D"),
    ("concat(name,description) eq null", "B"),
    # numbers
    ("price add 0.5 eq 13", "A"),
    ("(price add 1) mul 2 eq 2", "B"),
    ("price add 1 mul 2 eq 2", "B"),
    ("id div 2 eq 2", "D E"),
    ("id mod 2 eq 0", "B D"),
    ("price div 2 eq 6.25", "A"),
    ("5.0 div 2.0 eq 2.5 and 7.0 div 2 eq 3.5 and -(7.0) div 2 eq -3.5", "A B C D E"),
    ("1E1 div 4 eq 2.5 and 10 div 4 eq 2 and 10 div 4e0 eq 2.5", "A B C D E"),
    ("id div 2.0 eq 1.5", "C"),
    ("id div 2 eq 1", "B C"),
    ("id in (2.0) or id eq 1.0", "A B"),
    ("10 div price gt 0", "A E"),
    ("10 div price eq null", "B D"),
    ("-price gt 7", "C"),
    ("round(price) eq -8", "C"),
    ("round(price) eq 13", "A"),
    ("floor(price) eq 12 or ceiling(price) eq -7", "A C"),
    ("id eq 99999999999999999999999", ""),
    ("id lt 99999999999999999999999 and id gt -99999999999999999999999", "A B C D E"),
    ("id add 9223372036854775807 gt 9223372036854775807", "A B C D E"),
    ("id mul 9223372036854775807 mul 9223372036854775807 gt 0", "A B C D E"),
    ("id in (1,2.0,2.5,99999999999999999999)", "A B"),
    # impossible casts are null
    ("cast(description,Edm.Int64) eq 42", "D"),
    ("cast(description,Edm.Int64) eq null", "A B C E"),
    ("cast(barcode,Edm.Decimal) eq 4001", "A"),
    ("cast(description,Edm.Decimal) mul 2 eq 84", "D"),
    ("cast('x',Edm.Int64) eq null", "A B C D E"),
    ("cast(price,Edm.Int16) eq 12", "A"),
    ("cast(price,Edm.Int16) eq null", "D E"),
    ("cast(active,Edm.String) eq 'false'", "B E"),
    ("cast(id,Edm.String) eq '3'", "C"),
    ("cast(code,Edm.Date) eq null", "A B C D E"),
    ("length(cast(updatedAt,Edm.String)) eq 27", "A B C D E"),
    *((f"cast('{text}',{type}) eq null", "A B C D E") for type, texts in UNREAD.items() for text in texts),
    *((f"cast('{text}',{type}) eq {value}", "A B C D E") for type, text, value in READ),
    # lambdas: of no rows any is false and all is true; null is not true
    ("variants/any()", "A D"),
    ("not variants/any()", "B C E"),
    ("variants/any(v: v/price gt 0)", "A D"),
    ("variants/any(v: v/price gt 1)", "D"),
    ("variants/any(v: v/price eq null)", "A"),
    ("variants/all(v: v/price gt 0)", "B C D E"),
    ("variants/all(v: v/price ne 1)", "B C D E"),
    ("not variants/all(v: v/price gt 0)", "A"),
    ("variants/any(v: not (v/price gt 0))", "A"),
    ("variants/any(v: null)", ""),
    ("variants/all(v: null)", "B C E"),
    ("variants/any(v: v/price in (3,4)) eq true", "D"),
    ("variants/any(v: startswith(v/code,code))", "A D"),
    ("variants/any(v: v/product/category/name eq 'Hammers')", "A"),
    ("variants/any(v: v/product/code eq 'D' and v/product/category eq null)", "D"),
    ("variants/any(v: category/name eq 'Hammers' and v/price eq 1)", "A"),
    ("variants/any(code: code/code eq 'D-1')", "D"),
    ("variants/any(v: v/price gt 2) or variants/any(v: v/price lt 2)", "A D"),
    ("category/products/any(p: p/id ne id)", "A B"),
    ("category/products/any(p: p/price gt price)", "B"),
    ("category/products/all(p: p/category/code eq 'H')", "A B D"),
    ("category/products/any(p: p/variants/any(v: v/price eq 1 and p/code eq 'A'))", "A B"),
    ("category/products/any(p: p/variants/any(v: v/product/id ne id))", "B"),
    ("category/parent/children/any(c: c/products/all(p: p/price lt 0) and c/parent/children/any(d: d/id ne c/id))", "A B C"),
    ("category/children/any(a: category/children/any(b: a/code gt b/code))", "E"),
    # counts
    ("variants/$count eq 2", "A"),
    ("variants/$count eq 0", "B C E"),
    ("variants/$count mul 2 gt 2 or variants/$count add id eq 3", "A C"),
    ("category/products/$count eq 0", "D"),
    ("category/products/any(p: p/variants/$count eq 2)", "A B"),
    ("variants/$count in (1,2)", "A D"),
    ("cast(variants/$count,Edm.String) eq '2'", "A"),
    # time
    ("updatedAt gt 2000-01-01", "A B C D E"),
    ("updatedAt lt 9999-12-31T23:59:59-14:00 and updatedAt gt 0001-01-01T00:00:00+14:00", "A B C D E"),
    ("updatedAt le now()", "A B C D E"),
    ("startOfDay(updatedAt) le updatedAt and endOfDay(updatedAt) gt updatedAt", "A B C D E"),
    ("startOfHour(updatedAt) gt startOfYear(updatedAt) or startOfYear(updatedAt) eq startOfMonth(updatedAt)", "A B C D E"),
    ("date(updatedAt) eq date(startOfDay(updatedAt)) and time(startOfDay(updatedAt)) eq 00:00:00", "A B C D E"),
]

ORDERS = [
    ("year(orderDate) eq 2024 and month(orderDate) eq 2 and day(orderDate) eq 29", "O1"),
    ("quarter(orderDate) eq 4", "O3"),
    ("week(orderDate) eq 1", "O2 O3"),
    ("dayofweek(orderDate) eq 7", "O2"),
    ("endOfMonth(orderDate) eq orderDate", "O1 O3"),
    ("startOfYear(orderDate) eq 2024-01-01", "O1"),
    ("endOfYear(orderDate) eq 1969-12-31", "O3"),
    ("orderDate eq 2026-01-04T00:00:00Z", "O2"),
    ("orderDate lt 2026-01-04T00:00:01Z", "O1 O2 O3"),
    ("orderDate in (2024-02-29,2026-01-04T00:00:00Z)", "O1 O2"),
    ("orderDate lt updatedAt", "O1 O2 O3"),
    ("cast(orderDate,Edm.DateTimeOffset) eq 2024-02-29T00:00:00Z", "O1"),
]


@pytest.mark.parametrize(("filter", "codes"), ANSWERS, ids=[answer[0] for answer in ANSWERS])
def test_products_that_match(filter: str, codes: str, acme: Company) -> None:
    assert acme.codes(filter) == codes


@pytest.mark.parametrize(("filter", "codes"), ORDERS, ids=[answer[0] for answer in ORDERS])
def test_orders_that_match(filter: str, codes: str, acme: Company) -> None:
    assert acme.codes(filter, "orders") == codes


def planning(acme: Company, filter: str, **options: str) -> int:
    """Kilobytes that PostgreSQL takes to plan a query: like the time, they double where it plans something twice."""
    statement = sql_statements.rows(acme.query("products", filter=filter, select="code", **options), "acme")
    explain = b"explain (memory, format json) " + statement.text
    [(plan,)] = psycopg.RawCursor(acme.connection).execute(explain, statement.values).fetchall()
    return int(plan[0]["Planning"]["Memory Used"])


def nested(lambdas: int) -> str:
    into = "".join(f"v{n}/category/products/any(v{n + 1}: " for n in range(lambdas - 1))
    return f"category/products/any(v0: {into}v{lambdas - 1}/price gt 0{')' * lambdas}"


def test_each_further_nested_lambda_is_planned_once(acme: Company) -> None:
    """Without a fence each doubles what PostgreSQL does to plan it."""
    few, more, most = (planning(acme, nested(lambdas)) for lambdas in (3, 6, 12))
    assert most - more < 3 * (more - few), (few, more, most)
    assert acme.codes(nested(99)) == "A B E"
    path = "variants/any(v: v/product/category/parent/code eq 'T')"
    few, more, most = (planning(acme, " and ".join([path] * paths)) for paths in (3, 6, 12))
    assert most - more < 3 * (more - few), (few, more, most)
    assert acme.codes(" and ".join([path] * 99)) == "A"


def test_each_further_step_of_a_path_is_planned_once(acme: Company) -> None:
    def path(parents: int) -> str:
        return "category" + "/parent" * parents + "/name"

    few, more, most = (planning(acme, f"{path(parents)} eq null", orderby=path(parents)) for parents in (4, 9, 19))
    assert most - more < 6 * (more - few), (few, more, most)  # each joins all rows of those before
    assert acme.codes(f"{path(19)} eq null", orderby=path(19)) == "A B C D E"


@pytest.mark.parametrize(
    ("orderby", "codes"),
    [
        ("price", "D C B A E"),
        ("price desc", "E A B C D"),
        ("category/name,code desc", "D B A E C"),
        ("category/name desc", "C E A B D"),
        ("active,id desc", "E B D C A"),
        ("length(name) desc,code", "B C A D E"),
        ("name", "C D A B E"),
        ("1 add 1", "A B C D E"),
        ("price gt 0", "B C D A E"),
        ("variants/$count desc,code desc", "A D E C B"),
        ("variants/any(v: v/price eq null) desc,code", "A B C D E"),
    ],
)
def test_rows_are_ordered_by(orderby: str, codes: str, acme: Company) -> None:
    assert acme.codes("true", orderby=orderby) == codes


def test_pages_do_not_overlap(acme: Company) -> None:
    pages = [acme.codes("true", orderby="active", top="2", skip=str(skip)) for skip in (0, 2, 4, 6)]
    assert pages == ["B E", "A C", "D", ""]
    assert acme.codes("true", top="0") == ""
    assert acme.codes("true", top="9" * 5000) == "A B C D E"


@pytest.mark.parametrize(("key", "code"), [("1", "A"), ("id=3", "C"), ("code='B'", "B"), ("barcode='4004'", "D"), ("99", None)])
def test_a_key_finds_its_row(key: str, code: str | None, acme: Company) -> None:
    query = parse_query(acme.catalog, acme.catalog["products"], [("$select", "code")], key=key)
    ((body, count, position, *_),) = acme.run(sql_statements.page(query, "acme"))
    assert (body, count) == (f'{{"code":"{code}"}}' if code else None, None)
    assert int(position.rpartition(".")[2]) > 0


def test_a_row_is_written_exactly(acme: Company) -> None:
    fields = "id,name,price,active,categoryId,description"
    query = acme.query("products", filter="id eq 5 or id eq 3", select=fields)
    plain, strings = (
        [json.loads(row) for (row,) in acme.run(sql_statements.rows(query, "acme", style))]
        for style in (ODATA, Style(numbers_as_strings=True))
    )
    assert [list(row) for row in plain] == [fields.split(",")] * 2
    assert plain[0]["name"] == " Äpfel %_\\ "
    ((text,),) = acme.run(sql_statements.rows(acme.query("products", orderby="id desc", top="1", select="price,id"), "acme"))
    assert text == '{"price":999999999999999.9999,"id":5}'
    assert (strings[1]["price"], strings[1]["id"], strings[1]["categoryId"]) == ("999999999999999.9999", "5", "1")


def test_times_have_six_digits_and_a_z(acme: Company) -> None:
    ((row,),) = acme.run(sql_statements.rows(acme.query("orders", filter="id eq 1", select="orderDate,updatedAt"), "acme"))
    written = json.loads(row)
    ((time,),) = acme.connection.execute('select "updatedAt" from api.orders where id = 1').fetchall()
    assert written == {"orderDate": "2024-02-29", "updatedAt": f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"}


def test_a_page_has_the_total_and_the_position(acme: Company) -> None:
    query = acme.query("products", filter="active", top="1", count="true", orderby="category/name")
    ((body, count, position, *_),) = acme.run(sql_statements.page(query, "acme"))
    assert (json.loads(body)["code"], count) == ("D", 3)
    assert query.entities == ("products", "categories")
    assert acme.run(sql_statements.position(query, "acme")) == [(position,)]


def test_queries_that_use_now_are_volatile(acme: Company) -> None:
    assert acme.query("products", filter="updatedAt lt now()").volatile
    assert acme.query("products", orderby="updatedAt gt now()").volatile
    assert not acme.query("products", filter="name eq 'now()'").volatile


def test_rows_of_another_company_are_not_read(acme: Company) -> None:
    assert acme.run(sql_statements.rows(acme.query("products"), "other")) == []


def test_queries_of_one_shape_share_one_text_and_have_their_own_values(acme: Company) -> None:
    texts = set()
    for filter, codes in (("price eq 12.5 and code in ('A')", "A"), ("price eq 0.5 and code in ('A','B')", "")):
        query = acme.query("products", filter=filter, select="code")
        statement = sql_statements.rows(query, "acme")
        texts.add(statement.text)
        assert " ".join(json.loads(row)["code"] for (row,) in acme.run(statement)) == codes
    assert len(texts) == 1
