"""The command and the line of Python that the page shows give the samples that it shows, whatever was typed."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import lading
from lading._core.cli.main import _Verb, app
from lading._core.cli.naming import naming_of
from lading._core.cli.options import CHOOSING, READING, Sources, Steps, Values, flag_aliases, takes
from lading._core.cli.source import open_chosen
from lading._core.dataset.opened import opened
from lading._core.view.naming import Naming
from lading._core.view.selection import Selection
from lading._core.view.shell import shell_line, shell_word
from lading._core.view.view import View
from step_cases import CASES, SOURCES, write_sources

pytestmark = pytest.mark.filterwarnings("ignore:Steps apply as typed")

_SELECTIONS = {
    "all": Selection(),
    "where": Selection(where="__key__ >= '02' and not __key__ == '03'"),
    "sort": Selection(sort="__key__:desc"),
    "where and sort": Selection(where="__key__ > '01'", sort="__key__:desc"),
    "shuffle": Selection(shuffle=True, seed=3),
    "sample": Selection(where="__key__ < '10'", sample="50%"),
}


_OTHER_SEEDS = [("sample", "sample"), ("sample", "shuffle")]
"""Steps that are typed with the seed 2, and selections with another one."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, and the files that options name."""
    folder = tmp_path_factory.mktemp("naming")
    write_sources(folder)
    (folder / "two words").mkdir()
    (folder / "two words" / "it's.tar").write_bytes((folder / "in.tar").read_bytes())
    (folder / "-odd.tar").write_bytes((folder / "in.tar").read_bytes())
    lading.open(folder / "in.tar").select("txt").write(folder / "texts.parquet")
    rows = pq.read_table(folder / "in.parquet").slice(0, 5)
    (folder / "parts" / "train").mkdir(parents=True)
    (folder / "parts" / "test").mkdir()
    pq.write_table(rows, folder / "parts" / "train" / "0.parquet")
    pq.write_table(rows.slice(3), folder / "parts" / "test" / "0.parquet")
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def _shown(*typed: str) -> tuple[View, Naming]:
    """What `lading view` shows for words that are typed, and how it names that."""
    found: list[Any] = []

    @takes(CHOOSING, READING)
    def view(
        *, sources: Sources, words: list[str], port: int = 0, no_browser: bool = False, choosing: Steps, reading: Values
    ) -> None:
        naming = naming_of(words, {"--port": 1, "--no-browser": 0}, sources, reading(), choosing())
        found.extend([View(opened(open_chosen(sources, reading(), choosing())), naming), naming])

    alone = typer.Typer()
    aliases = flag_aliases(view)
    alone.command(cls=_Verb, context_settings={"token_normalize_func": lambda name: aliases.get(name, name)})(view)
    get_command(alone).main(["--port", "7", *typed], standalone_mode=False)
    return found[0], found[1]


def _keys_of_command(command: str) -> list[str]:
    verb, *words = shlex.split(command)
    assert verb == "lading"
    result = CliRunner().invoke(app, [*words, "-n", "1000", "--json"], prog_name="lading")
    assert result.exit_code == 0, (command, result.output)
    return [json.loads(line)["__key__"] for line in result.stdout.splitlines() if line.startswith("{")]


def _keys_of_python(expression: str) -> list[str]:
    found: list[str] = eval(expression, {"lading": lading, "pyarrow": pa})["__key__"].to_pylist()
    return found


def _keys_shown(view: View, selection: Selection) -> list[str]:
    data = selection.applied(view.data)
    return [sample["__key__"] for sample in data.samples()]


def _agree(selection: Selection, *typed: str) -> dict[str, Any]:
    view, _ = _shown(*typed)
    try:
        told, shown = view.count(selection, 30), _keys_shown(view, selection)
        assert told["count"] == len(shown), told
        if told["command"] is not None:
            assert _keys_of_command(told["command"]) == shown, told["command"]
        if told["python"] is not None:
            assert _keys_of_python(told["python"]) == shown, told["python"]
        return told
    finally:
        view.close()


