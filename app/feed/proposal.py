"""The sender of an import, and what the scope `propose` alone allows: dry runs, bounded in size and in their time with the turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.errors import ServiceError

SIZE = 10_000_000  # bytes of a document, decompressed
TURN = 10.0  # seconds for which a dry run may have the company's turn


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of an import or revert.

    proposes: it has the scope `propose` without `import`; reads: it has the scope `read`, too.
    """

    actor: str
    proposes: bool = False
    reads: bool = True

    def require(self, *, dry_run: bool) -> None:
        """Raises ServiceError(forbidden) unless it may do what it asks for."""
        if self.proposes and not dry_run:
            raise ServiceError(
                "forbidden", "this key has no import access to that company, it may propose: expected dryRun, which writes nothing"
            )

    @property
    def turn(self) -> float | None:
        """Seconds for which its import may have the company's turn, None without a limit."""
        return TURN if self.proposes else None

    def limit(self, largest: int) -> int:
        """The largest document that it may send, in bytes; largest: that of the service."""
        return min(largest, SIZE) if self.proposes else largest

    @property
    def own(self) -> str | None:
        """The actor whose imports alone it sees, None for all."""
        return self.actor if self.proposes else None

    def shown(self, report: dict[str, Any]) -> dict[str, Any]:
        """A report as it may see it: the rows of a revert's dry run need the scope `read`."""
        hides = self.proposes and not self.reads
        return {name: value for name, value in report.items() if name != "rows" or not hides}


def over_time() -> ServiceError:
    """The error of a dry run that had the turn for too long."""
    message = (
        f"the dry run had the company's turn for {TURN:g} s and was ended, nothing was written: import fewer records, or undo less"
    )
    return ServiceError("busy", message, headers={"Retry-After": "60"})
