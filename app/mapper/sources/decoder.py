"""Bytes of a text whose encoding nobody has named."""

from __future__ import annotations

import codecs

from app.errors import ServiceError
from app.mapper.language.problems import source_error

# The code page that files of a language have which are not UTF-8; windows-1252 for all others.
CODE_PAGES = {
    **dict.fromkeys(("be", "bg", "kk", "mk", "ru", "sr", "uk"), "windows-1251"),
    **dict.fromkeys(("bs", "cs", "hr", "hu", "pl", "ro", "sk", "sl", "sq"), "windows-1250"),
    **dict.fromkeys(("et", "lt", "lv"), "windows-1257"),
    **{"el": "windows-1253", "tr": "windows-1254", "he": "windows-1255", "ar": "windows-1256", "fa": "windows-1256"},
    **{"vi": "windows-1258", "th": "cp874", "ja": "cp932", "ko": "cp949", "zh": "gb18030"},
}
MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


ODD = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "unicode_escape", "raw_unicode_escape")


def find_encoding(name: str) -> str:
    """An encoding of texts as Python names it.  Raises LookupError."""
    found = codecs.lookup(name)
    if not found._is_text_encoding or found.name in ODD or found.incrementaldecoder is None:
        raise LookupError
    return found.name


def known(charset: str) -> str:
    """A charset as Python names it.  Raises unsupported_media_type."""
    try:
        return find_encoding(charset)
    except (LookupError, ValueError):
        raise ServiceError("unsupported_media_type", f"expected a charset that is known, got {charset}") from None


class Decoder:
    """Bytes to text.  Without a mark or a name it is UTF-8, or else the code page of the mapper's language."""

    def __init__(self, encoding: str | None, language: str | None) -> None:
        self._given = known(encoding) if encoding else None
        self._fallback = CODE_PAGES.get((language or "").partition("-")[0].lower(), "windows-1252")
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._name = ""
        self._ascii = True  # so far
        self._lines = 0

    def decode(self, data: bytes, final: bool = False) -> str:
        """The text of the next bytes.  Raises ServiceError."""
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
            text = self._decode_otherwise(bytes(state) + data, final, error)
        self._ascii = self._ascii and text.isascii()
        self._lines += text.count("\n")
        return text

    def _detect(self, data: bytes) -> str:
        for mark, name in MARKS:
            if data.startswith(mark):
                return name
        if self._given:
            return self._given
        if data[:1] == b"\0":
            return "utf-16-be"
        return "utf-16-le" if data[1:2] == b"\0" else "utf-8"

    def _decode_otherwise(self, data: bytes, final: bool, error: UnicodeDecodeError) -> str:
        """Not UTF-8: if nothing before said that it is, the language's code page."""
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
        raise source_error(f"the byte {byte:#04x} is not {self._name}; @encoding names another encoding", line=line) from None
