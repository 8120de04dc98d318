"""What the actors were promised, and what they saw: the model that the database is compared with at the end."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

ACKNOWLEDGED, ROLLED_BACK = "acknowledged", "rolled back"
MOST_REMEMBERED = 400  # past answers that are asked for again at the end
# fields of rows by company, entity and code; None: there is no such row
Rows = dict[tuple[str, str, str], dict[str, Any] | None]
MOST_FINDINGS = 50  # of the actors; after that the soak stops early


@dataclass(frozen=True, slots=True)
class Change:
    """What a change record must say."""

    entity: str
    row_id: int
    operation: str
    old: tuple[tuple[str, Any], ...] | None = field(default=None, compare=False)  # some of the old values; None: not known


@dataclass(slots=True)
class Write:
    """One transaction of an SQL writer in one company, and the records that it must leave if it committed."""

    company: str
    transaction: int
    changes: list[Change]
    state: str


@dataclass(frozen=True, slots=True)
class Ended:
    """An import as its answer described it."""

    company: str
    id: str
    state: str
    dry_run: bool
    entities: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer about a past version, which must be the same for ever."""

    company: str
    version: int
    path: str
    digest: bytes

    @staticmethod
    def of(company: str, version: int, path: str, body: bytes) -> Remembered:
        return Remembered(company, version, path, hashlib.sha256(body).digest())


@dataclass(frozen=True, slots=True)
class Seen:
    """The rows of an entity as a snapshot saw them, with the company's last change in the same snapshot."""

    company: str
    version: int
    entity: str
    rows: dict[int, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request that a receiver of webhooks got."""

    hook: str
    webhook_id: str
    changes: tuple[int, ...]
    status: int | None  # None: no answer was sent
    genuine: bool


@dataclass
class Hook:
    """A registered hook and what it asks for."""

    id: str
    company: str
    entity: str | None
    in_change_sets: bool
    secret: str
    manner: str
    columns: frozenset[str] = frozenset()


@dataclass
class Ledger:
    """Shared by all actors.  Lists are appended to, which needs no lock; rows have one writer each."""

    writes: list[Write] = field(default_factory=list)
    rows: Rows = field(default_factory=dict)
    # additions to rows that all writers share, by company and code
    added: Counter[tuple[str, str]] = field(default_factory=Counter)
    ended: list[Ended] = field(default_factory=list)
    undone: list[tuple[str, str]] = field(default_factory=list)  # company, change set
    followed: dict[tuple[str, str], list[tuple[int, str, int, str]]] = field(default_factory=lambda: defaultdict(list))
    polled: dict[tuple[str, str], dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))
    remembered: list[Remembered] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    hooks: list[Hook] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    figures: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)  # of faults, with times
    stop: threading.Event = field(default_factory=threading.Event)
    drained: threading.Event = field(default_factory=threading.Event)  # followers have everything
    began: float = field(default_factory=time.monotonic)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, text: str) -> None:
        """Note what an actor found wrong."""
        self.findings.append(f"{time.monotonic() - self.began:.1f} s: {text}")
        if len(self.findings) >= MOST_FINDINGS:
            self.stop.set()

    def add(self, company: str, code: str, amount: int) -> None:
        with self._lock:
            self.added[company, code] += amount

    def count(self, figure: str, number: int = 1) -> None:
        with self._lock:
            self.figures[figure] += number

    def fault(self, name: str) -> None:
        with self._lock:
            self.faults[name] += 1
        self.log.append(f"{time.monotonic() - self.began:.1f} s: {name}")

    def remember(self, one: Remembered) -> None:
        if len(self.remembered) < MOST_REMEMBERED:
            self.remembered.append(one)
