"""Failed batches among the errors of an import, for people: a batch is a line above its errors, and no error itself.

The report of the API has one error `batch_failed` for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CODE = "batch_failed"
BATCH = re.compile(r"the batch (.+?)\[(\d+)\.\.(\d+)\] ")
RECORD = re.compile(r"(.+?)\[(\d+)\]")

Error = Mapping[str, Any]


def under_batches(errors: Iterable[Error], batches: Iterable[Error]) -> Iterator[Error]:
    """Yield the errors in their order, each batch before the first of its records; first what has no records."""
    left = [each for each in batches if BATCH.match(each["message"])]
    yield from (each for each in batches if not BATCH.match(each["message"]))
    for error in errors:
        found = RECORD.match(error["path"])
        if found and (batch := _batch_of(left, found[1], int(found[2]))) is not None:
            left.remove(batch)
            yield batch
        yield error


def _batch_of(batches: Iterable[Error], collection: str, number: int) -> Error | None:
    for each in batches:
        batch = BATCH.match(each["message"])
        if batch and batch[1] == collection and int(batch[2]) <= number <= int(batch[3]):
            return each
    return None
