"""Unmodified pipelines of NeMo Curator with lading's readers and writers: the files and rows of the peer's own."""

from __future__ import annotations

import copy
import inspect
import io
import json
import os
import pickle
import re
import subprocess
import sys
import tarfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading.compat import nemo_curator as compat
from lading.errors import SourceNotFound, UsageError
from peers import import_peer

peer_io = import_peer("nemo_curator.stages.interleaved.io")
peer_readers = import_peer("nemo_curator.stages.interleaved.io.readers")
stages = import_peer("nemo_curator.stages.interleaved.stages")
pipelines = import_peer("nemo_curator.pipeline")
backends = import_peer("nemo_curator.backends.base")
tasks_of = import_peer("nemo_curator.tasks")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

_STAGES = ["InterleavedParquetReaderStage", "InterleavedWebdatasetReaderStage"]
_READERS = {"parquet": "InterleavedParquetReader", "tar": "InterleavedWebdatasetReader"}
_WRITERS = {"parquet": "InterleavedParquetWriterStage", "tar": "InterleavedWebdatasetWriterStage"}
_SCRIPT = re.compile(r"^## NeMo Curator\n.*?```text\n(.*?)```", re.MULTILINE | re.DOTALL)


def _tiff(*colours: str) -> bytes:
    """A TIFF with an image of each colour."""
    sink = io.BytesIO()
    first, *rest = (Image.new("RGB", (8, 4), colour) for colour in colours)
    first.save(sink, format="TIFF", save_all=True, append_images=rest)
    return sink.getvalue()


def _write_tar(path: Path, **members: bytes | dict[str, Any]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, told in members.items():
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))


@pytest.fixture(scope="module")
def mint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tars of real documents, and of one with the frames of a TIFF."""
    folder = tmp_path_factory.mktemp("mint")
    for path in resources.files("lading._core.data").iterdir():
        if path.name.endswith(".tar"):
            (folder / path.name).write_bytes(path.read_bytes())
    frames = {"texts": [None, "between", None], "images": ["d.tiff", None, "d.tiff"], "url": "u", "title": "t",
              "sample_id": "frames"}  # fmt: skip
    _write_tar(folder / "frames.tar", **{"d.json": frames, "d.tiff": _tiff("red", "blue")})
    return folder


@pytest.fixture(scope="module")
def curated(mint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents as Parquet files of the peer."""
    folder = tmp_path_factory.mktemp("curated")
    reader = peer_io.InterleavedWebdatasetReader(str(mint), sample_id_field="sample_id")
    _run(reader, peer_io.InterleavedParquetWriterStage(str(folder)))
    return folder


class Here(backends.BaseExecutor):  # type: ignore[misc, name-defined] # the peer has no types
    """Runs stages in this process, as executors do: stages are pickled, and the peer's adapter numbers tasks."""

    def execute(self, stages: list[Any], initial_tasks: Any = None) -> list[Any]:
        tasks = initial_tasks or [tasks_of.EmptyTask()]
        for stage in stages:
            adapter = backends.BaseStageAdapter(pickle.loads(pickle.dumps(copy.deepcopy(stage))))
            tasks = [made for task in tasks for made in adapter.process_batch([task])]
        return tasks


def _run(*parts: Any) -> list[Any]:
    done: list[Any] = pipelines.Pipeline("p", stages=list(parts)).run(Here())
    return done


def _rows_of(path: Path) -> list[dict[str, Any]]:
    """Rows of a file as the peer reads them, with their bytes; images of tars are in other places."""
    if path.suffix == ".tar":
        stage = peer_readers.InterleavedWebdatasetReaderStage(materialize_on_read=True, sample_id_field="sample_id")
    else:
        stage = peer_readers.InterleavedParquetReaderStage()
    rows = _pixels(stage.process(tasks_of.FileGroupTask(dataset_name="d", data=[str(path)])).to_pyarrow())
    rows.sort(key=lambda row: (row["sample_id"], row["position"], row["modality"] != "text"))
    return [{n: value for n, value in row.items() if path.suffix != ".tar" or n != "source_ref"} for row in rows]


def _files(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.name: _rows_of(path) for path in sorted(folder.iterdir())}


