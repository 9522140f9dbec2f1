"""`regroup`: the rows of each sample are brought together, in the order of positions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.errors import DataError, UsageError
from lading.options import InterleavedOptions

_TYPES = {"text": ("text/plain", "text"), "image": ("image/png", None), "metadata": ("application/json", None)}


def _items(samples: int) -> pa.Table:
    """Documents of four items: metadata, text, image, text; with payload, and a passthrough column."""
    rows = []
    for sample in range(samples):
        for position, modality in enumerate(("metadata", "text", "image", "text"), -1):
            kind, text = _TYPES[modality]
            body = b"\x89PNG" + bytes([sample % 256]) * (1 + sample % 50) if modality == "image" else None
            rows.append({"sample_id": f"doc-{sample:04d}", "position": position, "modality": modality,
                         "content_type": kind, "text_content": text and f"{text} {sample} {position}",
                         "binary_content": body, "url": f"u{sample}" if modality == "metadata" else None})  # fmt: skip
    schema = pa.schema([*INTERLEAVED_SCHEMA, ("url", pa.string())])
    return pa.Table.from_pylist(rows, schema)


def _write(table: pa.Table, folder: Path, ending: str) -> Path:
    """A file as another program writes it, in small row groups."""
    folder.mkdir()
    path = folder / f"a.{ending}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=37)
    elif ending == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=37)
    else:
        table.drop_columns("binary_content").to_pandas().to_json(path, orient="records", lines=True)
    return path


@pytest.fixture(params=["by modality", "shuffled", "dealt"])
def order(request: pytest.FixtureRequest) -> np.ndarray:
    """Rows of 60 documents in an order that tears them apart."""
    rows = np.arange(240)
    if request.param == "shuffled":
        return np.random.default_rng(3).permutation(rows)
    return rows.reshape(60, 4).T.ravel() if request.param == "by modality" else np.concatenate([rows[::2], rows[1::2]])


def _expected(table: pa.Table) -> list[dict[str, object]]:
    """Rows by first appearance of their sample, then by position, as pandas groups them."""
    frame = table.to_pandas()
    groups = [group.sort_values("position", kind="stable") for _, group in frame.groupby("sample_id", sort=False)]
    return [row for group in groups for row in table.take(pa.array(group.index.to_numpy())).to_pylist()]


@pytest.mark.soak
@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_rows_of_a_sample_come_together_where_asked_for(ending: str, order: np.ndarray, tmp_path: Path) -> None:
    torn = _items(60).take(pa.array(order))
    path = _write(torn, tmp_path / "torn", ending)
    with lading.open(path) as dataset, pytest.raises(DataError, match="regroup"):
        list(dataset.batches())
    names = [name for name in torn.column_names if ending != "jsonl" or name != "binary_content"]
    for how in ({"regroup": True}, {"interleaved": InterleavedOptions(regroup=True)}):
        with lading.open(path, view="interleaved", **how) as dataset:
            found = [row for batch in dataset.batches(max_rows=50) for row in batch.select(names).to_pylist()]
            assert found == [{name: row[name] for name in names} for row in _expected(torn)]
            assert len(dataset) == 60
            assert [item["position"] for item in dataset[7]["items"]] == [0, 1, 2]
            assert [one["sample_id"] for one in dataset] == list(dict.fromkeys(row["sample_id"] for row in found))


@pytest.mark.soak
def test_the_content_is_that_of_the_sorted_file(order: np.ndarray, tmp_path: Path) -> None:
    table = _items(60)
    torn, sound = _write(table.take(pa.array(order)), tmp_path / "torn", "parquet"), tmp_path / "sound.parquet"
    pq.write_table(table, sound)
    whole = lading.digest(sound).unordered
    assert lading.digest(torn, regroup=True).unordered == whole
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        done = lading.convert(torn, out, format="webdataset", regroup=True, verify=True, workers=workers)
        assert (done.samples, done.rows) == (60, 240)
        assert lading.digest(out).unordered == whole
    saved = lading.salvage(torn, tmp_path / "saved", regroup=True)
    assert (saved.samples, saved.lost_samples) == (60, 0)


@pytest.mark.soak
def test_memory_is_that_of_a_batch_however_the_rows_are_scattered(tmp_path: Path) -> None:
    count, size = 12_000, 20_000
    rng = np.random.default_rng(1)
    path = tmp_path / "large.parquet"
    order = rng.permutation(count)
    schema = pa.schema([f for f in INTERLEAVED_SCHEMA if f.name not in ("source_ref", "materialize_error")])
    with pq.ParquetWriter(path, schema, compression="none") as writer:
        for rows in np.split(order, 60):
            texts = [f"doc-{row // 2}" for row in rows]
            body = [rng.bytes(size) for _ in rows]
            columns = [texts, rows % 2, ["image"] * len(rows), ["image/png"] * len(rows), [None] * len(rows), body]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.table(arrays, schema=schema))
    code = f"""
import resource, lading
ds = lading.open({str(path)!r}, regroup=True, max_batch_bytes="32MB")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert sum(batch.num_rows for batch in ds.batches()) == {count}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    grown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert int(grown) << 10 < (250 << 20) + 2 * (32 << 20) - (40 << 20), "240 MB of payload"


def test_tars_take_the_same_option(tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("a.txt", "b.txt", "a.cls", "b.cls"):
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"1"))
    with lading.open(tmp_path / "a.tar", regroup=True) as dataset:
        assert [{*row} - {"__key__"} for row in dataset] == [{"txt", "cls"}] * 2
    lading.convert(_documents(tmp_path), tmp_path / "docs", format="webdataset")
    with lading.open(tmp_path / "docs", regroup=True) as documents, lading.open(tmp_path / "docs") as plain:
        assert list(documents) == list(plain)


def _documents(tmp_path: Path) -> Path:
    path = tmp_path / "docs.parquet"
    pq.write_table(_items(5), path)
    return path


def test_rows_that_are_samples_have_nothing_to_regroup(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="regroup"):
        lading.open(tmp_path / "a.parquet", regroup=True)
    with pytest.raises(UsageError, match="true nor false"):
        lading.open(tmp_path / "a.parquet", regroup="no")  # type: ignore[arg-type] # what is refused


@pytest.mark.parametrize("changed", ["sample_id", "position"])
def test_a_null_is_told_with_its_row(changed: str, tmp_path: Path) -> None:
    table = _items(3).select(["sample_id", "position", "modality"])
    values = table[changed].to_pylist()
    values[5] = None
    schema = pa.schema([pa.field(f.name, f.type) for f in table.schema])
    broken = pa.table(
        {**{n: table[n] for n in table.column_names}, changed: pa.array(values, schema.field(changed).type)}
    )
    pq.write_table(broken, tmp_path / "a.parquet")
    with (
        lading.open(tmp_path / "a.parquet", regroup=True) as dataset,
        pytest.raises(DataError, match=changed) as caught,
    ):
        list(dataset.batches())
    assert caught.value.row == 5
