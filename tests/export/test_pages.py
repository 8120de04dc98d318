"""HTML and PDF: complete, escaped or drawn in any script, and laid out for printing."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser

import pytest
from fpdf import FPDF
from pypdf import PdfReader

from app.export.layout import LEAST, MARGIN, PAPERS, arrange, render_pdf
from app.export.typeface import UNKNOWN, Typeface, packaged_fonts
from tests.export.conftest import TEXTS, Shop

pytestmark = pytest.mark.slow

COLUMNS = [{"name": "code", "number": False}, {"name": "price", "number": True}]


class Table(HTMLParser):
    """Parses the cells of a page's table."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []
        self._inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._inside = True
        if tag == "br":
            self.rows[-1][-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.rows[-1][-1] += data


def test_html_shows_every_text_and_escapes_it(shop: Shop) -> None:
    table = Table(shop.good("products", "html", orderby="id", select="code,name,price,category").decode())
    assert table.rows[0] == ["code", "name", "price", "category"]
    assert [row[1] for row in table.rows[1:]] == [shown(text) for text in TEXTS]
    assert table.rows[2] == ["P1", "", "0.25", 'a:b, "c" <d>']
    assert "b" not in table.tags


def shown(text: str) -> str:
    return "".join(c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd" for c in text)


def test_printed_html_repeats_its_header_on_each_page(shop: Shop) -> None:
    page = shop.good("products", "html", top=1).decode()
    for rule in ("display: table-header-group", "break-inside: avoid", "counter(page)", "size: A4 landscape", 'lang="en"'):
        assert rule in page
    assert "size: A4;" in shop.good("products", "html", top=1, select="code").decode()
    assert "td:nth-child(1) { white-space: nowrap; }" in shop.good("products", "html", top=1, select="id,code").decode()
    assert "unicode-bidi: plaintext" in page
    assert "td:nth-child(1) { text-align: right; }" in shop.good("products", "html", top=1, select="id,code").decode()
    assert "Things that are sold · demo" in page


def pages(body: bytes) -> list[str]:
    """Return the text of each page, without the control characters that the reader leaves of two-byte glyphs."""
    texts = (page.extract_text() for page in PdfReader(io.BytesIO(body)).pages)
    return ["".join(c for c in text if c == "\n" or c >= " ") for text in texts]


def test_a_pdf_has_its_header_and_number_on_each_page(shop: Shop) -> None:
    found = pages(shop.good("products", "pdf", select="code,price"))
    assert "products" in found[0] and "Things that are sold" in found[0]
    made = pages(render_pdf({"title": "t", "about": "a", "columns": COLUMNS}, [[f"P{n}", "1"] for n in range(200)]))
    assert len(made) > 2
    for number, page in enumerate(made, 1):
        assert "code" in page and "price" in page and f"{number} / {len(made)}" in page
    assert "".join(made).count("P") == 200


def test_the_head_tells_which_rows_these_are(shop: Shop) -> None:
    given = {"filter": "price gt 0.1 and name ne '<x>'", "top": "7", "select": "code"}
    time = datetime.now(UTC)
    page = shop.good("products", "html", **given).decode()
    head = unescape(page.partition("<p>")[2].partition("</p>")[0])
    about, company, made, *restriction = head.split(" · ")
    assert (about, company, restriction) == ("Things that are sold", "demo", [f"filter: {given['filter']}", "at most 7"])
    assert abs((datetime.strptime(made, "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC) - time).total_seconds()) < 120
    (first, *_) = pages(shop.good("products", "pdf", **given))
    assert f"filter: {given['filter']}" in first and "· demo ·" in first
    long = " or ".join(f"code eq 'P{n}'" for n in range(30))
    for page in pages(shop.good("products", "pdf", filter=long, select="code")):
        assert "code eq 'P0' or" in page and "\ncode" in page, "several lines above the table"


@pytest.mark.parametrize(
    ("price", "shown"),
    [
        ("190.2600", "190.26"),
        ("63", "63.00"),
        ("0.1250", "0.125"),
        ("0.0001", "0.0001"),
        ("-5.5", "-5.50"),
        ("1234567.1", "1234567.10"),
    ],
)
def test_a_decimal_has_the_decimals_that_people_expect(shop: Shop, price: str, shown: str) -> None:
    insert = "insert into data.orders (company_id, code, order_date, total) values ('demo', %s, '2026-01-01', %s)"
    shop.service.operator.write("demo", insert, (f"D{price}", price))
    given = {"filter": f"code eq 'D{price}'", "select": "total"}
    assert Table(shop.good("orders", "html", **given).decode()).rows[1:] == [[shown]]
    assert shown in pages(shop.good("orders", "pdf", **given))[0].split("\n")


def test_parents_stand_once_above_their_children() -> None:
    columns = [
        {"name": name, "number": False, "above": name in ("code", "note")} for name in ("code", "note", "quantity", "product")
    ]
    rows = [[f"SO{n}", "", str(item), f"A{item}"] for n in range(30) for item in range(9)] + [["SO-none", "n", "", ""]]
    found = pages(render_pdf({"title": "t", "about": "a", "columns": columns}, rows))
    text = "\n".join(found)
    lines = text.split("\n")
    assert [line for line in lines if line.startswith("code ") and "continued" not in line] == [
        *(f"code SO{n}" for n in range(30)), "code SO-none · note n",
    ]  # fmt: skip
    assert lines.count("3 A3") == 30 and "quantity product" in lines
    assert lines.index("code SO-none · note n") > lines.index("code SO29") and lines[-1] == "code SO-none · note n", (
        "no row below it"
    )
    assert len(found) > 2 and "(continued)" in text
    assert all(page.split("quantity product\n")[1].startswith("code ") for page in found)


def test_an_export_with_children_names_each_parent_once(shop: Shop) -> None:
    (page,) = pages(shop.good("invoices", "pdf", select="code,invoiceDate", expand="items"))
    lines = page.split("\n")
    parents = ["code I1 · invoiceDate 2026-11-20", "code I2 · invoiceDate 2026-11-21"]
    assert [line for line in lines if line.startswith("code ")] == parents
    assert page.count("P0") == 2 and "items." not in page and "=cmd()" in page


def test_a_pdf_contains_every_script(shop: Shop) -> None:
    text = "\n".join(pages(shop.good("products", "pdf", select="name", filter="code ne 'P23'")))
    for word in ("Žluťoučký", "Grüße", "日本語", "😀", "=1+1", "<b>&amp;", "_x000D_"):
        assert word in text


def test_a_pdf_without_rows_is_a_page_with_a_header(shop: Shop) -> None:
    (page,) = pages(shop.good("units", "pdf", filter="false"))
    assert "symbol" in page and "1 / 1" in page


@pytest.mark.parametrize(("columns", "paper", "parts"), [(4, 0, 1), (7, 1, 1), (16, 2, 1), (60, 2, 5)])
def test_wide_tables_get_wider_paper_or_are_cut_into_parts(columns: int, paper: int, parts: int) -> None:
    described = [{"name": f"column{n}", "number": False} for n in range(columns)]
    rows = [["some words to read"] * columns] * 3
    found, made = arrange(Typeface(["column0123456789", *rows[0]]), described, rows)
    assert (found, len(made)) == (PAPERS[paper], parts)
    assert all(sum(column.width for column in part.columns) <= found[0] - 2 * MARGIN + 0.01 for part in made)
    assert sorted({column.index for part in made for column in part.columns}) == list(range(columns))
    assert all(part.columns[0].index == 0 for part in made)


def test_a_long_text_does_not_make_other_columns_too_narrow() -> None:
    rows = [["P1", "word " * 400], ["P2", "short"]]
    face = Typeface(text for row in rows for text in row)
    paper, (part,) = arrange(face, COLUMNS, rows)
    assert part.columns[0].width >= LEAST and sum(column.width for column in part.columns) <= paper[0] - 2 * MARGIN + 0.01


def test_a_row_higher_than_a_page_continues_on_the_next() -> None:
    rows = [["P1", "\n".join(f"line{n}" for n in range(300))], ["P2", "end"]]
    found = pages(render_pdf({"title": "t", "about": "", "columns": COLUMNS}, rows))
    text = "\n".join(found)
    assert len(found) > 3 and all(f"line{n}" in text.split() for n in range(300)) and "end" in found[-1]


def test_lines_break_at_spaces_and_inside_words_that_are_too_long() -> None:
    face = Typeface(["aaa bbb ccc", "x" * 50])
    width = face.width("aaa bbb")
    assert face.wrap("aaa bbb ccc", width + 0.01) == ["aaa bbb", "ccc"]
    pieces = face.wrap("x" * 50, width)
    assert "".join(pieces) == "x" * 50 and all(face.width(piece) <= width for piece in pieces)
    assert face.wrap("", 5) == [""] and face.wrap("a\n\nb", 50) == ["a", "", "b"]


def test_chinese_and_japanese_break_anywhere_but_at_punctuation() -> None:
    text = "ABC これは「長い説明文」です。空白が、ない。"
    face = Typeface([text])
    for size in range(3, 30):
        lines = face.wrap(text, float(size))
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
        assert not any(line[0] in "」。、" or line[-1] in "「" for line in lines)
        assert size < 6 or lines[0].startswith("ABC こ"), "a line is filled"
        assert all(face.width(line) <= size for line in lines)


def test_letters_and_marks_are_composed() -> None:
    assert Typeface(["e\u0301a\u0308"]).drawable("e\u0301a\u0308") == "éä"


def test_a_character_that_no_font_has_is_drawn_as_unknown() -> None:
    odd = "\U000e5000\ue123"
    face = Typeface([f"a{odd}\x07b"], packaged_fonts())  # a font of the machine may have characters for private use
    assert face.drawable(f"a{odd}\x07b") == f"a{UNKNOWN * 3}b"
    pdf = FPDF()
    face.load(pdf)
    pdf.add_page()
    face.size(pdf, 8)
    face.draw(pdf, face.drawable(odd), 10, 10, 50, 4, False)
    assert bytes(pdf.output()).startswith(b"%PDF")
