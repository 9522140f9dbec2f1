"""Modules import only from lower layers; format packages are imported by the registry alone (`docs/design.md`)."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import lading
from lading._core.formats.registry import format_names

_ROOT = Path(lading.__file__).parent
_CORE = _ROOT / "_core"

LAYERS = (
    "errors spelling units visible json_forms result_text secret_urls limits options arguments arrow features",
    "content codecs processes",
    "storage",
    "media caches",
    "formats",
    "interleaved manifest",
    "pipeline",
    "dataset",
    "jobs tables testing train",
    "view",
    "api",
    "public",
    "cli compat",
    "__init__ __main__",
)
"""Packages and modules, lowest layer first. Those in one layer do not import each other, except in the lowest layer."""

PUBLIC = {"caches", "features", "formats", "media", "ray", "train"}
"""Modules that only give names of `_core` to users: the layer `public`."""

APART = {"data", "testing"}
"""Packages that nothing else in lading imports."""

LOWEST_MAY_IMPORT = {*sys.stdlib_module_names, "pyarrow", "numpy", "xxhash", "orjson", "PIL", "soundfile"}
"""Libraries of the lowest layer. Pillow and soundfile are imported where pixels and samples become files."""

_LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names.split()} | {"_core": 0, "data": 0}
_FILES = {
    ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(_ROOT.rglob("*.py"))
}


@cache
def _trees() -> dict[str, ast.Module]:
    """Every module, parsed by the first test that asks: each worker collects tests, and would wait for this."""
    return {module: ast.parse(path.read_text()) for module, path in _FILES.items()}


def _imports(module: str) -> Iterator[str]:
    """Modules that one imports when it runs, by full name; not those that only a type checker sees."""
    pending: list[ast.AST] = [_trees()[module]]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & _FILES.keys()
            yield from inner or {str(node.module)}
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements alone: expressions are many
            pending += inner if isinstance(inner := getattr(node, name, ()), list) else ()


@cache
def _edges() -> dict[str, list[str]]:
    """Modules of lading that each module imports."""
    return {module: sorted({*_imports(module)} & _FILES.keys()) for module in _FILES}


def _package(module: str) -> str:
    parts = module.split(".")[1:] or ["__init__"]
    if parts[0] == "_core":
        return parts[1] if len(parts) > 1 else "_core"
    return "public" if parts[0] in PUBLIC else parts[0]


def _may_import(module: str, target: str) -> bool:
    package, other = _package(module), _package(target)
    if package == other:
        return True
    both_lowest = _LAYER[package] == _LAYER[other] == 0
    return other not in APART and (both_lowest or _LAYER[other] < _LAYER[package])


def test_every_module_has_a_layer() -> None:
    assert {_package(module) for module in _FILES} - _LAYER.keys() == set()


def test_imports_go_down() -> None:
    up = [(module, target) for module, targets in _edges().items() for target in targets]
    assert [f"{module} → {target}" for module, target in up if not _may_import(module, target)] == []


def test_no_cycle() -> None:
    try:
        TopologicalSorter(_edges()).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_the_lowest_layer_stands_on_few_libraries() -> None:
    lowest = [name for name in _FILES if name.count(".") and _LAYER[_package(name)] == 0]
    foreign = {(module, name.split(".")[0]) for module in lowest for name in _imports(module)}
    assert {(module, name) for module, name in foreign if name not in LOWEST_MAY_IMPORT | {"lading"}} == set()


def test_pillow_is_imported_where_pictures_are() -> None:
    at_import = [(module, ast.unparse(statement)) for module, tree in _trees().items() for statement in tree.body]
    assert [module for module, statement in at_import if statement.startswith(("import PIL", "from PIL"))] == []


@pytest.mark.soak
def test_to_look_at_columns_does_not_import_pillow() -> None:
    code = "import sys, lading; print(lading.open(sys.argv[1]).columns, 'PIL' in sys.modules)"
    shard = str(_CORE / "data" / "docs-00000.tar")
    done = subprocess.run([sys.executable, "-c", code, shard], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("False\n")


# Formats: only the registry knows their packages, and nobody asks for their classes or compares their names.

_PACKAGES = {path.parent.name for path in (_CORE / "formats").glob("*/__init__.py")}

KNOW_A_FORMAT = {
    "lading._core.formats.registry": "names the built-in formats",
    "lading.compat.mds_shards": "has the names and the behaviour of one peer's reader",
}
"""Modules outside the format packages that name one, and why."""


def _format_package(module: str) -> str | None:
    parts = module.split(".")
    return parts[3] if parts[1:3] == ["_core", "formats"] and len(parts) > 3 and parts[3] in _PACKAGES else None


def _outside() -> Iterator[tuple[str, ast.AST]]:
    """Every node of the modules that may not know a format."""
    for module, tree in _trees().items():
        if module not in KNOW_A_FORMAT and not _format_package(module):
            yield from ((f"{module}:{getattr(node, 'lineno', 0)}", node) for node in ast.walk(tree))


def _concrete() -> set[str]:
    """Names of the classes of format packages, and of readers, that no other module has."""
    found, others = set[str](), set[str]()
    for module, tree in _trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                reads = any(isinstance(base, ast.Name) and base.id == "ShardReader" for base in node.bases)
                is_own = bool(_format_package(module)) or (reads and module != "lading._core.formats.base")
                (found if is_own else others).add(node.name)
    return found - others


def test_nobody_imports_a_format_package_but_the_registry() -> None:
    for module in _FILES.keys() - KNOW_A_FORMAT.keys():
        packages = {target: _format_package(target) for target in _edges()[module]}
        assert [target for target, name in packages.items() if name not in (None, _format_package(module))] == [], (
            module
        )


def test_nobody_asks_for_a_class_of_a_format_or_view() -> None:
    concrete = _concrete()
    assert {"ParquetFormat", "MdsReader", "WebdatasetWriter", "ItemsView"} <= concrete
    for place, node in _outside():
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            asked = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            assert asked & concrete == set(), place


def test_nobody_compares_the_name_of_a_format() -> None:
    names = {*format_names()}
    for place, node in _outside():
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            of_format = any(isinstance(side, ast.Attribute) and side.attr in ("name", "format") for side in sides)
            told = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and part.value in names}
            assert not (of_format and told), place


def test_every_exemption_is_needed() -> None:
    concrete = _concrete()
    for module in KNOW_A_FORMAT.keys() - {"lading._core.formats.registry"}:
        asked = {part.id for part in ast.walk(_trees()[module]) if isinstance(part, ast.Name)}
        assert any(map(_format_package, _edges()[module])) or asked & concrete, module
