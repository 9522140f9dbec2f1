"""`docs/llms.txt` has the form of llmstxt.org, and lists every page of the site."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

_DOCS = Path(__file__).parents[2] / "docs"
_MADE = runpy.run_path(str(_DOCS / "make_llms.py"))
_TEXT = (_DOCS / "llms.txt").read_text()
_LINK = r"- \[[^\]]+\]\((\S+\.(?:md|html))\): .+\.\n"


def test_the_list_is_made_from_the_navigation() -> None:
    assert _MADE["text"]() == _TEXT, "run: python docs/make_llms.py"


def test_the_list_has_the_form_of_the_specification() -> None:
    """A heading, a quoted summary, prose, then sections of links; sections named Optional may be skipped."""
    head, *sections = re.split(r"^## (.+)\n\n", _TEXT, flags=re.MULTILINE)
    assert re.fullmatch(r"# lading\n\n> .+\n\n.+\n\n", head)
    assert [lines for lines in sections[1::2] if not re.fullmatch(rf"(?:{_LINK})+\n?", lines)] == []
    assert sections[-2] == "Optional"


def test_the_list_has_every_page() -> None:
    pages = [page.removesuffix(".html").removesuffix(".md") for page in re.findall(_LINK, _TEXT)]
    assert sorted(pages) == sorted(str(page.relative_to(_DOCS).with_suffix("")) for page in _DOCS.rglob("*.md"))


def test_the_site_has_the_markdown_of_the_pages(tmp_path: Path) -> None:
    (tmp_path / "site/formats").mkdir(parents=True)
    (tmp_path / "docs/formats").mkdir(parents=True)
    (tmp_path / "docs/formats/mds.md").write_text("# MDS\n")
    _MADE["on_post_build"]({"docs_dir": str(tmp_path / "docs"), "site_dir": str(tmp_path / "site")})
    assert (tmp_path / "site/formats/mds.md").read_text() == "# MDS\n"