def _both(module: Any, name: str) -> Any:
    """The part of this name, of the peer or of lading."""
    if module is compat:
        return getattr(compat, name)
    return getattr(peer_readers if name.endswith("ReaderStage") else peer_io, name)


# A pipeline


def test_a_reader_without_files_is_an_error(tmp_path: Path) -> None:
    for name in ("InterleavedWebdatasetReader", "InterleavedParquetReader"):
        assert _run(_both(peer_io, name)(str(tmp_path / "typo"))) == []
        with pytest.raises(SourceNotFound, match=r"typo: there is no file to read; expected .*\.(tar|parquet)"):
            _run(_both(compat, name)(str(tmp_path / "typo")))


def _check_script(folder: Path, mint: Path, run: Callable[[str], str]) -> None:
    """Run the script of the page in a folder, and compare its files with those of the peer's own parts."""
    [script] = _SCRIPT.findall((Path(__file__).parents[2] / "docs" / "coming-from.md").read_text())
    (folder / "docs").symlink_to(mint)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # names of files are made of the paths as they are given
        said = run(script)
        how = {"sample_id_field": "sample_id", "fields": ("url", "title"), "max_batch_bytes": 64 * 1024 * 1024}
        _run(
            peer_io.InterleavedWebdatasetReader("docs", **how),
            stages.InterleavedAspectRatioFilterStage(min_aspect_ratio=0.5, max_aspect_ratio=2.0),
            peer_io.InterleavedParquetWriterStage("theirs", on_materialize_error="drop_sample"),
        )
    written = _files(folder / "curated")
    assert f"{len(written)} files, such as {folder}/curated/" in said
    assert written == _files(folder / "theirs")


