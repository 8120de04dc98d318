"""Proves what a reverse mapping writes: the mapper reads it again, and every record must come back with all of its values.

The source's own reader is used, so that nothing between a value and its record can lose it: the expressions, the encoding, the rows
that belong together.  A record may be proved only when the next one is written, and the last ones when the source ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Context, Decimal, DecimalException
from typing import Any

from app.database.catalog import Field
from app.errors import ServiceError
from app.mapper.exported import specials_of
from app.mapper.language.expressions import INVALID
from app.mapper.language.functions import ABSENT
from app.mapper.language.tree import Mapper, Rule
from app.mapper.reverse.base import ReverseWriter
from app.mapper.reverse.plan import Record, ReverseBlock, shortened
from app.mapper.sources.open import open_source
from app.types import named

HARMLESS = ("upsert", "update")  # the operations of a record that leave its row as the record has it
EXACT = Context(prec=200_000)  # digits: more than a number of PostgreSQL has


class Proof:
    """Reads what a writer of one block writes, and compares its records with those that were to be written.

    The mapper's other blocks read it too, as they will in the import.  Their records may name rows, but not change them.
    """

    def __init__(self, mapper: Mapper, reverse: ReverseBlock) -> None:
        self._reverse = reverse
        self._source = open_source(mapper, self._add)
        self._names = {block.name: {rule.name for rule in block.identity[:1]} for block in mapper.blocks}
        self._expected: deque[Record] = deque()
        self._found: list[dict[str, Any]] = []
        self._change: tuple[str, str] | None = None  # of a row of another block: its collection and field

    def read(self, data: bytes, records: Iterable[Record] = ()) -> None:
        """Read bytes, which contain the records.  Raises ServiceError `unwritable`."""
        self._expected.extend(records)
        self._compare(lambda: self._source.feed(data))

    def finish(self) -> None:
        """End the source.  Raises ServiceError `unwritable`, also for a record that did not come back."""
        self._compare(lambda: deque(self._source.finish(), maxlen=0))
        if self._expected:
            missing = self._reverse.describe(self._expected[0])
            raise ServiceError("unwritable", f"{missing}: the record cannot be written: the mapper would not read it back")

    def close(self) -> None:
        """Release the reader's resources."""
        self._source.close()

    def _add(self, collection: str, record: dict[str, Any], _number: int, _child_numbers: Sequence[int]) -> None:
        if collection == self._reverse.block.name:
            self._found.append(record)
        elif self._change is None:
            names = self._names[collection]
            field = next((name for name, value in record.items() if name not in names or _is_invalid(value)), None)
            self._change = None if field is None else (collection, field)

    def _compare(self, read: Callable[[], object]) -> None:
        try:
            read()
        except ServiceError as error:
            name = self._reverse.block.entity.name
            raise ServiceError("unwritable", f"{name}: the mapper cannot read what it would write: {error.message}") from None
        for found in self._found:
            if not self._expected:
                message = f"{self._reverse.block.entity.name}: the mapper would read a record that was not written"
                raise ServiceError("unwritable", message)
            record = self._expected.popleft()
            # a value that cannot be read may stand for the whole record, so it is the reason
            loss = min(_losses(self._reverse, record, found), key=lambda loss: not loss.is_invalid, default=None)
            if loss is not None:
                raise self._reverse.unwritable(record, loss.field, loss.value, loss.reason)
        self._found.clear()
        if self._change is not None:
            collection, field = self._change
            message = f"{self._reverse.block.entity.name}: the mapper would read {collection} from what it writes, and set {field}"
            raise ServiceError("unwritable", message)


class ProvedWriter(ReverseWriter):
    """A writer whose output is proved."""

    def __init__(self, writer: ReverseWriter, proof: Proof) -> None:
        self.media_type, self.extension = writer.media_type, writer.extension
        self.lookups, self.children = writer.lookups, writer.children
        self._writer = writer
        self._proof = proof

    def begin(self) -> bytes:
        data = self._writer.begin()
        self._proof.read(data)
        return data

    def write(self, records: Iterable[Record]) -> bytes:
        records = list(records)
        data = self._writer.write(records)
        self._proof.read(data, records)
        return data

    def end(self) -> bytes:
        data = self._writer.end()
        self._proof.read(data)
        self._proof.finish()
        return data

    def close(self) -> None:
        self._proof.close()


@dataclass(frozen=True, slots=True)
class _Loss:
    """A value that does not come back.  field: its path in the record."""

    field: str
    value: Any
    reason: str
    is_invalid: bool = False


def _losses(reverse: ReverseBlock, record: Record, found: dict[str, Any], within: str = "") -> Iterator[_Loss]:
    """Compare a record with what the mapper read.  within: the path of a child in its record."""
    operation = found.get("@operation")
    if operation not in (None, *HARMLESS):
        change = f"the mapper would read it back as {shortened(operation)}"
        yield _Loss(f"{within}@operation", ABSENT, change, _is_invalid(operation))
    for rule in reverse.block.rules:
        if rule.name == "@operation":
            continue
        expected, got = reverse.value(rule, record), found.get(rule.name, ABSENT)
        reason = _difference(rule, expected, got)
        if reason is not None:
            yield _Loss(within + rule.name, expected, reason, _is_invalid(got))
    for child in reverse.children:
        name = child.block.name
        if name not in record:
            if name in found:
                yield _Loss(within + name, ABSENT, "the mapper would replace them")
            continue
        written: Any = record[name]
        items = [written] if isinstance(written, dict) else list(written or ())
        again = found.get(name)
        if not isinstance(again, list) or len(again) != len(items):
            count = len(again) if isinstance(again, list) else "nothing"
            yield _Loss(within + name, items, f"the mapper would read back {count}, not {len(items)}")
            continue
        for number, (item, other) in enumerate(zip(items, again, strict=True)):
            yield from _losses(child, item, other, f"{within}{name}[{number}].")


def _difference(rule: Rule, expected: Any, got: Any) -> str | None:
    """Why a value does not come back; None if it does, or was not to be written and is not set by the mapper."""
    if expected is ABSENT and got is ABSENT:
        return None
    if _is_invalid(got):
        return str(got[INVALID])
    if rule.kind is not None and isinstance(got, str):
        got = got.removeprefix(rule.kind + ":")
    if str(expected) in specials_of(rule.field):
        return "no import accepts it"
    if expected is not ABSENT and _same(rule.field, expected, got):
        return None
    return "the mapper would leave it out" if got is ABSENT else f"the mapper would read it back as {shortened(got)}"


def _is_invalid(got: Any) -> bool:
    return isinstance(got, dict) and INVALID in got


def _same(field: Field | None, expected: Any, got: Any) -> bool:
    """Whether the value read back equals the record's.  A null may be absent: neither is a value."""
    if not (_is_value(expected) and _is_value(got)):
        return not _is_value(expected) and not _is_value(got)
    if field is not None and named(field.type).is_number:
        return bool(_rounded(field, expected) == _rounded(field, got))
    if field is not None and named(field.type).kind == "timestamp":
        return bool(_moment(expected) == _moment(got))
    if isinstance(expected, bool) or isinstance(got, bool):
        return str(expected).lower() == str(got).lower()
    return str(expected) == str(got)


def _is_value(got: Any) -> bool:
    return got is not None and got is not ABSENT


def _rounded(field: Field, value: Any) -> Any:
    try:
        number = Decimal(str(value))
        return number.quantize(Decimal(1).scaleb(-field.scale), context=EXACT) if field.scale is not None else number
    except DecimalException:
        return value


def _moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(str(value))
    except ValueError:
        return value
