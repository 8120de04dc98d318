"""The files under deploy/ fit the program, and the tools that are there find nothing wrong with them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app import cli

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "bds.service"
    program = tmp_path / "bds"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit.write_text((DEPLOY / "bds.service").read_text().replace("/opt/bds/.venv/bin/bds", str(program)))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_unit_starts_a_command_that_there_is() -> None:
    unit = (DEPLOY / "bds.service").read_text()
    command = re.search(r"^ExecStart=\S+/bds (.*)$", unit, re.MULTILINE)
    assert command
    settings = dict(re.findall(r"^(BDS_\w+)=(.*)$", (DEPLOY / "bds.env").read_text(), re.MULTILINE))
    words = [re.sub(r"\$\{(\w+)\}", lambda found: settings[found[1]], word) for word in command[1].split()]
    options = cli.parser().parse_args(words)
    assert (options.host, options.port, options.processes) == ("127.0.0.1", 8080, 4)


def test_the_image_copies_what_there_is_and_runs_a_command_that_there_is() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]]
    assert all((ROOT / each).exists() for each in copied)
    package_folders = {"app", "sql", "grammars"}  # all that the program reads
    assert package_folders <= set(copied)
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not set(ignored) & set(copied)
    entry = re.search(r"^CMD \[(.*)\]$", text, re.MULTILINE)
    assert entry
    options = cli.parser().parse_args([word.strip(' "') for word in entry[1].split(",")])
    assert options.host == "0.0.0.0"
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "not as root"


def test_nginx_accepts_its_file(tmp_path: Path) -> None:
    nginx = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if nginx is None:
        pytest.skip("nginx is not installed")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=x", "-keyout", "k.pem", "-out", "c.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    text = (DEPLOY / "nginx.conf").read_text()
    text = text.replace("/etc/ssl/bds/fullchain.pem", f"{tmp_path}/c.pem").replace("/etc/ssl/bds/privkey.pem", f"{tmp_path}/k.pem")
    text = text.replace("http2 on;", "")  # from 1.25.1 on
    (tmp_path / "nginx.conf").write_text(f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; {text} }}")
    checked = subprocess.run([nginx, "-t", "-c", f"{tmp_path}/nginx.conf"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr


def test_nginx_passes_on_what_the_service_believes_and_nothing_that_a_client_has_sent() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    for name in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "Host"):
        assert re.search(rf"proxy_set_header {name} ", text), name
    assert "$proxy_add_x_forwarded_for" not in text
