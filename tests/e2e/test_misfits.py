"""Columns that a format cannot hold are told together, and the advice works as it is printed."""

from __future__ import annotations

import datetime as dt
import decimal
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.errors import Unrepresentable

ROWS = pa.table({
    "__key__": ["a", "b", "c"], "tags": [["x"], ["y", "z"], []], "when": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)] * 3,
    "n": [1, None, 3], "t": ["x", None, "z"], "price": [decimal.Decimal("1.5")] * 3, "flag": [True, False, True],
    "raw": [b"\xff", b"1", b"2"], "a/b": [1, 2, 3], "__url__": ["u"] * 3, "half": pa.array([1, 2, 3], pa.float16()),
    "meta": [{"a": 1}, {"a": 2}, None], "dur": pa.array([1, 2, 3], pa.duration("s")), "Tags": ["1", "2", "3"],
    "dated": [{"d": dt.date(2020, 1, 1)}] * 3,
})  # fmt: skip
MISFITS = {
    "mds": ["dated", "dur", "meta", "n", "price", "t", "when"],
    "csv": ["dated", "dur", "meta", "price", "raw", "tags", "when"],
    "jsonl": ["dated", "dur", "price", "raw", "when"],
    "webdataset": ["Tags", "__url__", "a/b", "dated"],
    "media_archive": ["dated", "dur", "price", "when"],
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def _convert(*words: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["convert", *map(str, words)])
    assert result.exit_code == status, result.output
    return result.stderr


def _options(advice: str) -> list[list[str]]:
    """The options that an advice names: those that keep the columns, and those that leave all of them out."""
    found = []
    for part in advice.split(" Or leave out "):
        words = shlex.split(part)
        pairs = [(word, words[i + 1].removesuffix(".")) for i, word in enumerate(words) if word.startswith("--")]
        found.append([word for pair in pairs for word in pair])
    return found


@pytest.mark.cases(3)
@pytest.mark.parametrize("target", list(MISFITS))
def test_all_columns_are_told_at_once_with_options_that_work(target: str, source: Path, tmp_path: Path) -> None:
    told = _convert(source, tmp_path / "out", "--to", target, status=1).strip().splitlines()
    assert told[0].startswith(f"error: {len(MISFITS[target])} columns do not fit the format {target}")
    assert len(told) == len(MISFITS[target]) + 2
    for name, line in zip(
        MISFITS[target], sorted(told[1:-1], key=lambda line: line.partition("column")[2]), strict=True
    ):
        assert f"column {name!r}:" in line
    ways = _options(told[-1])
    assert len(ways) == 2
    for number, options in enumerate(ways):
        _convert(source, tmp_path / f"{number}", "--to", target, *options)
    assert lading.open(tmp_path / "1").schema.names == [n for n in lading.open(tmp_path / "1").columns
                                                        if n not in MISFITS[target]]  # fmt: skip


@pytest.mark.cases(3)
@pytest.mark.parametrize("target", list(MISFITS))
def test_python_gets_python(target: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(Unrepresentable) as caught:
        lading.open(source).write(tmp_path / "out", format=target)
    assert sorted(caught.value.columns) == MISFITS[target]
    assert "--" not in str(caught.value)
    assert "ds.drop(" in str(caught.value)
    assert caught.value.to_dict()["details"]


def test_values_are_kept_by_the_options(source: Path, tmp_path: Path) -> None:
    told = _convert(source, tmp_path / "out", "--to", "mds", status=1).strip().splitlines()[-1]
    assert "--to-option nulls=mask" in told
    assert "--type price=string" in told
    _convert(source, tmp_path / "out", "--to", "mds", "--verify", *_options(told)[0])
    found = lading.open(tmp_path / "out")[1]
    assert (found["tags"], found["price"], found["flag"], found.get("n")) == (["y", "z"], "1.5", False, None)


def test_one_column_keeps_its_own_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": ["a", "b"], "t": ["x", None]}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match="MDS cannot hold nulls") as caught:
        lading.convert(tmp_path / "a.parquet", tmp_path / "out", format="mds")
    assert (caught.value.row, caught.value.sample, caught.value.column) == (1, "b", "t")
    assert str(caught.value).endswith("Mark nulls with options={'nulls': 'mask'}. Or leave out the column 't' with "
                                      "ds.drop('t').")  # fmt: skip


def test_json_in_a_tar_is_no_fault_beside_bytes(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "tars", format="webdataset") as writer:
        writer.write({"__key__": "a", "jpg": b"\xff\xd8", "json": {"x": 1}})
    with pytest.raises(Unrepresentable, match="JSON cannot hold bytes") as caught:
        lading.convert(tmp_path / "tars", tmp_path / "out", format="jsonl")
    assert (caught.value.column, caught.value.columns) == ("jpg", ())


def test_a_key_is_no_fault_of_a_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"__key__": ["a.b"], "t": ["x"], "u": ["y"]}), tmp_path / "a.parquet")
    with pytest.raises(Unrepresentable, match="a reader would not see this key") as caught:
        lading.convert(tmp_path / "a.parquet", tmp_path / "out", format="webdataset")
    assert caught.value.columns == ()
    assert "drop" not in str(caught.value)


ITEMS: dict[str, list[Any]] = {
    "sample_id": ["a", "a"], "position": [-1, 0], "modality": ["metadata", "text"], "text_content": [None, "x"],
    "when": [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], "price": [decimal.Decimal("1.5"), None],
    "raw": [b"\xff", None], "texts": ["x", None],
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.parametrize("target, expected", [
    ("mds", ["price", "raw", "when"]), ("media_archive", ["price", "raw", "when"]),
    ("webdataset", ["price", "raw", "texts", "when"]),
])  # fmt: skip
def test_passthrough_columns_of_documents(target: str, expected: list[str], tmp_path: Path) -> None:
    items = {name: pa.array(values) for name, values in ITEMS.items()}
    for name in ("sample_id", "position", "modality", "content_type", "text_content", "binary_content"):
        kind = INTERLEAVED_SCHEMA.field(name).type
        items[name] = items[name].cast(kind) if name in items else pa.nulls(2, kind)
    pq.write_table(pa.table(items), tmp_path / "a.parquet")
    told = _convert(tmp_path / "a.parquet", tmp_path / "out", "--to", target, status=1).strip().splitlines()
    assert sorted(line.split("'")[1] for line in told[1:-1]) == expected
    for number, options in enumerate(_options(told[-1])):
        _convert(tmp_path / "a.parquet", tmp_path / f"{number}", "--to", target, "--verify", *options)
