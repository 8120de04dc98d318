"""`when` in a block: elements that do not satisfy it are left out, in every format."""

from __future__ import annotations

from typing import Any

import pytest

from app.database.catalog import Catalog
from app.errors import ServiceError
from app.mapper.language.parse import read
from app.mapper.language.tree import Mapper
from app.mapper.reverse.open import open_writer
from tests.mapper.conftest import Run

SOURCES = {
    "xml": ("//r", "", "<d><r><c>1</c><t>a</t><n>5</n></r><r><c>2</c><t>b</t><n>7</n></r><r><c>3</c><n>x</n></r></d>"),
    "json": ("$.d", "", '{"d": [{"c": 1, "t": "a", "n": 5}, {"c": 2, "t": "b", "n": 7}, {"c": 3, "n": "x"}]}'),
    "csv": ("row", "", "c,t,n\n1,a,5\n2,b,7\n3,,x\n"),
}
CONDITIONS = [
    ("'t' = \"a\"", [1]),
    ("'t' != \"a\"", [2, 3]),
    ("'t' = null", [3]),
    ("'t' = \"b\" or 'c' = \"3\"", [2, 3]),
    ("not ('t' = \"b\") and 'c' != \"1\"", [3]),
    ("upper('t') = \"B\"", [2]),
    ("true", [1, 2, 3]),
    ("false", []),
]


@pytest.mark.parametrize("format", SOURCES)
@pytest.mark.parametrize(("condition", "codes"), CONDITIONS)
def test_only_elements_that_satisfy_it_become_records(run: Run, format: str, condition: str, codes: list[int]) -> None:
    path, settings, source = SOURCES[format]
    found = run(f"type {format} {settings} units = '{path}' {{ when = {condition}  code = 'c' }}", source)["units"]
    assert [int(each["code"]) for each in found] == codes


@pytest.mark.parametrize("format", SOURCES)
def test_a_condition_that_cannot_be_evaluated_is_the_error_of_its_record(run: Run, format: str) -> None:
    path, _, source = SOURCES[format]
    found = run(f"type {format} units = '{path}' {{ when = number('n') > 6  code = 'c' }}", source)["units"]
    assert [each["code"] for each in found[:1]] in (["2"], [2])
    assert found[1]["code"]["@invalid"].startswith("when: ") and len(found) == 2


PAIRS: list[tuple[str, str, str, list[int]]] = [
    # format, condition, members of the objects or cells, the records
    ("json", "'have' < 'max'", '"have": 9, "max": 10|"have": 10, "max": 9|"have": 1.5, "max": 1.50|"have": "9", "max": "10"|"have": 9, "max": "10"', [1]),
    ("json", "'have' = 'max'", '"have": 1, "max": 1.0|"have": 1e2, "max": 100|"have": "1", "max": "1.0"|"have": true, "max": 1|"have": 1, "max": "1"', [1, 2, 5]),
    ("json", "'have' != 'max'", '"have": 1, "max": 1.0|"have": true, "max": "true"|"have": false, "max": true|"have": null, "max": null', [3]),
    ("json", "default('have', 10) > 'max'", '"max": 9|"have": 8, "max": 9|"have": "8", "max": "10"', [1, 3]),
    ("json", "'have' < \"10\"", '"have": 9|"have": 1', [2]),
    ("csv", "'have' < 'max'", "9,10|10,9|1,1.0", [2, 3]),
    ("csv", "number('have') < 'max'", "9,10|10,9|1,1.0", [1]),
]  # fmt: skip


@pytest.mark.parametrize(("format", "condition", "elements", "codes"), PAIRS)
def test_two_paths_are_compared_as_numbers_where_both_values_are(
    run: Run, format: str, condition: str, elements: str, codes: list[int]
) -> None:
    numbered = enumerate(elements.split("|"), 1)
    if format == "json":
        path, source = "$", "[" + ",".join(f'{{"c": {number}, {each}}}' for number, each in numbered) + "]"
    else:
        path, source = "row", "c,have,max\n" + "".join(f"{number},{each}\n" for number, each in numbered)
    found = run(f"type {format} units = '{path}' {{ when = {condition}  code = 'c' }}", source)["units"]
    assert [int(each["code"]) for each in found] == codes


CHILDREN: list[tuple[str, str]] = [
    ("type xml orders = '//o' { code = '@c' items = 'i' { when = @ != \"0\"  quantity = '.' } }".replace("@ !=", "'.' !="),
     "<d><o c='A'><i>1</i><i>0</i><i>2</i></o></d>"),
    ("type json orders = '$' { code = 'c' items = 'i' { when = 'q' != \"0\"  quantity = 'q' } }", '{"c": "A", "i": [{"q": "1"}, {"q": "0"}, {"q": "2"}]}'),
    ("type csv orders = 'row' { code = 'c' items = '.' { when = 'q' != \"0\"  quantity = 'q' } }", "c,q\nA,1\nA,0\nA,2\n"),
]  # fmt: skip


@pytest.mark.parametrize(("mapper", "source"), CHILDREN)
def test_a_nested_block_has_a_condition_of_its_own(run: Run, mapper: str, source: str) -> None:
    (order,) = run(mapper, source)["orders"]
    assert [item["quantity"] for item in order["items"]] == ["1", "2"]


WRONG: list[tuple[str, str]] = [
    ("type csv units = 'row' { when = 'a' + 1  code = 'c' }", "when: expected a condition, got a number"),
    ("type csv units = 'row' { when = true when = false code = 'c' }", "when appears twice"),
    ("type csv @header = 'false' units = 'row' { when = 'x' = null  code = '1' }", "expected a column number from 1"),
    ("type csv units = 'row' { when = true }", "the block units is empty"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_condition_is_an_error_of_the_mapper(catalog: Catalog, text: str, message: str) -> None:
    with pytest.raises(ServiceError) as refused:
        read(text, catalog)
    assert message in refused.value.message


def test_a_block_with_a_condition_cannot_be_run_in_reverse(catalog: Catalog) -> None:
    mapper: Any = read("type csv orders = 'row' { code = 'c' items = '.' { when = 'q' != \"0\" quantity = 'q' } }", catalog)
    assert isinstance(mapper, Mapper)
    with pytest.raises(ServiceError) as refused:
        open_writer(mapper, "orders")
    assert "when" in refused.value.message
