"""Every example of the documents runs as it is printed, in the demo company.

What is printed under a command has to come out: times, ids and secrets aside, and `...` stands for anything.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tests.docs import checkout
from tests.docs.checkout import Checkout
from tests.docs.documents import PROMPT, Example, chapter, documents, examples, session

pytestmark = pytest.mark.processes

# In this order: what one document writes, a later one may show.
RUN = (
    "docs/odata.md",
    "docs/export.md",
    "docs/changes.md",
    "docs/webhooks.md",
    "docs/security.md",
    "README.md",
    "docs/feed.md",
    "docs/sql.md",
    "docs/mapper.md",
    "docs/assistants.md",
    "docs/tutorials/bi.md",
    "docs/tutorials/integrator.md",
    "docs/tutorials/follower.md",
    "docs/tutorials/dba.md",
)
ELSEWHERE = {
    ("README.md", "Try it"): "test_the_demo_prints_what_the_readme_shows",
    ("README.md", "Install it"): "tests/wheel",
    ("docs/operate.md", "A session"): "test_operating.py",
    ("docs/operate.md", "Backup and restore"): "test_operating.py",
    ("docs/operate.md", "Dump, restore or delete a company"): "test_operating.py",
    ("docs/security.md", "Dependencies"): "by hand: a database of vulnerabilities has to be reached",
    ("CONTRIBUTING.md", "Set up"): "test_documented.py: the targets exist",
}
USER = pwd.getpwuid(os.geteuid()).pw_name
DIFFERS = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?[+-]\d\d(:\d\d)?", "TIME"),
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID"),
    (r"whsec_[A-Za-z0-9+/=]+", "SECRET"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (rf'(?m)"actor":"({re.escape(USER)}|anna)"|^ ({re.escape(USER)}|anna) +\|', "ACTOR"),  # who runs the commands
    (r'"rowId":"\d+"', "ROW"),  # rows of one import are logged in no order
)
SEAL = "select step from bds.maintain(seal_age => '0')"  # no rows while another session maintains
BROKEN = ((r"\n", ""), (r", +", ","), ("\ufeff", ""))  # long lines are broken to be read; a byte order mark does not show
RULED = ((r" *\n", "\n"), (r" +", " "), (r"-{2,}", "--"), (r"\n+", "\n"), (r"(?m)^ ", ""))  # widths follow from what differs


def runs(example: Example) -> bool:
    """Whether an example is typed in; SQL with an ellipsis has ids that only its reader knows."""
    if example.document == "docs/operate.md" and example.title in chapter(example.document, "Standbys and recovery"):
        return False  # test_recovering.py
    if example.kind == "sql":
        return "..." not in example.text
    return example.kind == "console" and (example.document, example.title) not in ELSEWHERE


@dataclass
class Demo:
    """A checkout in which the demo company is served; `announced` is what the command printed."""

    checkout: Checkout
    announced: str
    done: set[str] = field(default_factory=set)

    def run(self, document: str) -> None:
        """Run a document's examples, once.  Raises AssertionError if one prints anything else than it shows."""
        if document in self.done:
            return
        self.done.add(document)
        for example in filter(runs, examples(document)):
            if example.is_shell:
                self.check_shell(example)
            elif example.is_psql:
                self.check_psql(example)
            else:
                self.checkout.psql(example.text)
                while "bds.maintain(seal_age" in example.text and not self.checkout.psql(SEAL, "--tuples-only").strip():
                    time.sleep(0.1)  # the service maintains just now

    def check_shell(self, example: Example) -> None:
        typed = session(example.text)
        for (command, shown), output in zip(typed, self.checkout.type([command for command, _ in typed]), strict=True):
            assert "urn:bds:error" not in output, f"{command}\nprinted\n{output}"
            if shown:
                same = re.fullmatch(pattern(shown), alike(output, BROKEN), re.DOTALL)
                assert same, f"{command}\nprinted\n{output}\nexpected\n{shown}"

    def check_psql(self, example: Example) -> None:
        lines = [line for line in example.text.splitlines() if not line.startswith("$ ")]
        script = "\n".join(line[6:] for line in lines if PROMPT.match(line))
        shown = "\n".join(line for line in lines if not PROMPT.match(line))
        output = self.checkout.psql(script)
        assert alike(output, RULED) == alike(shown, RULED), f"{script}\nprinted\n{output}\nexpected\n{shown}"


def alike(text: str, forms: tuple[tuple[str, str], ...]) -> str:
    for differs, same in (*DIFFERS, *forms):
        text = re.sub(differs, same, text)
    return text.strip()


def pattern(shown: str) -> str:
    return re.escape(alike(shown, BROKEN)).replace(re.escape("..."), ".*")


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    if shutil.which("curl") is None:
        pytest.skip("the sessions need curl")
    with checkout.demo() as (here, printed):
        yield Demo(here, printed)


def test_every_example_is_run() -> None:
    printed = {document for document in documents() if any(runs(example) for example in examples(document))}
    assert printed == set(RUN)
    shown = {(document, each.title) for document in documents() for each in examples(document) if each.kind == "console"}
    assert set(ELSEWHERE) <= shown


@pytest.mark.parametrize("document", documents())
def test_examples_in_json_are_json(document: str) -> None:
    for example in examples(document):
        if example.kind == "json":
            json.loads(example.text)


def test_the_demo_prints_what_the_readme_shows(demo: Demo) -> None:
    (shown,) = [text for each in examples("README.md") for command, text in session_of(each) if command == "make run"]
    expected = re.escape(re.sub(r"127\.0\.0\.1:\d+", "HOST", shown)).replace(re.escape("..."), ".*")
    for secret in re.findall(r"API key: +(\S+)|password: (\S+)", shown):
        expected = expected.replace(re.escape("".join(secret)), r"\S+")
    assert re.fullmatch(expected, re.sub(r"127\.0\.0\.1:\d+", "HOST", demo.announced).strip(), re.DOTALL)


def session_of(example: Example) -> list[tuple[str, str]]:
    return session(example.text) if example.is_shell else []


@pytest.mark.parametrize("document", RUN)
def test_its_examples_print_what_it_shows(demo: Demo, document: str) -> None:
    if document == "docs/sql.md":
        demo.run("docs/feed.md")  # whose company it shows
    demo.run(document)


def test_sql_does_what_its_page_says(demo: Demo) -> None:
    demo.run("docs/feed.md")
    demo.run("docs/sql.md")
    imports = (
        "select bds.import_report(company_id, id) -> 'entities' -> 'products' from bds.imports"
        " where company_id = 'acme' and reverts is null"
    )
    reports = [json.loads(demo.checkout.psql(f"{imports} order by number desc limit 1 offset {n}", "-At")) for n in (2, 1, 0)]
    assert [(each["created"], each["updated"]) for each in reports] == [(1, 1), (0, 1), (0, 1)]
    assert demo.checkout.psql("select count(*) from api.warehouses", "-At") == "0\n"


def test_a_follower_in_sql_reads_every_change_once(demo: Demo) -> None:
    demo.run("docs/changes.md")
    (text,) = [each.text for each in examples("docs/changes.md") if each.kind == "sql"]
    round = text.partition("-- each round")[2].partition("\n")[2]
    read = [1000]
    ids: list[int] = list(range(1, 1001))  # of the first round, when the examples ran
    while read[-1]:
        rows = [line.split("|") for line in demo.checkout.psql(round, "-At").splitlines()]
        ids += [int(row[0]) for row in rows]
        read.append(len(rows))
    assert ids == list(range(1, len(ids) + 1)) and len(ids) > 5_000
