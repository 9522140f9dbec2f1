"""NeMo Curator reads what lading writes, and lading what it writes: the same interleaved documents."""

from __future__ import annotations

import glob
from pathlib import Path

import pyarrow as pa
import pytest

import lading
from peers import import_peer

readers = import_peer("nemo_curator.stages.interleaved.io.readers")
writers = import_peer("nemo_curator.stages.interleaved.io.writers")
tasks = import_peer("nemo_curator.tasks")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

_LINEAGE = {"source_ref", "materialize_error"}


def _read(source: str) -> pa.Table:
    """All items of some shards as Curator's readers give them, pictures too."""
    paths = sorted(glob.glob(source))
    if paths[0].endswith(".tar"):
        stage = readers.InterleavedWebdatasetReaderStage(materialize_on_read=True, sample_id_field="sample_id")
    else:
        stage = readers.InterleavedParquetReaderStage()
    tables = [stage.process(tasks.FileGroupTask(dataset_name="d", data=[path])).to_pyarrow() for path in paths]
    return pa.concat_tables(tables, promote_options="permissive")


def _write(source: str, stage: object) -> None:
    """Every shard read and written by Curator."""
    read = readers.InterleavedWebdatasetReaderStage(materialize_on_read=True, sample_id_field="sample_id")
    for path in sorted(glob.glob(source)):
        stage.process(read.process(tasks.FileGroupTask(dataset_name="d", data=[path])))


def _content(table: pa.Table) -> list[dict[str, object]]:
    """Rows without their lineage and nulls, whatever the order of the shards."""
    rows = table.drop_columns([name for name in table.column_names if name in _LINEAGE]).to_pylist()
    rows.sort(key=lambda row: (row["sample_id"], row["position"], row["modality"] != "text"))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.parametrize("target,ending", [("parquet", "parquet"), ("webdataset", "tar")])
def test_curator_reads_what_lading_converts(tmp_path: Path, documents: str, target: str, ending: str) -> None:
    lading.convert(documents, tmp_path / "new", format=target)
    assert _content(_read(f"{tmp_path}/new/*.{ending}")) == _content(_read(documents))


@pytest.mark.parametrize(
    "kind,ending", [("InterleavedParquetWriterStage", "parquet"), ("InterleavedWebdatasetWriterStage", "tar")]
)
def test_lading_reads_what_curator_converts(tmp_path: Path, documents: str, kind: str, ending: str) -> None:
    _write(documents, getattr(writers, kind)(path=str(tmp_path / "new"), mode="overwrite", materialize_on_write=True))
    with lading.open(f"{tmp_path}/new/*.{ending}") as dataset:
        assert dataset.view == "interleaved"
        ours = pa.concat_tables(map(pa.table, dataset.batches()), promote_options="permissive")
    assert _content(ours) == _content(_read(documents))
