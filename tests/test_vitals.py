"""The script that counts the source counts by its definitions, and what it holds does not rise."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

_ROOT = Path(__file__).parents[1]
_BASE = '''"""A module."""

# A comment
@runtime_checkable
class Recoverable(Protocol):
    """A protocol."""

    def recover(self, a, b, c, d, e, f, g, h): ...


class FormatInfo:
    name: str
    flag: bool = False


class Format(ABC):
    def open(self): ...

    def close(self): ...

    def _inner(self): ...
'''
_MDS = """class MdsReader(ShardReader):
    def __init__(self, inner: ShardReader): ...

class MdsFormat(Format):
    def open(self): ...

class CsvFormat(Format):
    def open(self): ...
    def close(self): ...
"""
_STEP = "class Select: ...\n\ndef own(step): return isinstance(step, Select)\n"
_FEATURE = "class Image: ...\n\ndef own(feature): return isinstance(feature, Image)\n"
_FEATURE_CHECKS = """from lading._core.features.types import Image

def weight(feature):
    match feature:
        case Image():
            return 1
    return isinstance(feature, (str, Image))
"""
_JOB = """from lading._core.dataset.steps.step import Select
from lading._core.formats.base import Recoverable
from lading._core.formats.mds.reader import MdsReader

COLUMN_STEPS = (Select,)

def job(a, b, c, d, e, f, g, h, i):
    if isinstance(a, (Recoverable, MdsReader)) or a.format.name == "mds":
        return _once(b) if a.view == "samples" else isinstance(b, Select) or isinstance(c, COLUMN_STEPS)

def _once(b): ...
"""


@pytest.fixture(scope="module")
def vitals() -> ModuleType:
    spec = importlib.util.spec_from_file_location("vitals", _ROOT / "bench" / "vitals.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_definitions(vitals: ModuleType, tmp_path: Path) -> None:
    files = {"formats/base": _BASE, "formats/mds/reader": _MDS, "jobs/job": _JOB, "dataset/steps/step": _STEP}
    files |= {"features/types": _FEATURE, "caches/columns": _FEATURE_CHECKS}
    files["jobs/pool"] = (
        "class ExecutorPool: ...\nclass Other: ...\n\ndef loop(speed): return speed.is_worth_workers()\n"
    )
    files["storage/range_reader"] = "class RangeReader: ...\nclass Other: ...\n"
    for name, text in {**files, "__init__": ""}.items():
        path = tmp_path / "src" / "lading" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_job.py").write_text('@pytest.mark.mechanism("a kill")\ndef test_it(): ...\n')
    source = vitals.modules(tmp_path / "src" / "lading")
    assert vitals.held(tmp_path, source) == {
        "checks of a step's class": 2,
        "checks of a feature's class": 2,
        "comparisons of the view": 1,
        "methods of Format": 2,
        "methods of Format that one class overrides": 1,
        "fields of FormatInfo": 2,
        "optional protocols": 1,
        "isinstance on optional protocols": 1,
        "isinstance on a concrete format, reader, writer or view": 1,
        "comparisons of a format's name": 1,
        "imports of formats from outside": 1,
        "tests that start processes": 1,
        "wrappers of readers and views": ["formats.mds.reader.MdsReader"],
        "range caches": 1,
        "class names defined twice": ["Other"],
        "pools of workers": 1,
        "loops over tasks": 1,
    }
    told = vitals.told(tmp_path, source)
    assert (told["functions with more than 8 parameters"], told["… outside the front door"]) == (1, 1)
    assert (told["one-use helpers"], told["code lines of the tests"]) == (1, 2)


def test_no_held_number_rises(vitals: ModuleType) -> None:
    """`bench/vitals.json` has the numbers. Lower them there by `make vitals`; raise none."""
    known = json.loads(vitals.VITALS.read_text())["held"]
    now = vitals.held(_ROOT, vitals.modules(_ROOT / "src" / "lading"))
    assert vitals.risen(known, now) == []
    assert vitals.risen(now, known) == [], "a number fell: run 'make vitals', and commit bench/vitals.json"
    assert now["tests that start processes"] <= 70


def test_what_rose_is_told_with_its_number(vitals: ModuleType) -> None:
    before = {"methods": 3, "wrappers": ["a.One"]}
    assert vitals.risen(before, {"methods": 3, "wrappers": []}) == []
    assert vitals.risen(before, {"methods": 5, "wrappers": ["a.One", "b.Other"]}) == [
        "methods: 5, was 3",
        "wrappers: b.Other is new",
    ]
