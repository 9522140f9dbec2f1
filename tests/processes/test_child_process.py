"""What commands and workers do without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_SEEN = """
import os
with open(os.environ["SEEN"], "a") as seen:
    seen.write(f"{os.getpid()}\\n")
__version__ = "3.0.0"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which `pandas` is a module that notes who imports it, in `seen`."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "pandas.py").write_text(_SEEN)
    return {**os.environ, "SEEN": str(tmp_path / "seen"), "PYTHONPATH": str(tmp_path / "path")}


def run(code: str, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.soak
def test_a_command_and_its_workers_start_without_pandas(
    tmp_path: Path, docs: Path, environment: dict[str, str]
) -> None:
    words = ("convert", str(docs), str(tmp_path / "out"), "--to", "parquet", "--workers", "2")
    run("from lading._core.cli.main import run; run()", environment, *words)
    assert not (tmp_path / "seen").exists()


@pytest.mark.mechanism("pandas is not imported")
def test_to_import_lading_imports_no_pandas(tmp_path: Path, environment: dict[str, str]) -> None:
    run("import lading; assert lading.open and lading.convert", environment)
    assert not (tmp_path / "seen").exists()


@pytest.mark.soak
def test_whoever_asks_for_pandas_later_gets_it(tmp_path: Path, environment: dict[str, str]) -> None:
    code = "from lading._core.processes.child_process import leave_pandas_out as leave; leave(); "
    code += "import pandas; print(pandas.__version__)"
    assert run(code, environment) == "3.0.0\n"
    assert (tmp_path / "seen").exists()
