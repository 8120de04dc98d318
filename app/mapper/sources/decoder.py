"""Decodes text whose encoding may be unknown."""

from __future__ import annotations

import codecs

from app.errors import ServiceError
from app.mapper.language.problems import source_error
from app.mapper.sources.encodings import find_encoding

# The usual code page of files that are not UTF-8, by language; windows-1252 for all others.
CODE_PAGES = {
    **dict.fromkeys(("be", "bg", "kk", "mk", "ru", "sr", "uk"), "windows-1251"),
    **dict.fromkeys(("bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq"), "windows-1250"),
    **dict.fromkeys(("et", "lt", "lv"), "windows-1257"),
    **{"el": "windows-1253", "tr": "windows-1254", "he": "windows-1255", "ar": "windows-1256", "fa": "windows-1256"},
    **{"vi": "windows-1258", "th": "cp874", "ja": "cp932", "ko": "cp949", "zh": "gb18030"},
}
BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def require_encoding(charset: str) -> str:
    """Return Python's name of a charset.  Raises unsupported_media_type."""
    try:
        return find_encoding(charset)
    except (LookupError, ValueError):
        raise ServiceError("unsupported_media_type", f"expected a known charset such as utf-8, got {charset}") from None


class TextDecoder:
    """Decodes bytes.  A byte order mark decides, then the given encoding; else UTF-8 or the code page of the mapper's language."""

    def __init__(self, encoding: str | None, language: str | None) -> None:
        self._given = require_encoding(encoding) if encoding else None
        self._fallback = CODE_PAGES.get((language or "").partition("-")[0].lower(), "windows-1252")
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._name = ""
        self._ascii = True  # so far; the code page is not tried after other text
        self._lines = 0

    def decode(self, data: bytes, final: bool = False) -> str:
        """Decode the next bytes.  Raises ServiceError."""
        if self._decoder is None:
            self._start += data
            if len(self._start) < 4 and not final:
                return ""
            data, self._start = self._start, b""
            self._name = self._detect(data)
            self._decoder = codecs.getincrementaldecoder(self._name)()
        state = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            text = self._fall_back(bytes(state) + data, final, error)
        self._ascii = self._ascii and text.isascii()
        self._lines += text.count("\n")
        return text

    def _detect(self, data: bytes) -> str:
        for mark, name in BYTE_ORDER_MARKS:
            if data.startswith(mark):
                return name
        if self._given:
            return self._given
        if data[:1] == b"\0":
            return "utf-16-be"
        return "utf-16-le" if data[1:2] == b"\0" else "utf-8"

    def _fall_back(self, data: bytes, final: bool, error: UnicodeDecodeError) -> str:
        """Decode by the code page, if UTF-8 was only assumed and all text so far is ASCII.  Raises ServiceError."""
        before = error.object[: error.start]
        if self._name == "utf-8" and not self._given and self._ascii and before.isascii():
            self._name = self._fallback
            self._decoder = codecs.getincrementaldecoder(self._name)()
            try:
                return self._decoder.decode(data, final)
            except UnicodeDecodeError as other:
                error = other
                before = error.object[: error.start]
        line = self._lines + before.count(b"\n") + 1
        byte = error.object[error.start]
        mend = "save the file as UTF-8, or name its encoding: charset= of the Content-Type, or @encoding of a mapper"
        message = f"the byte {byte:#04x} is not valid in {self._name}; {mend}"
        raise source_error(message, line=line) from None
