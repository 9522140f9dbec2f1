"""Every code block of the documentation runs, page by page, each page in an empty folder.

Rules for the pages:

- A fenced block names its language, one of `_LANGUAGES`. There are no indented blocks.
- `python` blocks of a page run in order and share their names. A comment `# → value` is the `repr` of its line. A page
  ends where a package of `_IF_INSTALLED` is missing.
- `console` blocks run: lines with `$ ` are commands, the lines below them are output, in which `…` stands for any text.
  A command ends with `# status N` if its exit status is not 0. `cd` changes the folder. Other commands than these and
  `lading` are listed in `_NOT_RUN`.
- A page makes the data that it needs: in a block, or by `lading demo --to demo`, which runs once for all pages.
- `text`, `json` and `yaml` blocks are shown only.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hub_fixture import hub_of_test, running_hub_of_module  # noqa: F401 - fixtures
from hub_server import TOKEN
from lading._core.cli.main import app
from object_server import environment

_ROOT = Path(__file__).parents[2]
_PAGES = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md", *sorted((_ROOT / "docs").rglob("*.md"))]
_LANGUAGES = {"python", "console", "text", "json", "yaml"}
_NOT_RUN = {
    "git clone": "needs the network",
    "pip install": "needs the network, and changes the environment",
    "export": "sets what the next command needs, which does not run",
    "lading info 's3://": "needs a store in the network",
    "lading convert s3://": "needs a store in the network",
    "lading view": "serves until Ctrl-C; tests/view run it",
    "make": "runs the tests that run this one",
}
_IF_INSTALLED = {"accelerate", "av", "jax", "lightning", "nvidia", "nvidia.dali", "sympy", "torch", "torchdata",
                 "torchvision", "transformers"}  # fmt: skip
"""What pages about training and videos import; torch needs sympy for its optimizers."""
_WITH_BLOCKS = [page for page in _PAGES if re.search(r"^ *```(python|console)$", page.read_text(), re.MULTILINE)]
_LONG = {
    "batches-by-size.md", "cookbook.md", "object-stores.md", "reshard.md", "train-frameworks.md", "train-pytorch.md",
}  # fmt: skip
"""Pages that take more than a second."""


def _blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Language, text and first line of each fenced block, without the indent of a list that it is in."""
    language, indent, first, lines = "", "", 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if fence := re.match(r"( *)```(\S*)", line):
            if first:
                yield language, "\n".join(lines) + "\n", first
                first = 0
            else:
                indent, language, first, lines = fence[1], fence[2], number + 1, []
        elif first:
            lines.append(line.removeprefix(indent))


def test_every_block_names_a_language() -> None:
    for page in _PAGES:
        assert {language for language, _, _ in _blocks(page)} - _LANGUAGES == set(), page
        prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        assert re.findall(r"\n\n(    \S.*)", prose) == [], page


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `lading demo --to demo` writes."""
    folder = tmp_path_factory.mktemp("data") / "demo"
    CliRunner().invoke(app, ["demo", "--to", str(folder)], catch_exceptions=False)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def local_ray() -> Iterator[None]:
    """A small cluster of its own, which ends with the page."""
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, object_store_memory=80 << 20, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.mechanism("pages of the documentation")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.soak] if page.name in _LONG else []) for page in _WITH_BLOCKS],
    ids=lambda page: str(page.relative_to(_ROOT)),
)
def test_the_blocks_of_a_page_run(
    page: Path, demo: Path, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    names: dict[str, Any] = {"__name__": "__docs__"}
    run: dict[str, Callable[[str, str], None]] = {"python": lambda text, at: _run_python(text, at, names)}
    run |= {"console": lambda text, at: _run_console(text, at, demo)}
    with warnings.catch_warnings():
        if page.name == "object-stores.md":
            for name, value in environment(request.getfixturevalue("server")).items():
                monkeypatch.setenv(name, value)
        if page.name == "hub.md":
            monkeypatch.setattr("datasets.config.HF_ENDPOINT", request.getfixturevalue("hub").url)
            monkeypatch.setenv("HF_TOKEN", TOKEN)
            warnings.filterwarnings("ignore", "Use 'content=", DeprecationWarning)  # of the Hub's client
        if page.name == "train-frameworks.md":
            request.getfixturevalue("local_ray")
        if page.name.startswith("train-"):
            warnings.simplefilter("ignore")  # the frameworks warn about each other
        try:
            for language, text, first in _blocks(page):
                if language in run:
                    run[language](text, f"{page.name}:{first}")
        except ModuleNotFoundError as error:
            if error.name not in _IF_INSTALLED:
                raise


def _run_python(text: str, at: str, names: dict[str, Any]) -> None:
    shown = {number: line.split("# → ")[1] for number, line in enumerate(text.splitlines(), 1) if "# → " in line}
    for statement in ast.parse(text).body:
        expected = shown.get(statement.end_lineno or 0)
        if isinstance(statement, ast.Expr) and expected is not None:
            found = repr(eval(compile(ast.Expression(statement.value), at, "eval"), names))
            assert found == expected, f"{at}: line {statement.lineno}"
        else:
            assert expected is None, f"{at}: line {statement.lineno} has no value to show"
            exec(compile(ast.Module([statement], []), at, "exec", dont_inherit=True), names)


def _run_console(text: str, at: str, demo: Path) -> None:
    for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = entry.partition("\n")
        status = int(match[1]) if (match := re.search(r"# status (\d+)$", command)) else 0
        if any(command.startswith(start) for start in _NOT_RUN):
            continue
        words = shlex.split(command.split(" | ")[0], comments=True)
        if words[0] == "cd":
            os.chdir(words[1])
            continue
        if words == ["lading", "demo", "--to", "demo"]:
            shutil.copytree(demo, "demo")
            continue
        assert words[0] == "lading", f"{at}: neither a command of lading nor in _NOT_RUN: {command}"
        result = CliRunner().invoke(app, words[1:], prog_name="lading")
        assert result.exit_code == status, f"{at}: {command}\n{result.output}"
        expected = ".*".join(re.escape(part.strip()) for part in _spaced(output).split("…"))
        assert re.search(expected, _spaced(result.output)), f"{at}: {command}\n{result.output}"


def _spaced(text: str) -> str:
    return " ".join(text.split())
