"""A file imports only lower layers, and its own folder's shared files (`docs/design.md`)."""

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
    (
        "errors units limits deep_json jsontext encoding arrow_values extents pieces mds_values ref views picks ranges "
        "hashing features batches braces casts texts rows option_types json_columns huggingface interleaved ipc align "
        "canonical digests manifest where"
    ),
    "image codecs tar tar_write",
    "store",
    "media arrow",
    "formats",
    "fetch index_cache local_copy manifest_files source",
    "layouts",
    "commit kept_reading part_writer shard taking",
    "dataset",
    "dataset_writer opening",
    "jobs testing",
    "cli",
    "__init__",
)
"""What stands on one line does not import each other, but for the first line (there without cycles)."""

SHARED = {
    "arrow": {"columns", "films", "layout", "meta", "tables"},
    "codecs": {"protocol"},
    "store": {"appender", "background", "checksum", "lock", "protocol"},
    "formats": {"index_json", "protocol", "registry", "symptoms", "textfile"},
    "layouts": {"protocol", "options", "gather", "follow", "packed", "packed_write"},
    "media": {"ahead", "archives", "documents", "reader", "records"},
    "jobs": {
        "checksums",
        "copying",
        "damage",
        "digest",
        "filters",
        "headers",
        "indexes",
        "ledger",
        "messages",
        "own_process",
        "plan",
        "pool",
        "progress",
        "reading",
        "run",
        "salvage_files",
        "salvage_shard",
        "salvage_source",
        "spec",
        "splits",
        "tasks",
        "threads",
    },
    "cli": {"options", "output", "progress", "samples", "text"},
}
"""Files of a folder that the others in it may import."""

DOORS = {
    "arrow": {"cache"},
    "codecs": {"registry"},
    "store": {"open", "roots"},
    "layouts": {"open"},
    "jobs": {"demo"},
    "cli": {"main"},
}
"""Files of a folder that may import all others in it, as its `__init__` may."""

BESIDE = {"data", "testing"}
"""Rooms that nothing in the package imports."""

GROUND = {*sys.stdlib_module_names, "pyarrow", "numpy", "xxhash", "orjson", "PIL"}
"""What the first layer may import; Pillow, an extra, where an image of raw pixels is made."""

_LAYER = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms.split()} | {"data": 0}
_FILES = {
    ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(_ROOT.rglob("*.py"))
}


def _imports(path: Path) -> Iterator[str]:
    """Modules that a file imports anywhere in it, by full name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & _FILES.keys()
            yield from inner or {str(node.module)}


_EDGES = {module: sorted(set(_imports(path)) & _FILES.keys()) for module, path in _FILES.items()}


def _room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def _family(file: str) -> str:
    """Files that are one thing in parts: `webdataset.py` and `_webdataset_scan.py`, `mint.py` and `mint_write.py`."""
    return file.strip("_").split("_", maxsplit=1)[0]


def _may_import(module: str, target: str) -> bool:
    room, other = _room(module), _room(target)
    if room == other:
        file, other_file = module.rpartition(".")[2], target.rpartition(".")[2]
        if _family(file) == _family(other_file):
            return True
        return file in {room, *DOORS.get(room, ())} or other_file in SHARED.get(room, ())
    both_ground = _LAYER[room] == _LAYER[other] == 0
    return other not in BESIDE and (both_ground or _LAYER[other] < _LAYER[room])


def test_every_module_has_a_layer() -> None:
    assert {_room(module) for module in _FILES} - _LAYER.keys() == set()


@pytest.mark.parametrize("module", _EDGES)
def test_imports_go_down(module: str) -> None:
    assert [target for target in _EDGES[module] if not _may_import(module, target)] == []


def test_no_cycle() -> None:
    try:
        TopologicalSorter(_EDGES).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


@pytest.mark.parametrize("room", LAYERS[0].split())
def test_the_ground_stands_on_few_libraries(room: str) -> None:
    path = _ROOT / f"{room}.py"
    foreign = {name.split(".")[0] for name in _imports(path)} - {"lading"} if path.exists() else set()
    assert foreign - GROUND == set()
