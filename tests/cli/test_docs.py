"""`docs/cli.md` and the help keep step."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from lading._core.cli.main import app

_DOCS = Path(__file__).parents[2] / "docs"
_MADE = runpy.run_path(str(_DOCS / "make_tables.py"))
_PAGE = (_DOCS / "cli.md").read_text()
_COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined] # a group has commands


def section(name: str) -> str:
    """The page from a command's heading to the next one."""
    found = re.search(rf"^## lading {name}\n(.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/cli.md has no section '## lading {name}'"
    return found[1]


@pytest.mark.parametrize("page", _MADE["PAGES"], ids=lambda page: page.name)
def test_tables_of_options_are_made_from_the_options(page: Path) -> None:
    assert _MADE["filled"](page.read_text()) == page.read_text(), "run: python docs/make_tables.py"


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_is_documented_in_the_section_of_its_command_or_once_for_all(name: str) -> None:
    told = section(name)
    for group in re.findall(r"\(#(\w+)-options\)", told):
        [shared] = re.findall(
            rf"^### {group} options\n(.*?)(?=^### |\Z)", _PAGE, re.IGNORECASE | re.MULTILINE | re.DOTALL
        )
        told += shared
    options = [p for p in _COMMANDS[name].params if p.param_type_name == "option" and p.name != "help"]
    assert [option.opts[0] for option in options if f"| {option.help} |" not in told] == []


def test_commands_are_documented_in_the_order_of_the_help() -> None:
    assert re.findall(r"^## lading (\w+)$", _PAGE, re.MULTILINE) == list(_COMMANDS)


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_command_is_explained_and_has_an_example_that_the_page_shows(name: str) -> None:
    help_text = _COMMANDS[name].help
    examples = re.findall(r"^(?:Example:|Examples:\n|) +(lading .*)$", help_text, re.MULTILINE)
    assert {example.split()[1] for example in examples} == {name}
    assert [example for example in examples if example not in section(name)] == []


@pytest.mark.parametrize("name", _COMMANDS)
def test_the_first_line_of_help_fits_the_list_of_commands(name: str) -> None:
    assert len(_COMMANDS[name].help.splitlines()[0]) <= 67


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_parameter_has_a_help_text_that_is_a_sentence(name: str) -> None:
    texts = [p.help for p in _COMMANDS[name].params if p.name != "help"]
    assert [text for text in texts if not text or not re.fullmatch(r"[A-Z].*\.", text)] == []
