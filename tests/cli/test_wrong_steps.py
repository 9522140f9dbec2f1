"""Wrong options of steps, typed on the command line: one message with the exit status, and nothing is left behind."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from lading._core.cli.main import app
from tars import tar_of

_FUNCTIONS = """
import sys

def raises(sample):
    raise ValueError("no luck")

def leaves(sample):
    sys.exit(5)

def number(sample):
    return 5

def mixed(sample):
    return {"new": 1 if sample["__key__"] < "05" else "text"}

def nothing(sample):
    return {"__key__": None}

def zero(sample):
    return {"__key__": "a\\0" + sample["__key__"]}

def up(sample):
    return {"__key__": "../" + sample["__key__"]}

def word(sample):
    return "no"

def lone(sample):
    return {"new": "\\ud800" if sample["__key__"] == "05" else "x"}

def lone_in_txt(sample):
    return {"txt": "\\ud800" if sample["__key__"] == "05" else "x"}
"""
_FILES = {
    "f.py": _FUNCTIONS, "broken.py": "def f(:\n",
    "twice.csv": "__key__,score\n00,1\n00,2\n", "other.csv": "a,score\n00,1\n", "both.csv": "__key__,txt\n00,1\n",
    "names.csv": "__key__,score\na/00.jpg,1\na/01.jpg,2\n", "numbers.csv": "id,score\n70,1\n",
    "scores.csv": "__key__,score\n00,1\n", "words.csv": "id,score\na,1\n",
    "keys.txt": "00\nzz\n", "numbers.txt": "number\n3\n99\n", "below.txt": "number\n-1\n", "zeros.txt": "a\0b\n",
    "empty.txt": "", "empty.csv": "key\n",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten samples in a tar, the same keys in Parquet, and files that options name."""
    folder = tmp_path_factory.mktemp("wrong")
    mixed = ["1", '"a"'] * 5
    members = [
        (f"{i:02}.{kind}", data.encode())
        for i in range(10)
        for kind, data in {"cls": f"{i % 3}", "json": f'{{"id": {i}, "mixed": {mixed[i]}}}', "txt": f"text {i}"}.items()
    ]
    (folder / "in.tar").write_bytes(tar_of(*members))
    table = pa.table({"__key__": [f"{i:02}" for i in range(10)], "n": range(300, 310), "s": ["x"] * 10})
    pq.write_table(table, folder / "rows.parquet")
    for name, text in _FILES.items():
        (folder / name).write_text(text)
    (folder / "full").mkdir()
    (folder / "full" / "mine").write_text("x")
    (folder / "full.parquet").write_text("x")
    return folder