def _in_a_process(script: str) -> str:
    home = {"HOME": os.getcwd(), "RAY_AUTH_MODE": "disabled", "RAY_raylet_start_wait_time_s": "600"}
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, **home}, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_script_of_the_page(mint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def here(script: str) -> str:
        exec(script.replace("RayDataExecutor()", "Here()"), {"Here": Here, "__name__": "script"})
        return capsys.readouterr().out

    _check_script(tmp_path, mint, here)


@pytest.mark.soak
def test_the_script_of_the_page_on_ray_data(mint: Path, tmp_path: Path) -> None:
    local = "import ray\nray.init('local', num_cpus=2, include_dashboard=False, object_store_memory=80 << 20)\n"
    _check_script(tmp_path, mint, lambda script: _in_a_process(local + script))


@pytest.mark.soak
def test_the_script_of_the_page_on_xenna(mint: Path, tmp_path: Path) -> None:
    for package in ("aiohttp", "cattrs", "jinja2", "portpicker", "pulp", "tabulate"):
        pytest.importorskip(package)
    local = (
        "import os, ray\n"
        "told = ray.init('local', num_cpus=3, include_dashboard=True, object_store_memory=80 << 20)\n"
        "os.environ['RAY_ADDRESS'] = told.address_info['gcs_address']\n"
        "from nemo_curator.backends.xenna import XennaExecutor\n"
    )

    def on_xenna(script: str) -> str:
        return _in_a_process(local + script.replace("RayDataExecutor()", "XennaExecutor({'execution_mode': 'batch'})"))

    _check_script(tmp_path, mint, on_xenna)


@pytest.mark.cases(4)
@pytest.mark.parametrize("source", ["tar", "parquet"])
@pytest.mark.parametrize("target", ["tar", "parquet"])
def test_all_four_combinations_write_the_peers_files(
    mint: Path, curated: Path, tmp_path: Path, source: str, target: str
) -> None:
    where = str(mint if source == "tar" else curated)
    how: dict[str, Any] = {"sample_id_field": "sample_id"} if source == "tar" else {}
    done = {}
    for name, module in (("theirs", peer_io), ("mine", compat)):
        done[name] = _run(
            _both(module, _READERS[source])(where, max_batch_bytes=20_000, files_per_partition=2, **how),
            stages.InterleavedAspectRatioFilterStage(max_aspect_ratio=3.0),
            _both(module, _WRITERS[target])(str(tmp_path / name), mode="error"),
        )
    assert _files(tmp_path / "mine") == _files(tmp_path / "theirs")
    assert len(_files(tmp_path / "mine")) > len(list(Path(where).iterdir()))
    for mine, theirs in zip(done["mine"], done["theirs"], strict=True):
        assert (mine.task_id, mine._metadata) == (theirs.task_id, theirs._metadata)
        assert [Path(path).name for path in mine.data] == [Path(path).name for path in theirs.data]


def test_parts_of_both_stand_in_one_pipeline(mint: Path, tmp_path: Path) -> None:
    for reader, writer in ((compat, peer_io), (peer_io, compat)):
        read = _both(reader, "InterleavedWebdatasetReader")(str(mint), sample_id_field="sample_id")
        _run(read, _both(writer, "InterleavedWebdatasetWriterStage")(str(tmp_path / reader.__name__)))
    [mine, theirs] = [_files(path) for path in tmp_path.iterdir()]
    assert mine == theirs


def test_configuration_of_the_stages_by_with(mint: Path, tmp_path: Path) -> None:
    reader = compat.InterleavedWebdatasetReader(str(mint))
    reader.with_({"webdataset_reader": {"batch_size": 2, "num_workers": 1}})
    [_, stage] = reader.decompose_and_apply_with()
    assert (stage.batch_size, stage.num_workers()) == (2, 1)
    writer = compat.InterleavedParquetWriter(str(tmp_path)).with_(name="other", num_workers=3)
    assert (writer.name, writer.num_workers()) == ("other", 3)
    assert stage.ray_stage_spec() == {"is_fanout_stage": True}
    described = pipelines.Pipeline("p", stages=[reader, writer]).describe()
    assert "Error" not in described


def test_executors_find_compressed_tars(mint: Path, tmp_path: Path) -> None:
    gz = import_peer("gzip")
    (tmp_path / "frames.tar.gz").write_bytes(gz.compress((mint / "frames.tar").read_bytes()))
    _run(
        compat.InterleavedWebdatasetReader(str(tmp_path)), peer_io.InterleavedParquetWriterStage(str(tmp_path / "out"))
    )
    [path] = (tmp_path / "out").iterdir()
    assert [row["binary_content"] is None for row in _rows_of(path)] == [True, False, True, False]


# Names and arguments


@pytest.mark.cases(6)
@pytest.mark.parametrize("name", [*_READERS.values(), *_WRITERS.values(), *_STAGES])
def test_names_order_and_defaults_of_arguments(tmp_path: Path, name: str) -> None:
    mine, theirs = (
        [*inspect.signature(_both(module, name).__init__).parameters.values()] for module in (compat, peer_io)
    )
    extra = [one.name for one in mine if one.kind is one.KEYWORD_ONLY]
    assert extra == (["roots"] if "Writer" in name else [])
    mine = [one for one in mine if one.name not in extra]
    assert [one.name for one in mine] == [one.name for one in theirs]
    path = [str(tmp_path)] if "Writer" in name or not name.endswith("Stage") else []
    made = [_both(module, name)(*path) for module in (compat, peer_io)]
    for one in theirs[1:]:
        ours, own = (getattr(part, one.name) for part in made)
        assert ours == own or (list(ours or ()), one.name) == (list(own or ()), one.name), one.name


# Readers


_TAR_ARGUMENTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "bytes": {"materialize_on_read": True},
    "ids": {"sample_id_field": "sample_id"},
    "fields": {"fields": ("url", "absent")},
    "no fields": {"fields": ()},
    "splits": {"max_batch_bytes": 20_000},
    "splits with bytes": {"max_batch_bytes": 300_000, "materialize_on_read": True},
    "lists": {"per_image_fields": ("alt_text",), "per_text_fields": ("p_hash",)},
}


@pytest.mark.cases(9)
@pytest.mark.parametrize("how", _TAR_ARGUMENTS)
def test_tables_of_tars_are_the_peers(mint: Path, how: str) -> None:
    _compare_tables("InterleavedWebdatasetReaderStage", mint, _TAR_ARGUMENTS[how])


_PARQUET_ARGUMENTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "fields": {"fields": ("url", "absent")},
    "splits": {"max_batch_bytes": 300_000},
    "schema": {"schema": pa.schema([*INTERLEAVED_SCHEMA, ("url", pa.large_string()), ("absent", pa.float32())])},
}


