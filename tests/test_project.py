"""Docs, packaging and changelog match the code."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pytest
import yaml

import lading
from lading import errors
from lading._core.cli.main import app
from lading._core.formats.format import NoOptions
from lading._core.formats.registry import format_names, get_format

_ROOT = Path(__file__).parents[1]
_PAGES = sorted(p for folder in ("", "docs/**/", "bench/", "tests/golden/") for p in _ROOT.glob(f"{folder}*.md"))
_SECTIONS = (["Problem", "Choice", "Rejected"], ["Problem", "Choice", "Cost", "Rejected"])
_NO_MODULES = {"lading.feature", "lading.null", "lading.source_files", "lading.storage", "lading.wrapped"}
"""Keys of metadata, and a logger."""
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
_ERRORS = {name: made for name in errors.__all__ if isinstance(made := getattr(errors, name), type)}


def test_the_package_shows_few_names_and_explains_each() -> None:
    names = getattr(lading, "__all__", [])
    assert len(names) <= 28
    assert names == sorted(names)
    assert [name for name in names if not inspect.getdoc(getattr(lading, name))] == []


@pytest.mark.mechanism("names of the package in a fresh process")
def test_verbs_and_rooms_are_there_once_the_package_is() -> None:
    """In a process that has imported nothing else; a verb that only shows, or tidies up, is no function."""
    verbs = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    verbs -= {"cache", "demo", "formats", "head", "plan", "skill"}
    said = ["caches.write_cache", "media.MediaReader", "features.Image", "limits.Limits", "errors.DataError", *verbs]
    script = "\n".join(["import lading", *(f"lading.{name}" for name in said)])
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert not run.returncode, run.stderr.decode()
    assert {"caches", "media"} <= set(dir(lading))


def _drawn_tree() -> Iterator[tuple[int, str]]:
    """Depth and name of every line of the tree in the docstring of `lading.errors`."""
    for line in str(errors.__doc__).splitlines():
        match = re.match(r"    ([│ ]*(?:[├└]── )?)(\w+)", line)
        if match and match[2] in _ERRORS:
            yield len(match[1]) // 4, match[2]


def test_the_drawn_tree_of_errors_is_the_tree_of_classes() -> None:
    above: list[str] = []
    for depth, name in _drawn_tree():
        parent = _ERRORS[name].__bases__[0].__name__
        assert parent == (above[depth - 1] if depth else "Exception")
        above[depth:] = [name]
    assert sorted(name for _, name in _drawn_tree()) == sorted(_ERRORS)


def test_the_page_of_errors_lists_them_with_status_and_builtin() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (?:`(\w+)`)? ?\| .* \| (\d?) ?\|$", (_ROOT / "docs/errors.md").read_text(), re.MULTILINE
    )
    assert [name for name, _, _ in rows] == [name for _, name in _drawn_tree()]
    for name, builtin, status in rows:
        assert not builtin or issubclass(_ERRORS[name], getattr(builtins, builtin)), name
        assert not status or int(status) == _ERRORS[name].exit_status, name


def test_the_python_reference_shows_every_public_name() -> None:
    text = "".join(page.read_text() for page in (_ROOT / "docs/reference").glob("*.md"))
    shown = re.findall(r"^::: lading(?:\.\w+)*\.(\w+)$", text, re.MULTILINE)
    assert set(lading.__all__) - set(shown) == set()


def test_names_of_lading_in_code_exist() -> None:
    for page in _PAGES:
        code = re.findall(r"`([^`\n]+)`", page.read_text())
        names = {name for text in code for name in re.findall(r"\blading(?:\.[A-Za-z_]\w*)+", text)}
        assert [name for name in sorted(names - _NO_MODULES) if not _resolves(name)] == [], page


def _resolves(name: str) -> bool:
    found: Any = lading
    for part in name.split(".")[1:]:
        try:
            found = getattr(found, part) if hasattr(found, part) else import_module(f"{found.__name__}.{part}")
        except (AttributeError, ImportError):
            return False
    return True


def test_every_format_has_a_page_and_is_on_the_first_page() -> None:
    index = (_ROOT / "docs/index.md").read_text()
    for name in format_names():
        assert (_ROOT / f"docs/formats/{name}.md").exists()
        assert f"formats/{name}.md" in index


def test_the_page_of_a_format_names_its_options() -> None:
    for name in format_names():
        page = (_ROOT / f"docs/formats/{name}.md").read_text()
        info = get_format(name).info
        for options in (info.read_options, info.write_options or NoOptions):
            assert [f.name for f in fields(options) if f"`{f.name}`" not in page] == []
    page = (_ROOT / "docs/formats/webdataset.md").read_text()
    assert [f.name for f in fields(lading.options.InterleavedOptions) if f"`{f.name}`" not in page] == []


def test_every_file_and_room_is_in_the_design() -> None:
    design = (_ROOT / "docs/design.md").read_text()
    found = [*(_ROOT / "src/lading").iterdir(), *(_ROOT / "src/lading/_core").iterdir()]
    rooms = {path.name + ("/" if path.is_dir() else "") for path in found if path.name[0] not in "_."}
    assert {room for room in rooms - {"py.typed"} if f"| `{room}` |" not in design} == set()


def test_links_lead_somewhere() -> None:
    for page in _PAGES:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
        assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == [], page


def test_decision_pages_tell_problem_choice_and_what_was_rejected() -> None:
    pages = sorted((_ROOT / "docs/decisions").glob("*.md"))
    heads = {page.name: re.findall(r"^## (\w+)", page.read_text(), re.MULTILINE) for page in pages}
    assert pages
    assert [name for name, found in heads.items() if [*dict.fromkeys(found)] not in _SECTIONS] == []


def test_changelog_begins_with_the_version_of_the_package() -> None:
    text = (_ROOT / "CHANGELOG.md").read_text()
    sections = re.findall(r"^## (\S+?),? ", text, re.MULTILINE)
    assert sections[0] == _PROJECT["version"]
    first = text.split("\n## ")[1]
    assert re.findall(r"^###.*\n(?!- )", first, re.MULTILINE) == []  # a heading is followed by a list of changes


def test_dependencies_are_used_and_extras_gathered() -> None:
    imported = {
        name.split(".")[0]
        for path in _ROOT.glob("src/**/*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    needed = {re.split(r"[<>=\[.]", line)[0] for line in _PROJECT["dependencies"]}
    assert "yaml" in imported
    # pyarrow imports one of them; the others are `PIL` and `yaml`
    assert needed - imported == {"pillow", "python-dateutil", "pyyaml"}
    extras = _PROJECT["optional-dependencies"]
    assert extras["all"] == [f"lading[{name}]" for name in sorted(extras.keys() - {"all", "dev", "docs", "interop"})]


def test_every_waiver_of_a_rule_says_why() -> None:
    waiver = re.compile(r"# (?:noqa|type: ignore)\b.*")
    reason = re.compile(r"# noqa: [A-Z0-9, ]+ - \S.*|# type: ignore\[[\w-]+\] # \S.*")
    lines = [(path, line) for path in _ROOT.glob("src/**/*.py") for line in path.read_text().splitlines()]
    found = [(path.name, match[0]) for path, line in lines if (match := waiver.search(line))]
    assert [where for where in found if not reason.fullmatch(where[1])] == []


def test_the_small_dataset_travels_with_the_package() -> None:
    folder = resources.files("lading._core.data")
    assert "Apache License 2.0" in (folder / "NOTICE.md").read_text()
    for name in ("docs-00000.tar", "docs-00001.tar"):
        with (folder / name).open("rb") as file, tarfile.open(fileobj=file) as tar:
            assert any(member.endswith(".json") for member in tar.getnames())


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    places = re.compile(
        "|".join(["/" + "work/", r"\.\./" + "shared", "/" + r"home/\w", "/" + r"Users/\w", "/" + r"root/\w"])
    )
    folders = ("src", "tests", "docs", "bench", ".ci")
    text = {".py", ".md", ".toml", ".txt", ".json", ".yml", ".yaml", ""}
    paths = [p for folder in folders for p in (_ROOT / folder).rglob("*") if p.is_file() and p.suffix in text]
    paths += [p for p in _ROOT.iterdir() if p.is_file() and p.suffix in text and p.name != ".git"]
    assert [str(path) for path in paths if places.search(path.read_text(errors="replace"))] == []


def test_the_site_is_searched_from_disk_without_the_network() -> None:
    site = yaml.safe_load((_ROOT / "mkdocs.yml").read_text())
    assert "offline" in site["plugins"]
    assert [name for name in site["extra"]["polyfills"] if not (_ROOT / "docs" / name).is_file()] == []
    assert not site["use_directory_urls"]


def test_the_oldest_versions_that_are_tested_are_the_bounds() -> None:
    lines = (_ROOT / "tests" / "oldest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    bounds = dict(each.partition(";")[0].split(">=") for each in _PROJECT["dependencies"])
    assert {name: f"{bound}.0.0"[: len(pinned[name])] for name, bound in bounds.items()} == {
        name: pinned[name] for name in bounds
    }
