"""The formats of exports, and imports of files that an export wrote."""

from __future__ import annotations

from typing import Any

from app.formats import CUSTOM, FORMATS, JSON, begun_by
from app.mapper.document import SourceConverter
from app.mapper.exported import exported_mapper
from tests.feed.conftest import Feed

UNMAPPED = tuple(each.name for each in FORMATS.values() if each is not CUSTOM)  # which need no mapper
UNREAD = tuple(name for name in UNMAPPED if name != JSON.name and not FORMATS[name].read_as)  # which no import reads back


def send(feed: Feed, entity: str, body: bytes, chunk: int = 1 << 20, *, dry_run: bool = False) -> dict[str, Any]:
    """Import a file as `?entity=` does; return the report."""
    converter = SourceConverter(exported_mapper(feed.catalog, entity, begun_by(body, None)))
    importing = feed.begin(converter=converter, dry_run=dry_run)
    try:
        for at in range(0, len(body), chunk):
            importing.receive(body[at : at + chunk])
        return importing.run()
    except BaseException as error:
        importing.fail(error)
        raise
