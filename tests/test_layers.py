"""Modules import only from lower layers; format packages are imported by the registry alone (`docs/design.md`)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lading

_ROOT = Path(lading.__file__).parent

LAYERS = (
    "errors units limits options arrow features",
    "content codecs",
    "storage",
    "media caches",
    "formats",
    "interleaved manifest",
    "pipeline",
    "dataset compat",
    "jobs testing",
    "cli",
    "__init__",
)
"""Packages and modules, lowest layer first. Those in one layer do not import each other, except in the lowest layer."""

APART = {"data", "testing"}
"""Packages that nothing else in lading imports."""

LOWEST_MAY_IMPORT = {*sys.stdlib_module_names, "pyarrow", "numpy", "xxhash", "orjson", "PIL"}
"""Libraries of the lowest layer. Pillow is an extra, imported where raw pixels become an image."""

_LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names.split()} | {"data": 0}
_FILES = {
    ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(_ROOT.rglob("*.py"))
}


def _imports(path: Path) -> Iterator[str]:
    """Modules that a file imports when it runs, by full name; not those that only a type checker sees."""
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & _FILES.keys()
            yield from inner or {str(node.module)}
        pending += ast.iter_child_nodes(node)


_EDGES = {module: sorted(set(_imports(path)) & _FILES.keys()) for module, path in _FILES.items()}


def _package(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _may_import(module: str, target: str) -> bool:
    package, other = _package(module), _package(target)
    if package == other:
        return True
    both_lowest = _LAYER[package] == _LAYER[other] == 0
    return other not in APART and (both_lowest or _LAYER[other] < _LAYER[package])


def test_every_module_has_a_layer() -> None:
    assert {_package(module) for module in _FILES} - _LAYER.keys() == set()


@pytest.mark.parametrize("module", _EDGES)
def test_imports_go_down(module: str) -> None:
    assert [target for target in _EDGES[module] if not _may_import(module, target)] == []


def test_no_cycle() -> None:
    try:
        TopologicalSorter(_EDGES).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize("module", [name for name in _FILES if name.count(".") and _LAYER[_package(name)] == 0])
def test_the_lowest_layer_stands_on_few_libraries(module: str) -> None:
    foreign = {name.split(".")[0] for name in _imports(_FILES[module])} - {"lading"}
    assert foreign - LOWEST_MAY_IMPORT == set()
