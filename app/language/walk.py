"""Everything that stands in an expression."""

from __future__ import annotations

from collections.abc import Iterator

from app.language.tree import Call, Comparison, Count, Expression, IsNull, Junction, Membership, Not, Quantifier


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and everything in it."""
    yield expression
    match expression:
        case Call(arguments=parts) | Junction(operands=parts):
            pass
        case Comparison(left=left, right=right):
            parts = (left, right)
        case Not(operand=part) | IsNull(operand=part) | Membership(operand=part):
            parts = (part,)
        case Quantifier(rows=rows, condition=condition):
            parts = (rows.origin, condition) if condition else (rows.origin,)
        case Count(rows=rows):
            parts = (rows.origin,)
        case _:
            parts = ()
    for part in parts:
        yield from walk(part)
