"""The tables of `docs/coming-from.md`, whose lines are tests of both libraries.

TABLE = Table("webdataset")

@TABLE.line("`.batched(64)`")
def test_batches(tmp_path): ...        # runs what both cells of the line say, and compares

def test_each_line_is_run():
    TABLE.check()
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_PAGE = Path(__file__).parents[2] / "docs" / "coming-from.md"
_NAME = re.compile(r"([A-Za-z_]\w*)(?=\(|=|$)")
_CODE = re.compile(r"`([^`]+)`")
_Test = TypeVar("_Test", bound=Callable[..., Any])


class Table:
    """The lines below one heading of the page, and their tests."""

    def __init__(self, library: str) -> None:
        [part] = re.findall(rf"^## {re.escape(library)}\n(.*?)(?=^## |\Z)", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
        headless = re.sub(r"^\|.*\n\|---.*$", "", part, flags=re.MULTILINE)
        cells = [line.strip("|").split(" | ") for line in headless.splitlines() if line.startswith("|")]
        self.lines = {row[0].strip(): row[1].strip() for row in cells}
        self._sources: dict[str, str] = {}

    def line(self, *firsts: str) -> Callable[[_Test], _Test]:
        """Say which lines a test runs, by their first cells."""

        def keep(test: _Test) -> _Test:
            for first in firsts:
                self._sources[first] = self._sources.get(first, "") + inspect.getsource(test)
            return test

        return keep

    def check(self) -> None:
        """Fail if a line has no test, a test no line, or a test leaves out a name that lading's cell calls or gives."""
        assert set(self._sources) == set(self.lines), set(self._sources) ^ set(self.lines)
        for first, cell in self.lines.items():
            names = {name for code in _CODE.findall(cell) for name in _NAME.findall(code)}
            missing = {name for name in names if not re.search(rf"\b{name}\b", self._sources[first])}
            assert not missing, f"{first}: the test does not use {missing}"
