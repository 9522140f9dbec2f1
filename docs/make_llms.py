#!/usr/bin/env python3
"""The list of pages for language models (llmstxt.org), made from the navigation in `mkdocs.yml`.

    python docs/make_llms.py

It writes `docs/llms.txt`. The site has the Markdown of each page next to its HTML: `on_post_build` is a hook of mkdocs.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
_SUMMARY = (
    "lading is a Python library and a command for sharded multimodal training data: images, text, audio, video, "
    "arrays, documents. It opens, filters, converts, compares, verifies and repairs WebDataset tars, Parquet, Arrow, "
    "MDS, JSON Lines, CSV, loose files and WARC, and feeds training."
)
_FIRST = "Start with [For agents](skill.md): what to type for which task, rules, exit statuses and worked tasks."
_LAST = ("Python reference", "Design")
"""Sections that a reader may skip."""


def text() -> str:
    """Return the list: a section for each part of the navigation, a line for each page."""
    [navigation] = re.findall(r"^nav:\n(?:[ #].*\n|\n)*", (HERE.parent / "mkdocs.yml").read_text(), re.MULTILINE)
    sections: dict[str, list[str]] = {}
    for section, title, page in _pages(yaml.safe_load(navigation)["nav"]):
        sections.setdefault("Optional" if section in _LAST else section, []).append(_line(title, page))
    ordered = sorted(sections.items(), key=lambda one: one[0] == "Optional")
    return "\n\n".join(
        ["# lading", f"> {_SUMMARY}", _FIRST, *(f"## {name}\n\n" + "\n".join(lines) for name, lines in ordered)]
    ) + "\n"  # fmt: skip


def _pages(entries: list[Mapping[str, Any]], section: str = "") -> Iterator[tuple[str, str, str]]:
    """Return the pages, each with its section in the navigation and its title."""
    for entry in entries:
        [(title, inside)] = entry.items()
        if isinstance(inside, str):
            yield section or "Pages", title, inside
        else:
            yield from _pages(inside, section or title)


def _line(title: str, page: str) -> str:
    """Return the link of a page with its first sentence. Of pages made of docstrings, the site has all the text."""
    source = (HERE / page).read_text()
    target = page.removesuffix(".md") + (".html" if re.search(r"^::: ", source, re.MULTILINE) else ".md")
    body = re.sub(r"\A---\n.*?^---\n|^```.*?^```$", "", source, flags=re.DOTALL | re.MULTILINE)
    prose = re.search(r"^[\w`[].*(?:\n\S.*)*", body, re.MULTILINE)
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", " ".join((prose[0] if prose else title).split()))
    first = re.split(r"(?<=[.:])\s", plain)[0].rstrip(":.")
    return f"- [{title}]({target}): {first}."


def on_post_build(config: Mapping[str, Any]) -> None:
    """Put the Markdown of each page next to its HTML."""
    for page in Path(config["docs_dir"]).rglob("*.md"):
        shutil.copyfile(page, Path(config["site_dir"]) / page.relative_to(config["docs_dir"]))


if __name__ == "__main__":
    (HERE / "llms.txt").write_text(text())