@pytest.mark.cases(10)
@pytest.mark.parametrize("selection", _SELECTIONS)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("case", CASES)
def test_steps_that_were_typed_come_first(case: str, source: str, selection: str) -> None:
    typed = CASES[case].options
    told = _agree(_SELECTIONS[selection], source, *typed)
    two_seeds = case in ("sample", "shuffle") and selection in ("sample", "shuffle") and case != selection
    assert (told["command"] is None) == (two_seeds or (case, selection) in _OTHER_SEEDS)
    assert (told["python"] is None) == ("f.py" in " ".join(typed))


@pytest.mark.cases(6)
@pytest.mark.parametrize("typed", [
    ["two words/it's.tar"], ["./two words"], ["in.tar", "two words/it's.tar"], ["in.tar", "texts.parquet"],
    ["in.tar", "--from", "webdataset"], ["--format=webdataset", "in.tar"], ["--no-browser", "in.tar"],
    ["parts", "--split", "train"], ["in.parquet", "--type", "cls=float64", "--no-hive-partitioning"],
    ["in.tar", "--view", "samples"], ["in.tar", "--root", "two words", "--max", "index_bytes=1MB"],
    ["in.tar", "--option", "sidecar=ignore"], ["--", "in.tar"], ["--", "-odd.tar"],
    ["in.tar", "--on-bad-shard", "skip", "--where", "json.lang == 'en'", "--where", "cls > 0"],
    ["--sort", "cls", "in.tar", "--where", "cls > 0", "--sort", "json.lang", "--sort=txt"],
    ["in.tar", "--sample", "50%", "--sort", "cls", "--limit", "4"],
])  # fmt: skip
def test_all_ways_of_opening(typed: list[str]) -> None:
    for selection in ("where", "sort"):
        told = _agree(_SELECTIONS[selection], *typed)
        assert told["command"]
        assert told["python"]


@pytest.mark.parametrize("word, quoted", [
    ("in", "in"), ("two words", "'two words'"), ("lang == 'en'", '"lang == \'en\'"'),
    ("lang != 'en'", '"lang != \'en\'"'),
])  # fmt: skip
def test_words_are_quoted_as_people_do(word: str, quoted: str) -> None:
    assert shell_word(word) == quoted


@pytest.mark.soak
def test_a_shell_reads_the_words() -> None:
    words = ["a'b", "$HOME 'x'", "`ls` 'x'", "a\\ 'b", "!x 'y'", "x != 'y'", "say \"x\" and 'y'", "two\nlines 'z'", ""]
    line = shell_line(["printf", "%s\\0", *words])
    read = subprocess.run(["/bin/sh", "-c", line], stdout=subprocess.PIPE, check=True).stdout
    assert read.decode().split("\0")[:-1] == words


def test_secrets_are_left_out() -> None:
    words = ["https://user:pass@host/a.tar?X-Amz-Signature=abc", "--storage-option", "key=abc", "--storage-option",
             "region=eu", "--where", "url == 'https://x/?q=1'"]  # fmt: skip
    naming = naming_of(words, {}, words[:1], {"storage_options": {"key": "abc", "region": "eu"}}, _steps())
    assert naming.title == "https://host/a.tar?…"
    assert shlex.split(naming.words) == ["https://host/a.tar?…", "--storage-option", "key=…", "--storage-option",
                                         "region=eu", *words[-2:]]  # fmt: skip
    assert naming.python == (
        "lading.open('https://host/a.tar?…', storage_options={'key': '…', 'region': 'eu'})"
        ".where(\"url == 'https://x/?q=1'\")"
    )


def _steps() -> Any:
    from lading._core.cli.steps import TypedSteps

    return TypedSteps((("where", {"where": "url == 'https://x/?q=1'"}),))
