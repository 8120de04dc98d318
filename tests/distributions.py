"""The distributions of this environment that a requirement needs."""

from __future__ import annotations

from importlib.metadata import Distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def needed(name: str, found: dict[str, Distribution]) -> None:
    """Collect what a distribution of this environment needs, and what those need; name: as in a requirement, of which extras count."""
    wanted = Requirement(name)
    distribution = Distribution.from_name(wanted.name)
    extras = ["", *wanted.extras]
    key = f"{canonicalize_name(wanted.name)}[{','.join(sorted(wanted.extras))}]"
    if key in found:
        return
    found[key] = distribution
    for each in distribution.requires or ():
        requirement = Requirement(each)
        if any(requirement.marker is None or requirement.marker.evaluate({"extra": extra}) for extra in extras):
            needed(f"{requirement.name}[{','.join(requirement.extras)}]" if requirement.extras else requirement.name, found)
