"""Every setting, command, path, port, probe, metric and page that a file of deploy/ names exists, and the files fit their schemas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import check_jsonschema
import jsonschema
import kubernetes_validate
import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

from app import metrics
from app.cli.parser import parser
from app.config import Config
from app.service.routes import ROUTES
from tests.docs.test_links import anchors

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(path for path in DEPLOY.iterdir() if path.is_file())
SETTINGS = {each.metadata["name"] for each in fields(Config)}
PATHS = {path for _, path, _ in ROUTES}
PORT = "8080"
METRIC = re.compile(r"\bbds_[a-z_]+")
MADE = re.compile(r"_(counter|gauge|histogram)\(\s*\"(bds_[a-z_]+)\"")
SERIES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def alerts() -> list[dict[str, Any]]:
    (document,) = documents("alerts.yml")
    return [rule for group in document["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "dashboard.json").read_text())["panels"]
    return found


def series() -> set[str]:
    """The names of all series at /metrics."""
    text = (ROOT / "app" / "metrics.py").read_text()
    made = {name + ending for kind, name in MADE.findall(text) for ending in SERIES[kind]}
    others = set(re.findall(r"(?:Gauge|GaugeMetricFamily)\(\s*\"(bds_[a-z_]+)\"", text))
    assert {"bds_database_up", "bds_replica_up", "bds_problems"} <= others
    return made | others


def labels_of_series() -> set[str]:
    """The labels of all series at /metrics."""
    made = [each for each in (*vars(metrics).values(), *metrics.pool_counters.values()) if isinstance(each, MetricWrapperBase)]
    return {"le", "place", "kind", "state"} | {label for each in made for label in each._labelnames}


def commands() -> Iterator[list[str]]:
    """The words of every command of bds that a container runs; a test of the unit's is in tests/service/test_deploy.py."""
    for name in ("compose.yml", "citus.yml"):
        for service in documents(name)[0]["services"].values():
            if "build" in service or service.get("image") == "bds":
                script = service.get("entrypoint")
                runs = [each.split()[1:] for each in re.findall(r"bds [^;']*", script)] if script else [service.get("command")]
                yield from filter(None, runs)
    for each in documents("kubernetes.yml"):
        for container in pod(each).get("containers", ()):
            yield container["args"]


def pod(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document.get("spec", {}).get("template", {}).get("spec", {})
    return spec


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_setting_and_every_file_that_it_names_exists(path: Path) -> None:
    text = path.read_text()
    assert set(re.findall(r"\bBDS_[A-Z_]+\b", text)) <= SETTINGS
    for named in re.findall(r"\b(?:deploy|docs)/[\w.-]+\w", text):
        assert (ROOT / named).exists() or named == "deploy/.env", named
    for probe in re.findall(r"(?:path: |://127\.0\.0\.1:\d+|prometheus\.io/path: |location = )(/[a-z]+)", text):
        assert probe in PATHS, probe
    for port in re.findall(
        r"(?:containerPort: |io/port: \"|EXPOSE |server 127\.0\.0\.1:|SERVE_PORT=|--port\W+|http://127\.0\.0\.1:)(\d+)", text
    ):
        assert port == PORT
    assert not re.search(r"latest/|pypi\.org|pythonhosted", text)


def test_every_command_of_a_container_exists() -> None:
    found = [tuple(words) for words in commands()]
    for words in found:
        parser().parse_args(list(words))
    names = {words[0] for words in found}
    assert {"serve", "worker", "migrate"} <= names


def test_compose_files_fit_the_schema_and_no_container_of_the_service_has_more_rights_than_it_needs() -> None:
    schema = Path(check_jsonschema.__file__).parent / "builtin_schemas" / "vendor" / "compose-spec.json"
    for name in ("compose.yml", "citus.yml"):
        (document,) = documents(name)
        jsonschema.validate(document, json.loads(schema.read_text()))
        for service in document["services"].values():
            assert set(service.get("depends_on", ())) <= set(document["services"])
    for service in documents("compose.yml")[0]["services"].values():
        if service["image"] == "bds":
            assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["tmpfs"] == ["/tmp"]


def test_kubernetes_manifests_fit_the_schema_and_each_other() -> None:
    objects = {f"{each['kind']}/{each['metadata']['name']}": each for each in documents("kubernetes.yml")}
    for each in objects.values():
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
        for container in pod(each).get("containers", ()):
            limits = container["securityContext"]
            assert (
                limits["readOnlyRootFilesystem"]
                and not limits["allowPrivilegeEscalation"]
                and pod(each)["securityContext"]["runAsNonRoot"]
            )
            for source in container["envFrom"]:
                assert source.get("configMapRef", {"name": "bds"})["name"] == "bds"
            assert {each["name"] for each in container.get("volumeMounts", ())} == {
                each["name"] for each in pod(each).get("volumes", ())
            }
    serve = objects["Deployment/bds-serve"]["spec"]
    labels = serve["template"]["metadata"]["labels"]
    assert (serve["replicas"], objects["Deployment/bds-worker"]["spec"]["replicas"]) == (2, 1)
    assert objects["Service/bds"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget/bds-serve"]["spec"]["selector"]["matchLabels"] == serve["selector"]["matchLabels"] == labels
    (container,) = pod(objects["Deployment/bds-serve"])["containers"]
    probes = {name: container[name]["httpGet"]["path"] for name in ("readinessProbe", "livenessProbe", "startupProbe")}
    assert probes == {"readinessProbe": "/readyz", "livenessProbe": "/healthz", "startupProbe": "/healthz"}


def test_alerts_and_panels_read_metrics_that_exist() -> None:
    known = series()
    asked = [(rule["alert"], rule["expr"]) for rule in alerts()]
    asked += [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    for name, expression in asked:
        found = set(METRIC.findall(expression))
        assert found and found <= known, (name, found - known)
        grouped = {label for labels in re.findall(r"\bby \(([^)]*)\)", expression) for label in labels.split(", ")}
        chosen = {label for labels in re.findall(r"{([^}]*)}", expression) for label in re.findall(r"(\w+)[=!]", labels)}
        assert grouped | chosen <= labels_of_series(), (name, grouped | chosen)
        assert all(expression.count(opening) == expression.count(closing) for opening, closing in ("()", "[]", "{}"))


def test_an_alert_says_how_bad_it_is_and_names_the_page_that_helps() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info") and rule["annotations"]["summary"]
        page, _, section = rule["annotations"]["runbook"].partition("#")
        assert not section or section in anchors(page), rule["annotations"]["runbook"]


def test_panels_do_not_overlap_and_read_the_chosen_prometheus() -> None:
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells) and max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())
    assert {panel["datasource"]["uid"] for panel in panels()} == {"${source}"}
