"""The files in deploy/ match the program, and systemd and nginx accept them where they are installed."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from app.cli import parser
from app.config import Config
from tests.service.serving import Reply, Service, running, unused_port, wait_until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Proxy:
    """nginx in front of a service."""

    service: Service
    plain: int  # port for HTTP
    secure: int  # port for HTTPS

    def ask(self, method: str, path: str, body: Any = None, *, secure: bool = True, headers: dict[str, str] | None = None) -> Reply:
        """Send one request with the key, as a client of bds.example.com."""
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # the certificate was made for the test
        if secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                "127.0.0.1", self.secure, timeout=30, context=trusting
            )
        else:
            connection = http.client.HTTPConnection("127.0.0.1", self.plain, timeout=30)
        named = {"Host": "bds.example.com", "Authorization": self.service.basic, **(headers or {})}
        try:
            connection.request(method, path, body, named, encode_chunked=True)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "bds.service"
    program = tmp_path / "bds"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text((DEPLOY / "bds.service").read_text().replace("/opt/bds/bin/bds", str(program)))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_runs_an_existing_command() -> None:
    unit = (DEPLOY / "bds.service").read_text()
    command = re.search(r"^ExecStart=\S+/bds (.*)$", unit, re.MULTILINE)
    assert command
    settings = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / "bds.env").read_text(), re.MULTILINE))
    words = [re.sub(r"\$\{(\w+)\}", lambda found: settings[found[1]], word) for word in command[1].split()]
    options = parser.parser().parse_args(words)
    assert (options.host, options.port, options.processes) == ("127.0.0.1", 8080, 4)


def test_the_image_copies_existing_files_and_runs_an_existing_command() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / each).exists() for each in copied)
    package_folders = {"app", "sql", "grammars"}  # all that the program reads
    assert package_folders <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(ignored) & set(copied)
    entry = re.search(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    assert entry
    options = parser.parser().parse_args([word.strip(' "') for word in entry[1].split(",")])
    assert options.host == "0.0.0.0"
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "not as root"


@pytest.fixture(scope="module")
def proxy(module_database_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """nginx with deploy/nginx.conf in front of a running service; only ports and the certificate differ."""
    tmp_path = tmp_path_factory.mktemp("nginx")
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x", "-keyout", "k.pem", "-out", "c.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    trusted = Config.load({"BDS_TRUSTED_PROXIES": "127.0.0.1,::1"}).trusted_proxies
    with running(module_database_url, trusted_proxies=trusted) as service:
        plain, secure = unused_port(), unused_port()
        text = (DEPLOY / "nginx.conf").read_text()
        for ours, here in (
            ("server 127.0.0.1:8080;", f"server {service.host}:{service.port};"),
            ("listen 80;", f"listen 127.0.0.1:{plain};"),
            ("listen 443 ssl http2;", f"listen 127.0.0.1:{secure} ssl http2;"),
            ("/etc/ssl/bds/fullchain.pem", f"{tmp_path}/c.pem"),
            ("/etc/ssl/bds/privkey.pem", f"{tmp_path}/k.pem"),
        ):
            assert ours in text
            text = text.replace(ours, here)
        places = " ".join(f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        main = f"daemon off; pid {tmp_path}/pid; error_log {tmp_path}/log; events {{}}"
        main += f" http {{ access_log off; {places} {text} }}"
        if os.geteuid() == 0:
            main = "user root; " + main
        (tmp_path / "nginx.conf").write_text(main)
        checked = subprocess.run([nginx, "-t", "-c", f"{tmp_path}/nginx.conf"], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stderr
        process = subprocess.Popen([nginx, "-c", f"{tmp_path}/nginx.conf"])
        try:
            wait_until(lambda: answers(secure))
            yield Proxy(service, plain, secure)
        finally:
            process.terminate()
            process.wait()


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_behind_nginx_urls_have_the_host_that_clients_use(proxy: Proxy) -> None:
    reply = proxy.ask("GET", "/api/odata/demo/units", headers={"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "9.9.9.9"})
    assert reply.status == 200
    assert reply.json["@odata.context"] == "https://bds.example.com/api/odata/demo/$metadata#units"
    assert reply.headers["Strict-Transport-Security"]
    assert proxy.ask("GET", "/metrics").status == 404
    moved = proxy.ask("GET", "/c/demo/units?$top=1", secure=False)
    assert (moved.status, moved.headers["Location"]) == (301, "https://bds.example.com/c/demo/units?$top=1")


def test_nginx_streams_a_feed_and_passes_long_queries(proxy: Proxy) -> None:
    records = ", ".join(json.dumps({"code": f"N{n}", "name": "x" * 1000}) for n in range(3000))
    reply = proxy.ask("POST", "/api/demo/import", iter([b'{"units": [', records.encode(), b"]}"]), headers=JSON)
    assert (reply.status, reply.json["entities"]["units"]["created"]) == (200, 3000)
    filter = " or ".join(f"code eq 'N{n}'" for n in range(300))
    counted = proxy.ask("GET", "/api/odata/demo/units/$count?$filter=" + quote(filter))
    assert (counted.status, counted.body) == (200, b"300")


def test_nginx_overwrites_the_forwarding_headers_of_clients() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    for name in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Host"):
        assert re.search(rf"proxy_set_header {name} ", text), name
    assert "$proxy_add_x_forwarded_for" not in text
