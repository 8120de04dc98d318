"""Names of text encodings: the labels of the WHATWG Encoding Standard, and what else Python knows."""

from __future__ import annotations

import codecs

# Python's name -> the labels that Python does not know, or reads in another way: for the web latin1 is windows-1252
_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "utf-16-le": "utf-16 utf16 csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff",
    "utf-16-be": "unicodefffe",
    "cp866": "csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-ir-101 iso88592 iso_8859-2:1987 l2",
    "iso8859-3": "csisolatin3 iso-ir-109 iso88593 iso_8859-3:1988 l3",
    "iso8859-4": "csisolatin4 iso-ir-110 iso88594 iso_8859-4:1988 l4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-ir-144 iso88595 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6-e iso-8859-6-i iso-ir-127 iso88596"
    " iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-ir-126 iso88597 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8-e iso-ir-138 iso88598 iso_8859-8:1988 visual csiso88598i"
    " iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-ir-157 iso885910 l6 latin6",
    "iso8859-13": "iso885913",
    "iso8859-14": "iso885914",
    "iso8859-15": "csisolatin9 iso885915 iso_8859-15 l9",
    "koi8-r": "cskoi8r koi koi8",
    "koi8-u": "koi8-ru",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "x-cp1250",
    "cp1251": "x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1"
    " latin1 us-ascii x-cp1252",
    "cp1253": "x-cp1253",
    "cp1254": "csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5 x-cp1254",
    "cp1255": "x-cp1255",
    "cp1256": "x-cp1256",
    "cp1257": "x-cp1257",
    "cp1258": "x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk",
    "big5hkscs": "big5 cn-big5 csbig5 x-x-big5",
    "euc-jp": "cseucpkdfmtjapanese x-euc-jp",
    "iso2022-jp": "csiso2022jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949",
}
LABELS = {label: name for name, labels in _LABELS.items() for label in labels.split()}
# Python's text encodings that files do not use
EXCLUDED = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "unicode_escape", "raw_unicode_escape")


def find_encoding(name: str) -> str:
    """Return Python's name of a text encoding.  Raises LookupError or ValueError."""
    label = name.strip(" \t\r\n\f").lower()
    found = codecs.lookup(LABELS.get(label, label))
    if not found._is_text_encoding or found.name in EXCLUDED or found.incrementaldecoder is None:
        raise LookupError
    return found.name
