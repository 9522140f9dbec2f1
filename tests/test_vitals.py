"""The script that counts the source counts by its definitions."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_SCRIPT = Path(__file__).parents[1] / "bench" / "vitals.py"
_BASE = '''"""A module."""

# A comment
@runtime_checkable
class Recoverable(Protocol):
    """A protocol."""

    def recover(self, a, b, c, d, e, f, g, h): ...
'''
_JOB = """from lading.formats.base import Recoverable
from lading.formats.mds.reader import MdsReader


def job(a, b, c, d, e, f, g, h, i):
    if isinstance(a, (Recoverable, MdsReader)) or a.format.name == "mds":
        return b
"""


def test_definitions(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("vitals", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    vitals = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(vitals)
    files = {"formats/base": _BASE, "formats/mds/reader": "class MdsReader: ...\n", "jobs/job": _JOB, "__init__": ""}
    for name, text in files.items():
        path = tmp_path / "src" / "lading" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    counts = vitals.count_source(tmp_path)
    assert counts["code lines"] == 9
    assert counts["largest module"] == "jobs/job 5"
    assert counts["functions with more than 8 parameters"] == counts["… outside the front door"] == 1
    assert counts["optional protocols"] == counts["isinstance on optional protocols"] == 1
    assert counts["isinstance on a concrete format, reader, writer or view"] == 1
    assert counts["comparisons of a format's name"] == 1
    assert counts["imports of formats from outside"] == 1
