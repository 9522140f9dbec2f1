"""What commands print with `--json`: the schemas say every key, in the words of the JSON Schema specification."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import lading
from hub_fixture import ask_at
from hub_server import TOKEN, hub_server
from lading._core.cli.json_schemas import schema_of, schemas
from lading._core.cli.main import app
from lading._core.storage.memory import MemoryStore
from lading._core.storage.shard_cache import ShardCache
from tars import tar_of

_VERBS = [*get_command(app).commands]  # type: ignore[attr-defined] # a group has commands
_CALLS: list[tuple[str, int]] = [
    ("demo", 0),
    ("info mixed", 1),
    ("info splits", 0),
    ("head documents -n 2 --full", 0),
    ("head samples -n 2", 0),
    ("stats documents", 0),
    ("stats samples", 0),
    ("sql from'samples'", 0),
    ("sql from'samples' asked.jsonl", 0),
    ("plan samples --batch-size 2", 0),
    ("plan samples --shuffle block", 0),
    ("plan samples --job --to parquet", 0),
    ("formats", 0),
    ("skill", 0),
    ("convert samples out --to parquet --where json.n>1 --verify", 0),
    ("convert samples sets --to jsonl --split-into train=2,test=rest", 0),
    ("convert mixed sound --to parquet --on-bad-shard skip --workers 1", 0),
    ("push samples hf://datasets/me/samples", 0),
    ("export samples files", 0),
    ("merge parts", 0),
    ("finish ranks", 0),
    ("verify samples --decode", 0),
    ("verify mixed", 1),
    ("doctor apart", 1),
    ("digest documents", 0),
    ("diff documents fewer", 1),
    ("diff samples splits/train.jsonl", 1),
    ("repair own --dry-run", 1),
    ("salvage mixed saved", 1),
    ("index samples", 0),
    ("cache ls copies", 0),
    ("cache du copies", 0),
    ("cache prune copies --all", 0),
    ("clean out", 0),
]
"""Each verb, with what fills its keys, and the exit status."""
_LINES = ("head documents -n 2 --full", "head samples -n 2", "sql from'samples'")
"""Those that print a document a line."""


def _document(n: int) -> tuple[str, bytes]:
    return f"{n}.json", json.dumps({"texts": ["a", f"b{n}"], "images": [None, None]}).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The current folder, with datasets of three samples: sound ones, and ones with a damaged shard."""
    folder = tmp_path_factory.mktemp("json")
    samples = tar_of(*((f"{n}.json", json.dumps({"n": n, "name": "ab"[n % 2]}).encode()) for n in range(3)))
    for name in ("samples", "documents", "fewer", "mixed", "splits", "apart"):
        (folder / name).mkdir()
    (folder / "samples/a.tar").write_bytes(samples)
    (folder / "mixed/a.tar").write_bytes(samples)
    (folder / "mixed/b.tar").write_bytes(samples[:1500])
    (folder / "apart/a.tar").write_bytes(tar_of(("a.txt", b"x"), ("b.txt", b"y"), ("a.json", b"{}")))
    (folder / "documents/a.tar").write_bytes(tar_of(*map(_document, range(3))))
    (folder / "fewer/a.tar").write_bytes(tar_of(_document(0), _document(4)))
    for split in ("train", "test"):
        (folder / f"splits/{split}.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    store = MemoryStore({"s3://bucket/a.tar": samples})
    ShardCache(str(folder / "copies")).keep(store, store.head("s3://bucket/a.tar"))
    with pytest.MonkeyPatch.context() as patch, hub_server() as hub:
        ask_at(hub, patch, folder / "hf")
        patch.setenv("HF_TOKEN", TOKEN)
        patch.chdir(folder)
        patch.setenv("LADING_CACHE", str(folder / "cache"))
        for part in ("a", "b"):
            lading.convert("samples", f"parts/{part}", format="parquet", progress=False)
        lading.convert("samples", "ranks", format="jsonl", rank=0, world_size=1, progress=False)
        lading.convert("samples", "own", format="webdataset", progress=False)
        [shard] = (folder / "own").glob("*.tar")
        shard.write_bytes(shard.read_bytes()[:1500])
        yield folder


def _printed(words: str, status: int) -> list[Any]:
    """The documents that a command prints."""
    done = CliRunner().invoke(app, [*words.split(), "--json"], prog_name="lading")
    assert done.exit_code == status, done.output
    return [*map(json.loads, done.stdout.splitlines())] if words in _LINES else [json.loads(done.stdout)]


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of the Hub's client
@pytest.mark.cases(len(_CALLS))
@pytest.mark.parametrize(
    "words, status",
    [pytest.param(*call, marks=[pytest.mark.soak] if call[0] == "demo" else []) for call in _CALLS],
    ids=str,
)
def test_a_verb_prints_the_keys_of_its_schema(place: Path, words: str, status: int) -> None:
    schema = schema_of(words.partition(" ")[0])
    jsonschema.Draft202012Validator.check_schema(schema)
    printed = _printed(words, status)
    assert printed
    for document in printed:
        jsonschema.validate(document, schema, jsonschema.Draft202012Validator)


def test_every_verb_has_a_schema_and_a_call() -> None:
    serving = {"view"}
    assert {call.split()[0] for call, _ in _CALLS} == {*_VERBS} - serving
    assert {*schemas()} == {*_VERBS, "error"} - serving


@pytest.mark.parametrize("words", ["info nowhere", "info", "info --no-such-option", "lod samples", "head mixed/b.tar"])
def test_an_error_has_the_keys_of_its_schema(place: Path, words: str) -> None:
    done = CliRunner().invoke(app, [*words.split(), "--json"], prog_name="lading")
    assert done.exit_code in (1, 2)
    error = json.loads(done.stdout.splitlines()[-1])
    jsonschema.validate(error, schema_of("error"), jsonschema.Draft202012Validator)


def test_schemas_are_printed() -> None:
    done = CliRunner().invoke(app, ["skill", "--schema", "diff"], prog_name="lading")
    assert json.loads(done.stdout) == schema_of("diff")
    done = CliRunner().invoke(app, ["skill", "--schema", "dif"], prog_name="lading")
    assert done.exit_code == 2
    assert "expected demo, info," in done.stderr


def test_the_skill_is_as_the_specification_of_agent_skills_has_it() -> None:
    """agentskills.io: a name as that of its folder, and a description of at most 1,024 characters."""
    text = CliRunner().invoke(app, ["skill"], prog_name="lading").stdout
    _, front, body = re.split(r"^---\n", text, maxsplit=2, flags=re.MULTILINE)
    found = yaml.safe_load(front)
    assert found["name"] == "lading"
    assert 0 < len(found["description"]) <= 1024
    assert len(body.splitlines()) < 500
    for verb, options in re.findall(r"`lading (\w+)([^`]*)`", body.replace("VERB", "info")):
        known = {name for param in get_command(app).commands[verb].params for name in param.opts}  # type: ignore[attr-defined] # a group has commands
        assert {*re.findall(r"--[a-z-]+", options)} <= known | {"--help"}, verb
