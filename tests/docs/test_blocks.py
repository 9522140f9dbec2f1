"""Every code block of the documentation runs, page by page, in a folder with small datasets.

Rules for the pages:

- A fenced block names its language, one of `_LANGUAGES`. There are no indented blocks.
- `python` blocks of a page run in order and share their names. A comment `# → value` is the `repr` of its line. A page
  ends where a package of `_IF_INSTALLED` is missing.
- `console` blocks run: lines with `$ ` are commands, the lines below them are output, in which `…` stands for any text.
  A command ends with `# status N` if its exit status is not 0. Commands other than `lading` are listed in `_NOT_RUN`.
- `text`, `json` and `yaml` blocks are shown only.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

import lading
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
    "make": "runs the tests that run this one",
    "lading demo": "the cookbook and the first page start from its folder, which the fixture makes once",
}
_IF_INSTALLED = {"accelerate", "jax", "lightning", "sympy", "torch", "torchdata", "transformers"}
"""What pages about training import; torch needs sympy for its optimizers."""
_WITH_BLOCKS = [page for page in _PAGES if re.search(r"^ *```(python|console)$", page.read_text(), re.MULTILINE)]
_LONG = {"cookbook.md", "object-stores.md", "reshard.md", "train-pytorch.md"}
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
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The datasets that the pages name: documents in several formats, photos with captions, tables, damaged tars."""
    folder = tmp_path_factory.mktemp("datasets")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        CliRunner().invoke(app, ["demo", "--to", "demo"], catch_exceptions=False)
        for name, shard in (("mint", "{:05d}.tar"), ("docs", "docs-{:05d}.tar"), ("broken", "{:05d}.tar")):
            Path(name).mkdir()
            for number in range(2):
                source = resources.files("lading._core.data") / f"docs-{number:05d}.tar"
                Path(name, shard.format(number)).write_bytes(source.read_bytes())
        cut = Path("broken/00001.tar")
        cut.write_bytes(cut.read_bytes()[:400_000])
        _write_photos()
        _write_tables()
        for part in ("a", "b"):
            lading.convert("photos", f"parts/{part}", format="parquet")
    return folder


def _write_photos() -> None:
    with lading.writer("photos", format="webdataset", shard_size="20KB") as writer:
        for number in range(100):
            picture = BytesIO()
            Image.new("RGB", (64 + number, 96), (number, 80, 200)).save(picture, "jpeg")
            caption = {"caption": f"photo {number}", "lang": ("en", "de")[number % 2], "score": number / 100}
            writer.write({"__key__": f"{number:06d}", "jpg": picture.getvalue(), "json": caption})


def _write_tables() -> None:
    people = 'name,age,note\nAda,36,\nAlan,41,""\n'
    Path("people.csv").write_text(people)
    Path("table.csv").write_text(people.replace(",", ";"))
    Path("captions.tsv").write_text('a 5" disk\thttp://host/1.jpg\n"so" it is\thttp://host/2.jpg\n')
    with lading.writer("dump", format="jsonl", options={"compression": "zstd"}) as writer:
        writer.write({"id": 1, "text": "first"})
    Path("dump/shard-000000.jsonl.zst").rename("dump.jsonl.zst")
    lading.convert(
        "people.csv", "table", format="parquet", source_options={"types": {"age": "int64"}}, columns=["name", "age"]
    )


@pytest.fixture
def place(datasets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(datasets, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LADING_CACHE", str(tmp_path / ".cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.mechanism("pages of the documentation")
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.soak] if page.name in _LONG else []) for page in _WITH_BLOCKS],
    ids=lambda page: str(page.relative_to(_ROOT)),
)
def test_the_blocks_of_a_page_run(
    page: Path, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    names: dict[str, Any] = {"__name__": "__docs__"}
    run: dict[str, Callable[[str, str], None]] = {"python": lambda text, at: _run_python(text, at, names)}
    run |= {"console": _run_console}
    with warnings.catch_warnings():
        if page.name == "object-stores.md":
            for name, value in environment(request.getfixturevalue("server")).items():
                monkeypatch.setenv(name, value)
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


def _run_console(text: str, at: str) -> None:
    for entry in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = entry.partition("\n")
        status = int(match[1]) if (match := re.search(r"# status (\d+)$", command)) else 0
        if any(command.startswith(start) for start in _NOT_RUN):
            continue
        words = shlex.split(command.split(" | ")[0], comments=True)
        assert words[0] == "lading", f"{at}: neither a command of lading nor in _NOT_RUN: {command}"
        result = CliRunner().invoke(app, words[1:], prog_name="lading")
        assert result.exit_code == status, f"{at}: {command}\n{result.output}"
        expected = ".*".join(re.escape(part.strip()) for part in _spaced(output).split("…"))
        assert re.search(expected, _spaced(result.output)), f"{at}: {command}\n{result.output}"


def _spaced(text: str) -> str:
    return " ".join(text.split())
