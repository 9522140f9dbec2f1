"""Functions that the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lading._core.cli.functions import named_function
from lading._core.cli.main import app
from lading.errors import UsageError


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def double(sample):\n    return {'n': 2 * sample['n']}\n")
    assert named_function("--map", f"{tmp_path}/steps.py:double")({"n": 4}) == {"n": 8}


def test_a_function_of_a_module() -> None:
    assert named_function("--map", "math:sqrt")(9) == 3


@pytest.mark.parametrize(
    "text, message",
    [
        ("{}/steps.py", "not the name of a function.*FILE.py:FUNCTION"),
        ("{}/other.py:double", "other.py: --map: no such file"),
        ("{}/steps.py:triple", "no such function; expected double, found triple"),
        ("{}/broken.py:double", "cannot be loaded; found SyntaxError"),
        ("no_such_module_of_lading:double", "cannot be loaded; found ModuleNotFoundError"),
    ],
)
def test_what_is_not_there(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def double(sample):\n    return None\n")
    (tmp_path / "broken.py").write_text("def double(:\n")
    with pytest.raises(UsageError, match=message):
        named_function("--map", text.format(tmp_path))


def test_an_interrupt_says_how_to_keep_what_functions_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for n in range(2):
        (tmp_path / f"{n}.jsonl").write_text(f'{{"n": {n}}}\n')
    (tmp_path / "f.py").write_text(
        "def stops(sample):\n    if sample['n'] == 1:\n        raise KeyboardInterrupt\n    return {'m': 1}\n"
    )
    options = ["--to", "jsonl", "--map", "f.py:stops", "--shuffle", "--resume"]
    stopped = CliRunner().invoke(app, ["convert", "0.jsonl", "1.jsonl", "out", *options], prog_name="lading")
    assert stopped.exit_code == 130
    assert "Kept: what functions made, in" in stopped.stderr
    assert "Go on with --resume" in stopped.stderr