@pytest.mark.cases(4)
@pytest.mark.parametrize("how", _PARQUET_ARGUMENTS)
def test_tables_of_parquet_are_the_peers(curated: Path, how: str) -> None:
    _compare_tables("InterleavedParquetReaderStage", curated, _PARQUET_ARGUMENTS[how])


def _compare_tables(name: str, folder: Path, how: dict[str, Any]) -> None:
    """Compare columns, their order and types, rows, and what a task says of its files."""
    files = sorted(map(str, folder.iterdir()))
    for group in ([files[0]], files):
        task = tasks_of.FileGroupTask(dataset_name="d", data=group, _metadata={"source_files": group, "n": 1})
        made = [_both(module, name)(**how).process(task) for module in (compat, peer_io)]
        mine, theirs = (one if isinstance(one, list) else [one] for one in made)
        assert [one._metadata for one in mine] == [one._metadata for one in theirs]
        for ours, own in zip(mine, theirs, strict=True):
            names = own.data.column_names
            if "fields" in how or "per_text_fields" in how:  # the peer has columns in the order of a set then
                names = sorted(names, key=ours.data.column_names.index)
            theirs_now = own.data.select(names)
            assert ours.data.schema.equals(theirs_now.schema, check_metadata=False)
            assert _pixels(ours.data) == _pixels(theirs_now)


