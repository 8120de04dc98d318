"""Whether a company lives here is decided in one place, the view bds.residents, and by nothing else that reads its clock."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [path for folder in ("app", "sql") for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".sql")]
# what the moves of companies and a restore write, and the column itself
WRITES = re.compile(r"departed_at = (?:null|now_at|coalesce\(c\.departed_at, clock_timestamp\(\)\))|\"departed_at\": null")
DEFINES = re.compile(
    r"^ +departed_at +timestamptz,$|^comment on column bds\.clocks\.departed_at .*$|check \(departed_at is null or transaction_id is null\)",
    re.MULTILINE,
)


def decides(text: str) -> bool:
    return "departed_at" in DEFINES.sub("", WRITES.sub("", text))


def test_one_text_tells_whether_a_company_lives_here() -> None:
    found = {path.relative_to(ROOT).as_posix() for path in SOURCES if decides(path.read_text(encoding="utf-8"))}
    assert found == {"sql/05_impl/3_companies.sql"}, "read bds.residents instead"


def test_another_text_is_found() -> None:
    assert decides("where c.company_id = company and c.departed_at is not null")
    assert not decides("update bds.clocks c set departed_at = null where c.company_id = company;")
