"""The guide: the documents as a site, built as `make guide` does, served without signing in, and searched in Chromium."""

from __future__ import annotations

import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from lxml import html

from app.web import files, guide
from tests.auth.client import ask
from tests.docs.documents import ROOT, documents
from tests.service.serving import Service
from tests.web.test_browser import PHONE, base, chromium  # noqa: F401
from tests.web.visitor import anonymous

pytestmark = pytest.mark.processes

HOME = "/docs/guide/"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guide")
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(ROOT / "guide" / "mkdocs.yml")]
    subprocess.run([*words, "--site-dir", str(folder)], check=True, timeout=120)
    return folder


@pytest.fixture(autouse=True)
def built(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(files, "GUIDE", site)
    forget()
    yield
    forget()


def forget() -> None:
    files.guide.cache_clear()
    guide.read.cache_clear()


def test_every_document_is_a_page_whose_links_lead_somewhere(site: Path) -> None:
    pages = {path.relative_to(site).as_posix(): html.fromstring(path.read_bytes()) for path in site.rglob("*.html")}
    names = {re.sub("^docs/", "", each).replace("README", "index").replace(".md", ".html").lower() for each in documents()}
    assert set(pages) == names
    for name, page in pages.items():
        assert not page.xpath("//style | //*[@style] | //script[not(@src)] | //@*[starts-with(name(), 'on')]"), name
        for url in page.xpath("//@src | //link/@href"):
            assert (site / posixpath.dirname(name) / url).is_file(), f"{name}: {url}"
        for url in page.xpath("//a/@href"):
            path, anchor = urlsplit(urljoin(f"http://here/{name}", url)).path[1:], urlsplit(url).fragment
            if url.startswith(("http://", "https://", "/")) or url == "#":
                continue
            assert (site / path).is_file(), f"{name}: {url}"
            assert not anchor or pages[path].get_element_by_id(anchor) is not None, f"{name}: {url}"
    assert pages["index.html"].xpath("//span[text()='deploy/']"), "a file that the site does not have is named"
    assert "verify_seals.py.txt" in pages["security.html"].xpath("//a/@href")


def test_a_page_is_public_and_revalidated(service: Service) -> None:
    first = ask(service, "/docs/guide")
    assert (first.status, first.headers["Location"]) == (308, HOME)
    kinds = {"": "text/html; charset=utf-8", "css/guide.css": "text/css; charset=utf-8", "overview.png": "image/png"}
    for path, kind in kinds.items():
        reply = ask(service, HOME + path)
        assert (reply.status, reply.headers["Content-Type"], reply.headers["Cache-Control"]) == (200, kind, "no-cache")
        policy = dict(part.split(" ", 1) for part in reply.headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'" and policy["script-src"] == policy["style-src"] == "'self'"
        assert ask(service, HOME + path, headers={"If-None-Match": reply.headers["ETag"]}).status == 304
    assert ask(service, HOME + "odata.html", "HEAD").body == b""


@pytest.mark.parametrize("path", ["none.html", "../view.py", "%2e%2e/web/view.py", "/etc/passwd", "css", "odata.html/"])
def test_nothing_else_is_sent(service: Service, path: str) -> None:
    assert ask(service, HOME + path).status == 404


def test_where_it_was_not_built_an_error_says_how(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HOME in anonymous(service).get("/login").all("//footer//a/@href")
    monkeypatch.setattr(files, "GUIDE", tmp_path / "none")
    forget()
    assert HOME not in anonymous(service).get("/login").all("//a/@href")
    refused = anonymous(service).get("/docs/guide")
    assert refused.status == 404 and "make guide" in refused.text


def test_it_is_searched_and_loads_nothing_from_elsewhere(service: Service, chromium: Any, base: str) -> None:  # noqa: F811
    from axe_playwright_python.sync_playwright import Axe

    troubles: list[str] = []
    page = chromium.new_page(base_url=base, viewport=PHONE)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    page.on("request", lambda request: None if request.url.startswith(base) else troubles.append(request.url))
    for name, scheme in (("map.html", "dark"), ("index.html", "light")):
        page.emulate_media(color_scheme=scheme)
        page.goto(HOME + name)
        page.wait_for_load_state("networkidle")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not Axe().run(page).response["violations"]
    page.keyboard.press("s")
    page.locator("#mkdocs-search-query").press_sequentially("whsec_")
    page.wait_for_selector("#mkdocs-search-results a[href*='webhooks.html']")
    page.keyboard.press("Enter")
    page.wait_for_url("**/docs/guide/*.html#*")
    page.close()
    assert not troubles
