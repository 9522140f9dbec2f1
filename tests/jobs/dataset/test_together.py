"""Several datasets as one source: what their manifests say holds for each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from in_process import by_tasks
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.errors import SchemaMismatch, UsageError
from tars import tar_of

_TYPES = pa.schema([("__key__", pa.string()), ("n", pa.int16()), ("when", pa.timestamp("us", "UTC"))])


def _typed(out: Path, first: int, **options: object) -> Path:
    rows = [{"__key__": f"{n:03d}", "n": n, "when": n * 1_000_000} for n in range(first, first + 10)]
    with lading.writer(out, format="webdataset", shard_size="50b", options=options) as writer:
        writer.write_batch(pa.Table.from_pylist(rows, _TYPES))
    return out


def _rows(source: object) -> list[dict[str, object]]:
    with lading.open(source) as dataset:  # type: ignore[arg-type] # any of the ways to name one
        return list(dataset)


@pytest.fixture
def both(tmp_path: Path) -> list[Path]:
    (tmp_path / "par").mkdir()
    return [_typed(tmp_path / "par" / "a", 0), _typed(tmp_path / "par" / "b", 10)]


def test_types_and_order_are_those_of_each(both: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [row for one in both for row in _rows(one)]
    assert [type(row["n"]) for row in expected] == [int] * 20
    monkeypatch.chdir(tmp_path)
    a, b = map(str, both)
    for source in ([a, b], f"{a}::{b}", f"{tmp_path}/par/{{a,b}}", tmp_path / "par", "par", ["par/a", "par/b"],
                   ["par/a", b], [f"file://{a}", b]):  # fmt: skip
        assert _rows(source) == expected, source
        with lading.open(source) as dataset:
            assert dataset.schema.field("n").type == pa.int16()
    assert _rows([b, a, b]) == expected[10:] + expected
    assert _rows([a]) == expected[:10]
    done = lading.convert([a, b], tmp_path / "out", format="parquet", verify=True, **by_tasks(2))
    assert done.digest == lading.digest([a, b]).ordered
    assert _rows(tmp_path / "out") == expected


def test_bytes_beside_documents_go_along(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.tar").write_bytes(tar_of((f"{name}.jpg", b"\xff\xd8\xff" + name.encode() * 50)))
        lading.convert(tmp_path / f"{name}.tar", tmp_path / name, format="media_archive")
    done = lading.convert([tmp_path / "a", tmp_path / "b"], tmp_path / "out", format="webdataset", verify=True)
    assert (done.source_format, done.samples) == ("media_archive", 2)
    tars = [str(tmp_path / "a.tar"), str(tmp_path / "b.tar")]
    assert lading.digest(tmp_path / "out") == lading.digest(tars)


@pytest.mark.soak
def test_damage_is_found_in_each(both: list[Path]) -> None:
    shard, *_ = sorted(both[0].glob("*.tar"))
    assert lading.verify([*both], deep=True).ok
    body = shard.read_bytes()
    shard.write_bytes(body[:600] + bytes([body[600] ^ 1]) + body[601:])
    for source in ([*both], both[0].parent):
        found = lading.verify(source, deep=True).findings
        assert {str(finding["file"]) for finding in found} == {str(shard)}
    shard.unlink()
    for source in ([*both], both[0].parent):
        assert [finding["error"] for finding in lading.verify(source).findings] == ["NotFound"]


@pytest.mark.soak
def test_a_manifest_that_was_changed_is_told(both: list[Path]) -> None:
    path = both[1] / "_lading" / "manifest.json"
    path.write_text(path.read_text().replace('"num_samples":10', '"num_samples": 10').replace("lading 0", "lading 9"))
    findings = lading.verify([*both]).findings
    assert [finding["file"] for finding in findings] == [str(path)]


@pytest.mark.soak
def test_what_is_no_one_dataset_is_refused(both: list[Path], tmp_path: Path) -> None:
    (tmp_path / "loose.tar").write_bytes(tar_of(("x.txt", b"x")))
    (tmp_path / "par" / "loose.tar").write_bytes(tar_of(("x.txt", b"x")))
    for source in ([both[0], tmp_path / "loose.tar"], tmp_path / "par"):
        with pytest.raises(UsageError, match=r"loose\.tar.*others do not"):
            lading.open(source)
    assert len(_rows([str(both[0] / "*.tar"), str(tmp_path / "loose.tar")])) == 11
    (tmp_path / "par" / "loose.tar").unlink()
    lading.convert(both[0], tmp_path / "other", format="parquet")
    with pytest.raises(SchemaMismatch, match="format"):
        lading.open([both[1], tmp_path / "other"])
    with pytest.raises(UsageError, match="inside the source"):
        lading.convert(tmp_path / "par", tmp_path / "par" / "out", format="parquet")
    with pytest.raises(UsageError, match="files of the source"):
        lading.convert([*both], both[1], format="parquet", overwrite=True)


def test_files_that_say_all_need_no_manifests_that_agree(tmp_path: Path) -> None:
    """Their types may differ, and files of others may lie among them, as where there are no manifests."""
    for name, column in (("a", pa.array([1])), ("b", pa.array(["x"]))):
        with lading.writer(tmp_path / name, format="parquet") as writer:
            writer.write_batch(pa.table({"v": column}))
    pq.write_table(pa.table({"v": [1.5]}), tmp_path / "c.parquet")
    assert _rows([tmp_path / "a", tmp_path / "b"]) == [{"v": 1}, {"v": "x"}]
    assert _rows([tmp_path / "b", tmp_path / "c.parquet"]) == [{"v": "x"}, {"v": 1.5}]
    assert _rows([tmp_path / "a", tmp_path / "a"]) == [{"v": 1}, {"v": 1}]


def _scored(out: Path, items: list[tuple[str, int, str, int | None]], **options: Any) -> Path:
    """A tar of items, each an id, a position, a modality and a score."""
    rows = [
        {"sample_id": key, "position": at, "modality": kind, "text_content": "x" if kind == "text" else None,
         "binary_content": b"\xff\xd8\xff" if kind == "image" else None, "score": score}
        for key, at, kind, score in items
    ]  # fmt: skip
    schema = INTERLEAVED_SCHEMA.append(pa.field("score", pa.int64()))
    with lading.writer(out, format="webdataset", view="interleaved", schema=schema, **options) as writer:
        writer.write_batch(pa.Table.from_pylist(rows, schema))
    return out


_NONE_SCORED: list[tuple[str, int, str, int | None]] = [("b", -1, "metadata", None), ("b", 0, "image", None)]


@pytest.mark.soak
def test_values_on_items_stay_on_them(tmp_path: Path) -> None:
    """Also where a writer saw no value of the column, or no rows, as ranks and folders have it."""
    for name, rows in (("a", [("a", 0, "image", 7)]), ("b", _NONE_SCORED), ("c", [])):
        _scored(tmp_path / "some" / name, rows)
    for rank, rows in enumerate(([], _NONE_SCORED, [("a", 0, "image", 7)])):
        _scored(tmp_path / "ranks", rows, rank=rank)
    kept = {("image", 7), ("metadata", None), ("image", None)}
    for source in (tmp_path / "some", [tmp_path / "some" / "b", tmp_path / "some" / "a"], tmp_path / "ranks"):
        lading.convert(source, tmp_path / "out", format="parquet", verify=True, overwrite=True)
        rows = pq.read_table(tmp_path / "out", columns=["modality", "score"]).to_pylist()
        assert {(row["modality"], row["score"]) for row in rows} - {("metadata", None)} == kept - {("metadata", None)}
    assert lading.merge(tmp_path / "ranks").samples == 2
    with lading.open(tmp_path / "ranks") as dataset:
        assert dataset[1]["items"][0]["score"] == 7


def test_values_on_other_items_are_no_one_dataset(tmp_path: Path) -> None:
    image = _scored(tmp_path / "a", [("a", 0, "image", 7)])
    text = _scored(tmp_path / "text", [("b", 0, "text", 7)])
    sample = _scored(tmp_path / "sample", [("b", -1, "metadata", 7)])
    (tmp_path / "others.tar").write_bytes(tar_of(("x.json", b'{"texts": ["x"], "images": [null]}')))
    for other in (text, sample):
        with pytest.raises(SchemaMismatch, match=r"differ in their options.* Name files by a pattern"):
            lading.open([image, other])
    with pytest.raises(UsageError, match="others do not"):
        lading.open([image, tmp_path / "others.tar"])


@pytest.mark.soak
def test_salvage_takes_one_at_a_time(both: list[Path], tmp_path: Path) -> None:
    for source in ([*both], tmp_path / "par"):
        with pytest.raises(UsageError, match="one by one"):
            lading.salvage(source, tmp_path / "out")
    shutil.copytree(both[0], tmp_path / "broken")
    (tmp_path / "broken" / "_lading" / "shards.arrow").write_bytes(b"")
    assert lading.salvage(tmp_path / "broken", tmp_path / "out").samples == 10


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("name", ["csv", "jsonl", "media_archive", "parquet", "webdataset"])
def test_one_without_samples_has_no_file_and_is_one_of_them(name: str, tmp_path: Path, *, named: bool) -> None:
    """As of a rank that had nothing to write; `named` if it was told its columns beforehand."""
    rows = pa.table({"a": ["x", "y"], "n": pa.array([1, 2], pa.int32())})
    folders = [tmp_path / "par" / each for each in ("a", "b", "c")]
    for folder, count in zip(folders, (0, 2, 0), strict=True):
        schema = rows.schema if named else None
        with lading.writer(folder, format=name, schema=schema) as writer:
            if named or count:
                writer.write_batch(rows.slice(0, count))
    expected = [{"a": "x", "n": 1}, {"a": "y", "n": 2}]
    shutil.copytree(folders[0], tmp_path / "none" / "a")
    for source in (folders, tmp_path / "par", [tmp_path / "none", folders[1]]):
        assert _rows(source) == expected
        done = lading.convert(source, tmp_path / "out", format="parquet", verify=True, overwrite=True)
        assert done.samples == 2
        assert not lading.verify(source).findings
    for source in ([folders[0], folders[2]], [folders[0]], tmp_path / "none"):
        assert _rows(source) == []
