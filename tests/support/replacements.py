"""Replacements for modules that a peer imports, and that the tests do not use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["replaced", "replacement"]


class _StandIn(ModuleType):
    """A module that has every name, as an empty class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _StandIns(MetaPathFinder, Loader):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.split(".", maxsplit=1)[0] in self._names else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def replacement(*names: str) -> None:
    """Make imports of these packages, or of modules in them, return replacements."""
    sys.meta_path.insert(0, _StandIns(names))


@contextmanager
def replaced(*names: str) -> Iterator[None]:
    """Do so in a `with` block: other tests of the process find these packages as they are."""
    finder = _StandIns(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIn)]:
            del sys.modules[name]
