"""Makes pages of the documents as they are: those beside docs/ too, with links as GitHub resolves them.

A link to a file that the site does not have becomes text, because a reader of an installed service has no checkout.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from markdown import Extension, Markdown
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
# Files of the repository that the site has at another place
ELSEWHERE = {
    **{path.name: path.name.lower() for path in ROOT.glob("*.md")},
    "README.md": "index.md",
    "docs/verify_seals.py": "verify_seals.py.txt",  # a browser shows it, and it is no module of the program
    "app/web/static/icon.svg": "img/icon.svg",
}
COLOURS = (("default", ".codehilite"), ("monokai", "[data-bs-theme=dark] .codehilite"))  # styles of Pygments
UNUSED = ("404.html", "sitemap.xml", "sitemap.xml.gz", "webfonts", "js/darkmode.js", "img/favicon.ico", "img/grid.png")


def slug(title: str, separator: str) -> str:
    """Return the anchor that GitHub gives a heading, as `spelled` spells it."""
    return spelled(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", separator))


def spelled(anchor: str) -> str:
    """Begin an anchor with a letter: the theme looks for the section in view by a selector, which takes no digit there."""
    return f"n{anchor}" if anchor[:1].isdigit() else anchor


class Links(Treeprocessor):
    """Leads each link to a page or file of the site; what is not there becomes text."""

    source = ""  # path of the present document in the repository
    pages: frozenset[str] = frozenset()  # pages and files of the site

    def run(self, root: Element) -> None:
        for parent in list(root.iter()):
            for link in [child for child in parent if child.tag in ("a", "img")]:
                name = "href" if link.tag == "a" else "src"
                url = link.get(name, "")
                path, mark, anchor = url.partition("#")
                if ":" in path:
                    continue
                at = posixpath.join(posixpath.dirname(self.source), path) if path else self.source
                target = self.page_of(posixpath.normpath(at))
                if target in self.pages:
                    here = posixpath.dirname(self.page_of(self.source))
                    link.set(name, posixpath.relpath(target, here or ".") + mark + spelled(anchor))
                else:
                    link.tag = "span"
                    link.attrib.clear()

    def page_of(self, source: str) -> str:
        """The path in the site of a file of the repository."""
        return ELSEWHERE.get(source) or source.removeprefix("docs/")


class Documents(Extension):
    def __init__(self) -> None:
        super().__init__()
        self.links = Links()

    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(self.links, "documents", 5)  # before MkDocs resolves and checks links


DOCUMENTS = Documents()


def on_config(config: MkDocsConfig) -> None:
    config.markdown_extensions.append(DOCUMENTS)  # type: ignore[arg-type]
    config.mdx_configs["toc"]["slugify"] = slug
    config.extra["version"] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    colours = "\n".join(HtmlFormatter(style=style).get_style_defs(scope) for style, scope in COLOURS)
    files.append(File.generated(config, "css/code.css", content=colours))
    DOCUMENTS.links.pages = frozenset(each.src_uri for each in files)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    path = page.file.src_uri
    DOCUMENTS.links.source = next((source for source, each in ELSEWHERE.items() if each == path), f"docs/{path}")


def on_post_build(config: MkDocsConfig) -> None:
    site = Path(config.site_dir)
    for path in [*(site / name for name in UNUSED), *site.rglob("*.map"), *site.glob("css/*font*"), *site.glob("css/brands*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
