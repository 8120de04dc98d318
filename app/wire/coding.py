"""Content codings of a request body: gzip and zstd are decoded in pieces of bounded size.

A small compressed body can be a huge document, so a decoder never expands all of its input at once.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from app.errors import ServiceError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PIECE = 1 << 20  # bytes that a decoder returns at most
GZIP = 31  # zlib's window bits for gzip


class ContentDecoder(Protocol):
    """Decodes one compressed stream.

    decode() returns at most PIECE bytes; has_more: decode(b"") returns more of them; eof: the stream has ended, and unused_data
    follows it.
    """

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    @property
    def has_more(self) -> bool: ...

    def decode(self, data: bytes) -> bytes: ...


def decoded(chunks: AsyncIterator[bytes], coding: str) -> AsyncIterator[bytes]:
    """Return the body without its content coding.  Raises unsupported_media_type; iterating raises malformed_document."""
    name = coding.strip().lower()
    if name in ("", "identity"):
        return chunks
    if name not in ("gzip", "x-gzip", "zstd"):
        message = f"expected Content-Encoding gzip, zstd or none, got {coding}"
        raise ServiceError("unsupported_media_type", message, target="Content-Encoding", headers={"Accept-Encoding": "gzip, zstd"})
    return _decoded(chunks, ZstdDecoder if name == "zstd" else GzipDecoder, name)


async def _decoded(chunks: AsyncIterator[bytes], new: Callable[[], ContentDecoder], name: str) -> AsyncIterator[bytes]:
    decoder: ContentDecoder | None = None
    async for data in chunks:
        while data or (decoder is not None and decoder.has_more):
            if decoder is None or decoder.eof:  # a body may consist of several streams
                decoder = new()
            try:
                yield decoder.decode(data)
            except (zlib.error, zstd.ZstdError):
                raise ServiceError("malformed_document", f"the body is not valid {name}") from None
            data = decoder.unused_data if decoder.eof else b""
    if decoder is None or not decoder.eof:
        raise ServiceError("malformed_document", f"the {name} body is cut off")


class GzipDecoder:
    """RFC 1952."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=GZIP)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def has_more(self) -> bool:
        return bool(self._stream.unconsumed_tail)

    def decode(self, data: bytes) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, PIECE)


class ZstdDecoder:
    """RFC 8878, with windows of up to 8 MB, which the RFC recommends that every decoder supports."""

    def __init__(self) -> None:
        self._stream = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: 23})

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    @property
    def has_more(self) -> bool:
        return not self._stream.eof and not self._stream.needs_input

    def decode(self, data: bytes) -> bytes:
        return self._stream.decompress(data, PIECE)
