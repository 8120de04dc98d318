"""Failed batches among the errors of an import, for people: a batch is a line above its errors, and no error itself.

The report of the API has one error `batch_failed` for each, whose path is that of the batch's first record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

CODE = "batch_failed"
PATH = re.compile(r"(.+?)\[(\d+)\]")  # the record at the start of a path

Error = Mapping[str, Any]


class Place(NamedTuple):
    """A top-level record of a document."""

    collection: str
    number: int


def under_batches(errors: Iterable[Error], batches: Iterable[Error]) -> Iterator[Error]:
    """Yield the errors in their order, each batch before the first of its records; first what has no records."""
    placed: dict[Place, Error] = {}
    for batch in batches:
        if (place := _place_of(batch)) is None:
            yield batch
        else:
            placed[place] = batch
    left = dict(placed)
    for error in errors:
        if (first := _begin_of(placed, _place_of(error))) in left:
            yield left.pop(first)
        yield error


def _begin_of(batches: Iterable[Place], record: Place | None) -> Place | None:
    """The first record of the batch in which a record is: batches follow one another, and an error fails its batch."""
    return max((each for each in batches if record and each.collection == record.collection and each <= record), default=None)


def _place_of(error: Error) -> Place | None:
    found = PATH.match(error["path"])
    return Place(found[1], int(found[2])) if found else None
