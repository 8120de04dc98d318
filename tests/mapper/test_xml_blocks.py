"""Paths of blocks in XML: predicates over attributes and position, wildcards and unions, compared with lxml's own XPath."""

from __future__ import annotations

import random
from typing import Any

import pytest
from lxml import etree

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.language.parse import read
from app.mapper.reverse.open import open_writer
from tests.chance import seeds
from tests.mapper.conftest import Run

pytestmark = pytest.mark.slow

TYPED = """<d k='1'><g kind='in'><p type="a" c="1"/><p type='b' c="2"/><p c="3"/></g><g kind='out'><p type='a' c="4"><p type="b" c="5"/></p></g></d>"""
PATHS = [
    ("//p", "12354"),
    ('//p[@type="a"]', "14"),
    ("//p[ @type = ''a'' ]", "14"),
    ("//p[@type]", "1254"),
    ('//p[@type!="a"]', "25"),
    ('//p[@type][@c="2"]', "2"),
    ('/d/g[@kind="in"]/p', "123"),
    ('/d[@k="1"]/g[@kind="out"]/p[@type="a"]', "4"),
    ('/d[@k="2"]/g/p', ""),
    ('//g[@kind="in"]/p[@type="b"]', "2"),
    ("//p[1]", "154"),
    ("//p[2]", "2"),
    ("//g[2]/p", "4"),
    ("/d[1]/g[1]/p[3]", "3"),
    ("/d[2]/g/p", ""),
    ("//p[position() > 1]", "23"),
    ("//p[ position() != 2 ]", "1354"),
    ('//p[@type="b"][1]', "25"),
    ('//p[1][@type="b"]', "5"),
    ("//g/p[2] | //g/p[3]", "23"),
    ("//p[@c] | //p[@type]|/d/g/p", "12354"),
    ("/d/*/p", "1234"),
    ("/*/*/p[1]", "14"),
    ("d/g/p", "1234"),
    ("//*[@c]", "12354"),
    ("//p/*", "5"),
]


@pytest.mark.parametrize("chunk", [1, 1 << 20])
@pytest.mark.parametrize(("path", "codes"), PATHS)
def test_steps_may_test_attributes_and_positions(run: Run, path: str, codes: str, chunk: int) -> None:
    found = run(f"type xml units = '{path}' {{ code = '@c' }}", TYPED, chunk=chunk)["units"]
    assert "".join(each["code"] for each in found) == codes


def random_tree(random: random.Random, depth: int, size: int) -> Any:
    element = etree.Element(random.choice("abc"))
    if random.random() < 0.5:
        element.set("t", random.choice("xy"))
    element.text = "." * random.choice((0, 0, 10, size))
    for _ in range(random.randrange(6) if depth else 0):
        element.append(random_tree(random, depth - 1, size))
    return element


def random_path(random: random.Random) -> str:
    sign, steps = random.choice(("//", "//", "/")), []
    for number in range(random.randrange(1, 4)):
        tests = random.choices(["", "[1]", "[2]", "[position() >= 2]", "[position()<=3]", "[@t]", '[@t="x"]', '[@t!="x"]'], k=2)
        steps.append(random.choice("abc*" if number or sign == "//" else "a*") + "".join(tests))
    return sign + "/".join(steps)


@pytest.mark.parametrize("seed", seeds(16))
def test_paths_find_what_xpath_finds(run: Run, seed: int) -> None:
    numbers = random.Random(seed)
    size = 0 if seed % 4 else 60_000  # with a large text, elements are dropped between others of the same parent
    root = etree.Element("a")
    root.extend([random_tree(numbers, 4, size) for _ in range(4)])
    for number, element in enumerate(root.iter()):
        element.set("n", str(number))
    source = etree.tostring(root)
    for _ in range(10):
        path = " | ".join(random_path(numbers) for _ in range(numbers.choice((1, 1, 2, 3))))
        expected = {each.get("n") for each in root.xpath(path)}
        in_order = [element.get("n") for _, element in etree.iterwalk(root, events=("end",)) if element.get("n") in expected]
        mapper = f"type xml units = '{path}' {{ code = '@n' }}"
        found = run(mapper, source.decode(), chunk=numbers.choice((1_000, 100_000))).get("units", [])
        assert [each["code"] for each in found] == in_order, path


def test_a_prefix_may_stand_before_a_wildcard(run: Run) -> None:
    source = '<d xmlns:x="urn:x" xmlns:y="urn:y"><x:a c="1"/><y:a c="2"/><x:b c="3"/><a c="4"/></d>'
    declared = 'type xml @namespace[q] = "urn:x" '
    assert [u["code"] for u in run("type xml units = '/d/x:*' { code = '@c' }", source)["units"]] == ["1", "3"]
    assert [u["code"] for u in run(declared + "units = '/d/q:*[2]' { code = '@c' }", source)["units"]] == ["3"]


def test_an_element_is_in_each_block_that_finds_it(run: Run) -> None:
    found = run(
        "type xml units = '//p[1] | //p[@t]' { code = '@c' } customers = '//*' { code = '@c' }",
        '<d c="0"><p t="1" c="1"/><p c="2"/></d>',
    )
    assert [each["code"] for each in found["units"]] == ["1"]
    assert [each["code"] for each in found["customers"]] == ["1", "2", "0"]


REFUSED = [
    ("//p[name]", 4, 'expected a test of an attribute, [@type="new"], or of the position, [1] or [position() > 1], got [name]'),
    ("//p[@a=1]", 4, "got [@a=1]; what an element contains is tested with when"),
    ("//p[@a=", 4, "[ is not closed"),
    ("//p[last()]", 4, "last() is not known while the source is streamed"),
    ("//p[position() = last() - 1]", 4, "last() is not known while the source is streamed"),
    ("//p | ", 7, "expected a name, got its end"),
    ("//p//q", 4, "// is possible only at the start"),
    ("//p q", 5, "expected /, |, a predicate or the end of the block's path, got 'q'"),
    ("//p[1", 4, "[ is not closed"),
    ("/", 2, "expected an element path or //name"),
    ("//@a", 3, "expected a name, got '@a'"),
    ("", 0, "expected an element path"),
]


@pytest.mark.parametrize(("path", "at", "message"), REFUSED)
def test_what_a_stream_cannot_tell_is_refused_at_its_place(catalog: Catalog, path: str, at: int, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        read(f"type xml\nunits = '{path}' {{ code = '@c' }}", catalog)
    assert message in refused.value.message
    assert (refused.value.more["line"], refused.value.more["column"]) == (2, 9 + at)


@pytest.mark.parametrize("path", ['/d/u[@t="a"]', "/d/u[1]", "/d/*", "/d/u | /d/v"])
def test_a_path_of_more_than_names_cannot_be_run_in_reverse(catalog: Catalog, path: str) -> None:
    mapper: Any = read(f"type xml units = '{path}' {{ code = 'c' }}", catalog)
    with pytest.raises(ServiceError) as refused:
        open_writer(mapper, "units")
    assert "cannot be run in reverse" in refused.value.message
