"""The packages of `app` form layers: each imports only packages below it, no two modules import each other in a circle."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[2] / "app"

# From the top layer down; packages in one layer do not import each other.
LAYERS = (
    ("cli",),
    ("service",),
    ("web",),
    ("export", "feed"),
    ("mapper", "odata", "changes", "webhooks"),
    ("auth",),
    ("query", "places"),
    ("database", "wire"),
    ("types",),
)
LOOSE = {"child", "config", "errors", "formats", "logs", "metrics", "resources", "tasks"}  # modules below all packages
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms} | dict.fromkeys(LOOSE, len(LAYERS))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(APP.parent).with_suffix("").parts).removesuffix(".__init__")


FILES = {module_name(path): path for path in sorted(APP.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """Names of the modules of `app` that a module imports, inside functions too, but for type checking."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "app":
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in FILES else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "app"}
    return found - {"app"}


@cache
def graph() -> dict[str, set[str]]:
    return {name: imported(path) for name, path in FILES.items() if name != "app"}


def room(name: str) -> str:
    return name.split(".")[1]


def test_every_package_has_a_layer() -> None:
    assert {room(name) for name in graph()} == set(LEVEL)


def test_few_modules_are_loose() -> None:
    assert {path.stem for path in APP.glob("*.py")} - {"__init__"} == LOOSE
    assert len(LOOSE) <= 8


@pytest.mark.parametrize("name", sorted(FILES.keys() - {"app"}))
def test_imports_point_down(name: str) -> None:
    upward = {
        other
        for other in graph()[name]
        if room(other) != room(name) and room(name) not in LOOSE and LEVEL[room(other)] <= LEVEL[room(name)]
    }
    from_below = {other for other in graph()[name] if room(name) in LOOSE and room(other) not in LOOSE}
    assert not upward | from_below


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        tuple(TopologicalSorter(graph()).static_order())
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


@pytest.mark.parametrize(
    ("package", "steps"),
    [
        ("query", ("parse", "check", "sql")),  # a query is parsed, then checked, then made SQL
        ("database", ("pool", "servers", "connections", "database")),  # a pool knows no servers, a server no other place
    ],
)
def test_rooms_of_a_package_import_only_earlier_ones(package: str, steps: tuple[str, ...]) -> None:
    for name, others in graph().items():
        parts = name.split(".")
        if parts[1] == package and len(parts) > 2 and parts[2] in steps:
            later = {f"app.{package}.{step}" for step in steps[steps.index(parts[2]) + 1 :]}
            assert not [other for other in others if ".".join(other.split(".")[:3]) in later], name


@pytest.mark.parametrize(
    "package",
    [*("cli", "database", "database/pool", "database/servers", "places", "query/parse", "query/check", "query/sql", "service")],
)
def test_the_description_of_a_large_package_names_its_modules(package: str) -> None:
    words = set(re.findall(r"\w+", ast.get_docstring(ast.parse((APP / package / "__init__.py").read_text(encoding="utf-8"))) or ""))
    assert {path.stem for path in (APP / package).glob("*.py")} - {"__init__"} <= words