_TAR = "convert in.tar out.parquet"
_ROWS = "convert rows.parquet out.parquet"
_SPLIT = "convert in.tar out --to parquet --split-into"
WRONG: list[tuple[str, list[str], int, str]] = [
    (_TAR, ["--map", "f.py:raises"], 1, "in.tar row 0 sample '00'.*ValueError: no luck.*--on-error drop_sample"),
    (_TAR, ["--map", "f.py:leaves"], 1, "in.tar row 0 sample '00'.*SystemExit: 5.*--on-error drop_sample"),
    (_TAR, ["--filter", "f.py:leaves"], 1, "in.tar row 0 sample '00'.*SystemExit: 5"),
    (_TAR, ["--map", "f.py:number"], 2, "in.tar row 0 sample '00'.*must return a dict.*found int"),
    (_TAR, ["--map", "f.py:mixed"], 2, "sample '05' column 'new'.*expected a number.*Return one kind of value"),
    (_TAR, ["--map", "f.py:lone"], 1, "in.tar row 5 sample '05' column 'new'.*lone surrogate.*found '.ud800'"),
    (_TAR, ["--map", "f.py:lone_in_txt"], 1, "in.tar row 5 sample '05' column 'txt'.*lone surrogate.*found '.ud800'"),
    (_TAR, ["--map", "f.py:gone"], 2, "f.py: --map: no such function.*expected raises"),
    (_TAR, ["--map", "f.py"], 2, "FILE.py:FUNCTION"),
    (_TAR, ["--map", "broken.py:f"], 2, "broken.py: --map: the code cannot be loaded.*line 1"),
    (_TAR, ["--filter", "f.py:word"], 2, "true or false.*found str"),
    ("convert in.tar out --to webdataset", ["--map", "f.py:nothing"], 1, "a sample needs a key.*--drop-columns"),
    ("convert in.tar out --to webdataset", ["--map", "f.py:zero"], 1, "sample 'a.*%00: --to-option escape=percent"),
    ("export in.tar out", ["--map", "f.py:up"], 1, "sample '../00'.*leads elsewhere.*Rename the key"),
    ("export in.tar out", ["--map", "f.py:zero"], 1, "a character that it may not have.*Rename the key"),
    ("export in.tar full.parquet", [], 2, "full.parquet: the destination is not a folder"),
    ("export in.tar full", [], 2, "full: the destination is not empty"),
    (_TAR, ["--where", "nope == 1"], 2, "column 'nope': the column is not there; there are __key__, cls, json, txt"),
    (_TAR, ["--where", "json.nope == 1"], 2, "column 'json': no sample has this field; expected json.id"),
    (
        _TAR,
        ["--where", "txt.width > 3"],
        1,
        "sample '00' column 'txt': this text has no fields.*found 'text 0'.*len.txt",
    ),
    (_TAR, ["--where", "txt =="], 2, "at character 7"),
    (_TAR, ["--where", ""], 2, "the condition is empty"),
    (_TAR, ["--join", "twice.csv"], 2, "twice.csv column '__key__'.*rows 0 and 1.*--dedup __key__"),
    (_TAR, ["--join", "gone.csv"], 2, "gone.csv: no such file"),
    (
        _TAR,
        ["--join", "names.csv"],
        2,
        "names.csv column '__key__': no sample.*'00', '01', '02'.*found 'a/00.jpg', 'a/01.jpg'",
    ),
    (
        _TAR,
        ["--join", "names.csv", "--where", "cls == 9", "--join-how", "inner"],
        2,
        "no sample has a row in the table",
    ),
    ("head in.tar", ["--join", "numbers.csv", "--on", "json.id=id"], 2, "expected .* 'json.id': 0, 1, 2, found '70'"),
    (_TAR, ["--join", "other.csv"], 2, "expected __key__.*found a, score.*--on __key__=COLUMN"),
    (_TAR, ["--join", "both.csv"], 2, "found txt.*of the table first, with --rename txt=txt_2"),
    (_TAR, ["--join", "scores.csv", "--on", "json.nope=__key__"], 2, "no sample has this field"),
    (_TAR, ["--join", "scores.csv", "--on", ""], 2, "no such column.*found ''"),
    (_TAR, ["--join", "words.csv", "--on", "json.id=id"], 2, "keys of the samples are whole numbers"),
    (_TAR, ["--join", "scores.csv", "--join-columns", "gone"], 2, "no such column; expected __key__, score"),
    (_TAR, ["--join", "scores.csv", "--join-columns", ""], 2, "no column is selected"),
    (_TAR, ["--join-how", "inner"], 2, "Add --join FILE"),
    (_SPLIT, ["train=0.9,val=0.2"], 2, "must add up to 1.*--split-into train=rest,val=0.1"),
    (_SPLIT, ["train=-0.1,val=rest"], 2, "'train' would be empty"),
    (_SPLIT, ["train=nan,val=rest"], 2, "'train' would be empty"),
    (_SPLIT, ["train=x"], 2, "expected --split-into train=0.98,val=0.02"),
    (_SPLIT, ["a=0.5,a=0.5"], 2, "a split is named twice"),
    (_SPLIT, ["a=100,b=rest"], 2, "expected 10 samples.*--split-into train=rest,val=0.1"),
    (_SPLIT, ["a=10,b=rest"], 2, "'b' would be empty.*larger fraction"),
    (_SPLIT, ["../a=0.5,b=0.5"], 2, "becomes a folder.*found '../a'"),
    (_SPLIT, ["..=0.5,b=0.5"], 2, r"becomes a folder.*found '\.\.'"),
    (_SPLIT, ["_lading=0.5,b=0.5"], 2, "becomes a folder.*found '_lading'"),
    (_SPLIT, ["a=0.5,b=rest", "--split-by", "json.nope"], 2, "no sample has this field"),
    (_SPLIT, ["a=0.5,b=rest", "--split-by", ""], 2, "no column is selected"),
    (_TAR, ["--split-into", "a=0.5,b=rest"], 2, "out.parquet: several splits need a folder"),
    (_TAR, ["--sample", "1.5"], 2, "above 0 and at most 1.0"),
    (_TAR, ["--sample", "-1"], 2, "at least one sample"),
    (_TAR, ["--sample", "nan"], 2, "above 0 and at most 1.0"),
    (_TAR, ["--sample", "few"], 2, "such as 10%, 0.01 or 1000"),
    (_TAR, ["--sample", "11"], 2, "expected at most 10, found 11"),
    (_TAR, ["--sample", "0.001"], 2, "leaves no sample.*0.1 or more"),
    (_TAR, ["--seed", "3"], 2, "no option uses the seed; found --seed 3.*--split-into"),
    ("head in.tar", ["--seed", "3", "--sort", "cls"], 2, "no option uses the seed"),
    (_TAR, ["--sort", "json.mixed"], 2, "no order.*values of several kinds"),
    (_TAR, ["--sort", "nope"], 2, "no such column; expected __key__, cls, json, txt"),
    (_TAR, ["--dedup", "json.nope"], 2, "no sample has this field"),
    (_TAR, ["--dedup", ""], 2, "no column is selected"),
    (_TAR, ["--take", "keys.txt"], 2, "1 of 2 keys are not in the dataset; found 'zz'"),
    (_TAR, ["--take", "numbers.txt"], 2, "not that of a sample; expected less than 10, found sample 99"),
    (_TAR, ["--take", "below.txt"], 2, "below.txt: not a number of a sample.*'-1'"),
    (_TAR, ["--take", "gone.txt"], 2, "gone.txt: no such file of keys"),
    (_TAR, ["--take", "3"], 2, "3: no such file of keys.*For the first samples: --limit 3"),
    (_TAR, ["--take", "empty.txt"], 2, "empty.txt: the file lists no sample"),
    (_TAR, ["--take", "empty.csv"], 2, "empty.csv: the file lists no sample"),
    (_TAR, ["--take", "zeros.txt"], 2, "zeros.txt: not a file of keys.*one key a line"),
    (_TAR, ["--flatten", "txt"], 2, "column 'txt'.*found bytes of files.*Flatten another column"),
    (_TAR, ["--flatten", ""], 2, "no column is selected"),
    *(
        (verb, options, 2, "no such column; expected __key__, (n, s|cls, json, txt), found 'nope'")
        for source in ("in.tar", "rows.parquet")
        for verb in (
            f"stats {source}",
            f"head {source}",
            f"digest {source}",
            f"info {source}",
            f"export {source} out",
            f"diff {source} {source}",
            f"convert {source} out.parquet",
            f"convert {source} out --to jsonl",
        )
        for options in (["--columns", "nope"], ["--drop-columns", "nope"], ["--columns", "nope,__key__"])
    ),
    (_ROWS, ["--flatten", "n"], 2, "neither JSON objects nor structs"),
    (_ROWS, ["--cast", "n=int8"], 1, "rows.parquet row 0 sample '00' column 'n'.*expected int8, found int64 300"),
    (_ROWS, ["--cast", "n=nope"], 2, "not the name of a type"),
    (_ROWS, ["--cast", "n"], 2, "--cast NAME=TYPE"),
    (_ROWS, ["--cast", "n=int8,s=string"], 2, "--cast n=int8 --cast s=string"),
    (_ROWS, ["--cast", "n=timestamp[us,tz=UTC]"], 2, "not the name of a type"),
    (_ROWS, ["--cast", "gone=int8"], 2, "no such column; expected __key__, n, s"),
    (_ROWS, ["--rename", "n=s"], 2, "has this name already.*found 's'.*Give another name"),
    (_ROWS, ["--rename", "gone=a"], 2, "no such column; expected __key__, n, s"),
    (_ROWS, ["--rename", "n"], 2, "--rename OLD=NEW"),
    (_TAR, ["--rename", "json.id=a"], 2, "no such column.*found 'json.id'.*--flatten json, before this step"),
    ("head in.tar", ["--drop-columns", "json.id"], 2, "no such column.*--flatten json, before this step"),
    (_TAR, ["--where", "new > 5", "--map", "f.py:mixed"], 2, "if --map makes the column, type it before --where"),
    (_TAR, ["--sort", "score", "--join", "scores.csv"], 2, "if --join makes the column, type it before --sort"),
    ("convert rows.parquet out --to parquet", ["--num-shards", "2", "--rows-per-shard", "2"], 2, "cut by one rule"),
    ("convert rows.parquet out --to parquet", ["--shard-size", "0"], 2, "a shard needs a size.*--rows-per-shard 1"),
    ("convert rows.parquet out --to parquet", ["--shard-size", "0.2b"], 2, "expected 1 byte or more"),
    ("convert rows.parquet out --to parquet", ["--shard-size", "256"], 2, "such as 256MB.*For bytes write 256B"),
    ("salvage rows.parquet out", ["--shard-size", "0"], 2, "a shard needs a size; expected 1 byte or more"),
    ("convert rows.parquet out --to parquet", ["--num-shards", "11"], 2, "at most --num-shards 10"),
    ("convert rows.parquet full --to parquet", [], 2, "full: the destination is not empty.*--overwrite"),
    ("convert rows.parquet full.parquet", [], 2, "full.parquet: the file is there already.*--overwrite"),
]


@pytest.mark.parametrize("verb, options, status, message", WRONG, ids=[f"{v} {' '.join(o)}" for v, o, _, _ in WRONG])
def test_it_is_one_error_and_nothing_is_left(
    verb: str, options: list[str], status: int, message: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    monkeypatch.chdir(place)
    before = files()
    result = CliRunner().invoke(app, [*verb.split(), *options], prog_name="lading")
    assert result.exit_code == status, result.output
    assert result.stderr.count("error: ") == 1
    assert "Traceback" not in result.output
    assert re.search(message, result.stderr, re.DOTALL), result.stderr
    assert files() == before


def test_a_folder_without_a_format_names_those_that_can_be_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["convert", "in", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "expected arrow, csv, jsonl, mds, media_archive, parquet, webdataset, found" in done.output