def _pixels(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows with the pixels of TIFFs: lading copies the compressed pixels of a frame, the peer packs them anew."""
    found: list[dict[str, Any]] = rows.to_pylist()
    for row in found:
        if row["content_type"] == "image/tiff" and row["binary_content"]:
            row["binary_content"] = Image.open(io.BytesIO(row["binary_content"])).tobytes()
    return found


def test_an_empty_tar_is_a_batch_without_rows(tmp_path: Path) -> None:
    _write_tar(tmp_path / "a.tar")
    task = tasks_of.FileGroupTask(dataset_name="d", data=[str(tmp_path / "a.tar")])
    mine, theirs = (_both(one, "InterleavedWebdatasetReaderStage")().process(task).data for one in (compat, peer_io))
    assert mine.equals(theirs)


def test_unsorted_parquet_comes_as_it_is(tmp_path: Path) -> None:
    rows = [{"sample_id": name, "position": 0, "modality": "text", "text_content": name} for name in "aba"]
    pq.write_table(pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA), tmp_path / "a.parquet")
    _compare_tables("InterleavedParquetReaderStage", tmp_path, {})


def test_batches_outside_a_pipeline_are_those_of_the_stage(mint: Path, tmp_path: Path) -> None:
    reader = compat.InterleavedWebdatasetReader(str(mint), max_batch_bytes=20_000)
    writer = peer_io.InterleavedParquetWriterStage(str(tmp_path / "mine"))
    count = 0
    for batch in reader.batches():
        sources = json.loads(batch.schema.metadata[b"lading.source_files"])
        rows = pa.table(batch).replace_schema_metadata(None)
        writer.process(tasks_of.InterleavedBatch("d", rows, _metadata={"source_files": sources}))
        count += 1
    assert len(_files(tmp_path / "mine")) == count > 3  # a file of each split


# Writers


def _failing() -> pa.Table:
    def row(name: str, position: int, **more: Any) -> dict[str, Any]:
        kind = (
            {"modality": "text", "text_content": "t", "content_type": "text/plain"}
            if position == 0
            else {"modality": "image", "content_type": "image/png"}
        )
        return {"sample_id": name, "position": position, **kind, **more}

    rows = [
        row("a", 0), row("a", 1, binary_content=b"a"), row("b", 0), row("b", 1, materialize_error="404"),
        row("c", 1), row("c", 0), row("d", 1, source_ref='{"path": "/nowhere/d.png"}'), row("e", 0),
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, INTERLEAVED_SCHEMA)


@pytest.mark.cases(16)
@pytest.mark.parametrize("policy", ["error", "warn", "drop_row", "drop_sample"])
@pytest.mark.parametrize("materialize", [True, False])
@pytest.mark.parametrize("kind", ["parquet", "tar"])
def test_the_four_policies(tmp_path: Path, policy: str, kind: str, *, materialize: bool) -> None:
    found: dict[str, Any] = {}
    for name, module in (("mine", compat), ("theirs", peer_io)):
        writer = _both(module, _WRITERS[kind])(
            str(tmp_path / name), materialize_on_write=materialize, on_materialize_error=policy
        )
        task = tasks_of.InterleavedBatch("d", _failing(), _metadata={"source_files": ["a"]})
        try:
            writer.process(task)
        except RuntimeError:
            found[name] = "RuntimeError"
            continue
        rows = next(iter(_files(tmp_path / name).values()))
        # The words of errors differ.
        found[name] = [{**row, "materialize_error": row["materialize_error"] is not None} for row in rows]
    assert found["mine"] == found["theirs"]
    assert (found["mine"] == "RuntimeError") == (policy == "error")


def _outcome(make: Callable[[], Any], folder: Path) -> Exception | list[str]:
    """The files that a mode leaves in a folder, or its error."""
    try:
        make()
    except (OSError, NotImplementedError, ValueError) as error:
        return error
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.cases(18)
@pytest.mark.parametrize("before", ["nothing", "empty", "file"])
@pytest.mark.parametrize("mode", ["ignore", "overwrite", "append", "error", " Ignore", "other"])
def test_the_modes(tmp_path: Path, mode: str, before: str) -> None:
    found = []
    for module in (compat, peer_io):
        folder = tmp_path / module.__name__
        if before != "nothing":
            (folder / "sub" if before == "file" else folder).mkdir(parents=True)
        if before == "file":
            pq.write_table(_failing(), folder / "sub" / "a.parquet")
        make = partial(_both(module, "InterleavedParquetWriterStage"), str(folder), mode=mode)
        found += [_outcome(partial(make, append_mode_implemented=taken), folder) for taken in (False, True)]
    for mine, theirs in zip(found[:2], found[2:], strict=True):
        if isinstance(theirs, NotImplementedError):
            assert isinstance(mine, UsageError)
        elif isinstance(theirs, Exception):
            assert isinstance(mine, type(theirs))
        else:
            assert mine == theirs


def test_names_of_files_are_the_peers(tmp_path: Path) -> None:
    rows = _failing().slice(0, 2)
    for sources, count in ((["b.tar", "a.tar"], 1), (["a.tar::split_00003"], 1), ([], 0)):
        names = []
        for module in (compat, peer_io):
            task = tasks_of.InterleavedBatch("d", rows, _metadata={"source_files": sources} if sources else {})
            task._set_task_id("0_abc", 3)
            done = _both(module, "InterleavedParquetWriterStage")(str(tmp_path)).process(task)
            assert Path(done.data[0]).is_file()
            names.append(Path(done.data[0]).name)
        assert (len({*names}) == 1) == bool(count)


def test_a_failed_task_leaves_no_file_and_runs_again(mint: Path, tmp_path: Path) -> None:
    writer = compat.InterleavedParquetWriter(str(tmp_path))
    task = tasks_of.InterleavedBatch("d", _failing(), _metadata={"source_files": [str(mint / "a.tar")]})
    with pytest.raises(RuntimeError, match=r"a\.tar.*on_materialize_error"):
        writer.process(task)
    assert not list(tmp_path.iterdir())
    good = tasks_of.InterleavedBatch("d", _failing().slice(0, 2), _metadata=task._metadata)
    assert [writer.process(good).data for _ in range(2)] == [writer.process(good).data] * 2
    assert len(list(tmp_path.iterdir())) == 1


def _pages(folder: Path) -> Iterator[str]:
    with lading.open(folder) as dataset:
        yield from (sample["sample_id"] for sample in dataset)


def test_lading_opens_the_files_as_one_dataset(mint: Path, tmp_path: Path) -> None:
    reader = compat.InterleavedWebdatasetReader(str(mint), sample_id_field="sample_id", max_batch_bytes=20_000)
    _run(reader, compat.InterleavedWebdatasetWriter(str(tmp_path)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sorted(_pages(tmp_path)) == sorted(_pages(mint))
