"""Random well-typed expressions: PostgreSQL and the oracle in Python give the same rows."""

from __future__ import annotations

from functools import cmp_to_key

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from tests.query import oracle, samples
from tests.query.conftest import Judged
from tests.query.maker import BOUNDED, ORDERED, Maker
from tests.query.oracle import Sample, Undecided

pytestmark = pytest.mark.slow


@st.composite
def conditions(draw: st.DrawFn) -> Sample:
    return Maker(draw).make("bool")


@st.composite
def orders(draw: st.DrawFn) -> list[tuple[Sample, bool]]:
    """Sort keys, each with whether it is descending."""
    maker = Maker(draw)
    return [(maker.make(maker.choose(*ORDERED), 2), draw(st.booleans())) for _ in range(draw(st.integers(1, 3)))]


@BOUNDED
@given(conditions())
def test_a_random_condition_matches_the_same_rows(judged: Judged, condition: Sample) -> None:
    try:
        expected = [row.id for row in judged.rows if condition.evaluate({"": row}) is True]
    except Undecided:
        reject()
    assert judged.ids("$filter", condition.text) == expected


@BOUNDED
@given(orders())
def test_a_random_order_is_the_same(judged: Judged, keys: list[tuple[Sample, bool]]) -> None:
    def before(first: samples.Row, second: samples.Row) -> int:
        for left, right, (_, descending) in zip(values[first.id], values[second.id], keys, strict=True):
            order = oracle.compare(left, right) if None not in (left, right) else (left is not None) - (right is not None)
            if order:
                return -order if descending else order
        return first.id - second.id

    try:
        values = {row.id: [key.evaluate({"": row}) for key, _ in keys] for row in judged.rows}
        expected = [row.id for row in sorted(judged.rows, key=cmp_to_key(before))]
    except Undecided:
        reject()
    assert judged.ids("$orderby", ",".join(f"{key.text} desc" if down else key.text for key, down in keys)) == expected
