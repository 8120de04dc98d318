"""Clients from npm read the service: generated TypeScript, SAP's generator, the parsers of the OASIS.

`make test-clients` installs them; without them these tests are skipped.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lxml import etree

from tests.clients.conftest import rows
from tests.service.serving import Service

HERE = Path(__file__).resolve().parent
CLIENTS = Path(sys.prefix) / "clients"  # with node_modules
PATIENCE = 300  # seconds for a generator or compiler on a busy machine

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not (CLIENTS / "node_modules").is_dir(), reason="make test-clients installs the clients from npm"),
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def place(service: Service) -> Path:
    """A directory from which node finds the packages, with the service's $metadata in it."""
    rows(service)
    place = CLIENTS / "run"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in ("tsconfig.json", "tsconfig.sap.json", "read.ts", "read_sap.ts", "parse.js"):
        shutil.copy(HERE / name, place)
    (place / "metadata.xml").write_bytes(service.odata("/$metadata").body)
    return place


@pytest.fixture
def run(place: Path) -> Run:
    """Run a program of a package, or with `node` a file, in that directory; what it printed."""

    def run(program: str, *arguments: str) -> str:
        command = ["node", str(CLIENTS / "node_modules" / ".bin" / program)] if program != "node" else ["node"]
        done = subprocess.run([*command, *arguments], cwd=place, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_metadata_is_valid_against_the_schemas_of_the_oasis(place: Path) -> None:
    schema = etree.XMLSchema(etree.parse(CLIENTS / "node_modules/odata-csdl/schemas/edmx.xsd"))
    assert schema.validate(etree.parse(place / "metadata.xml")), schema.error_log


def test_odata2ts_generates_compiles_and_reads(service: Service, run: Run) -> None:
    run("odata2ts", "-s", "metadata.xml", "-o", "generated", "-m", "all", "-e", "ts", "-name", "bds")
    run("tsc", "-p", "tsconfig.json")
    root = f"http://{service.host}:{service.port}/api/odata/demo"
    read: dict[str, Any] = json.loads(run("node", "out/read.js", root, service.key))
    assert read["page"]["@odata.count"] == 2
    assert read["page"]["value"] == [{"code": "A", "price": 12.5}, {"code": "C", "price": 2.5}]
    assert [(row["code"], row["category"]["name"]) for row in read["expanded"]["value"]] == [("A", "Tools"), ("B", "Tools")]
    assert [variant["code"] for variant in read["expanded"]["value"][0]["variants"]] == ["A-1", "A-2"]
    assert read["any"]["value"] == [{"code": "A"}]
    assert (read["one"]["id"], read["one"]["name"]) == (1, "Hammer")
    assert [row["code"] for row in read["related"]["value"]] == ["A-1", "A-2"]


def test_sap_cloud_sdk_generates_compiles_and_reads(service: Service, place: Path, run: Run) -> None:
    (place / "services.json").write_text(json.dumps({"metadata.xml": {"directoryName": "metadata", "basePath": "/api/odata/demo"}}))
    run("generate-odata-client", "-i", "metadata.xml", "-o", "sap", "--optionsPerService", "services.json")
    run("tsc", "-p", "tsconfig.sap.json")
    read: dict[str, Any] = json.loads(run("node", "out/read_sap.js", f"http://{service.host}:{service.port}", service.key))
    assert [(row["code"], row["price"]) for row in read["page"]] == [("A", "12.5"), ("C", "2.5")]
    assert [(row["code"], row["category"]["name"], len(row["variants"])) for row in read["expanded"]] == [("A", "Tools", 2)]
    assert [row["code"] for row in read["any"]] == ["A"]
    assert (read["one"]["id"], read["one"]["name"], read["count"]) == ("1", "Hammer", 3)


def test_the_parsers_of_the_oasis_understand_the_metadata(service: Service, run: Run) -> None:
    understood = json.loads(run("node", "parse.js", "metadata.xml"))
    product = understood["csdl"]["bds"]["product"]
    assert product["$Key"] == ["id"]
    assert product["price"] | {"@Core.Description": ""} == {
        "$Type": "Edm.Decimal", "$Nullable": True, "$Precision": 19, "$Scale": 4, "@Core.Description": "",
    }  # fmt: skip
    assert product["variants"]["$Collection"] is True
    assert {"/products", "/products({id})", "/products({id})/variants"} <= set(understood["paths"])
    assert set(understood["paths"]["/products"]) & {"get", "post", "patch", "delete"} == {"get"}
    assert understood["messages"] == []
    ours = service.odata("/$metadata", Accept="application/json").json
    assert {name.replace(".xml", ".json"): each for name, each in understood["csdl"].pop("$Reference").items()} == ours.pop(
        "$Reference"
    )
    assert understood["csdl"] == ours
