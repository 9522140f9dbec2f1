"""MosaicML Streaming and lading side by side: each line of the table in `docs/coming-from.md`, and a user's script."""

from __future__ import annotations

import gc
import importlib
import io
import json
import pickle
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import DataLoader

import lading
from doc_tables import Table
from lading.compat import mosaicml as mine
from lading.errors import UsageError
from peers import import_peer
from replacements import replaced

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]  # the peer leaves files open

_TABLE = Table("MosaicML Streaming")
_COLUMNS = {"n": "int", "text": "str", "array": "ndarray:int16"}
_OPTIONS = {"compression": "zstd:3", "hashes": ["sha1", "xxh64"], "size_limit": "2kb"}
_ROWS = [{"n": i, "text": "word " * (i % 20), "array": np.arange(1 + i % 5, dtype=np.int16)} for i in range(200)]


@pytest.fixture(scope="module")
def theirs() -> Iterator[ModuleType]:
    """The peer. It imports torchvision and transformers for datasets that nobody here opens."""
    with replaced("torchvision", "transformers"):
        yield import_peer("streaming")
    gc.collect()


@pytest.fixture(autouse=True)
def _shared_memory_ends_with_the_test(theirs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The peer frees shared memory, two dozen open files a dataset, when the program ends: here before."""
    ends: list[Any] = []
    memory = importlib.import_module("streaming.base.shared.memory")
    monkeypatch.setattr(memory, "atexit", SimpleNamespace(register=ends.append))
    yield
    for end in ends:
        end()


def _write(library: Any, out: Path, rows: list[dict[str, Any]] = _ROWS, **options: Any) -> Path:
    with library.MDSWriter(out=str(out), columns=_COLUMNS, **{**_OPTIONS, **options}) as writer:
        for row in rows:
            writer.write(row)
    return out


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def _plain(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in sorted(sample.items())}


def _column(batch: list[dict[str, Any]]) -> dict[str, list[int]]:
    return {"n": [row["n"] for row in batch]}


def _numbers(loader: Any) -> list[int]:
    return [number for batch in loader for number in batch["n"]]


def _entry(folder: Path) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((folder / "index.json").read_text())["shards"][0]
    return entry


@_TABLE.line("`MDSWriter(out=…, columns=…, compression=…, hashes=…, size_limit=…)`")
@pytest.mark.cases(3)
@pytest.mark.parametrize("options", [{}, {"compression": None, "hashes": None}, {"size_limit": None}])
def test_the_writer_writes_the_bytes_of_the_peer(theirs: ModuleType, tmp_path: Path, options: dict[str, Any]) -> None:
    expected = _files(_write(theirs, tmp_path / "theirs", **options))
    assert _files(_write(mine, tmp_path / "mine", **options)) == expected
    rest = {name: value for name, value in {**_OPTIONS, **options}.items() if value is not None}
    size = {"size_limit": options["size_limit"]} if "size_limit" in options else {}
    with lading.writer(
        tmp_path / "out", format="mds", options={"columns": _COLUMNS, **rest, **size}, shard_size="1GB"
    ) as out:
        for row in _ROWS:
            out.write(row)
    assert _files(tmp_path / "out") == expected


@_TABLE.line("`MDSWriter(exist_ok=True)`")
def test_a_dataset_is_replaced_where_that_is_said(theirs: ModuleType, tmp_path: Path) -> None:
    for library in (theirs, mine):
        _write(library, tmp_path / "out", exist_ok=True)
        with pytest.raises(FileExistsError):
            _write(library, tmp_path / "out")
        again = _write(library, tmp_path / "out", _ROWS[:3], exist_ok=True)
        assert _entry(again)["samples"] == 3
    lading.writer(tmp_path / "out", format="mds", overwrite=True).abort()


@_TABLE.line("`MDSWriter(out=(local, remote))`, `keep_local=True`")
def test_a_copy_of_what_is_uploaded_is_made_afterwards(theirs: ModuleType, tmp_path: Path) -> None:
    both = (str(tmp_path / "local"), str(tmp_path / "remote"))
    with theirs.MDSWriter(out=both, columns={"n": "int"}, keep_local=True) as writer:
        writer.write({"n": 1})
    with pytest.raises(UsageError, match="LocalCopy"):
        mine.MDSWriter(out=both, columns={"n": "int"})  # type: ignore[arg-type] # what is refused
    with pytest.raises(UsageError, match="LocalCopy"):
        mine.MDSWriter(out=tmp_path / "new", columns={"n": "int"}, keep_local=True)
    copy = lading.compat.mosaicml.LocalCopy(tmp_path / "copy", remote=tmp_path / "remote")
    copy.shards[0].prepare()
    assert _files(tmp_path / "copy") == _files(tmp_path / "local")


@_TABLE.line('`MDSWriter(columns={"a": "ndarray:float32"})` with arrays of another dtype')
@pytest.mark.parametrize("encoding", ["ndarray:float32", "ndarray:float32:2", "ndarray:int8:2", "ndarray:float16"])
def test_arrays_keep_their_values(theirs: ModuleType, tmp_path: Path, encoding: str) -> None:
    for values, changes in (([0.1, 300.5], True), (np.float64([1, 2]), False), ([1, 2], False)):
        array = np.asarray(values)
        for library in (theirs, mine):
            out = tmp_path / f"{library.__name__}-{array.dtype}-{changes}"
            with (
                pytest.raises(ValueError, match=r"(?i)dtype.*expected.*int64|float64"),
                library.MDSWriter(out=str(out), columns={"a": encoding}) as writer,
            ):
                writer.write({"a": array})
        options = {"columns": {"a": encoding}}
        writer = lading.writer(tmp_path / "new", format="mds", overwrite=True, options=options)
        with pytest.raises(ValueError, match=r"round|cannot hold") if changes else nullcontext(), writer:
            writer.write({"a": array})
        if not changes:
            assert lading.open(tmp_path / "new")[0]["a"].tolist() == array.tolist()


@_TABLE.line("`progress_bar=…`, `max_workers=…`, `retry=…` of `MDSWriter`")
def test_uploads_are_not_tuned(theirs: ModuleType, tmp_path: Path) -> None:
    for library in (theirs, mine):
        _write(library, tmp_path / library.__name__, progress_bar=False, max_workers=None, retry=2)
    assert _files(tmp_path / theirs.__name__) == _files(tmp_path / mine.__name__)
    for number, given in enumerate(({"progress_bar": True}, {"max_workers": 3}, {"retry": 5})):
        _write(theirs, tmp_path / f"their {number}", **given)
        with pytest.raises(UsageError, match="uploads go on"):
            _write(mine, tmp_path / "refused", **given)
    out = tmp_path / "with retries"
    with lading.compat.mosaicml.MDSWriter(out=out, columns=_COLUMNS, storage_options={"retry_s": 180}) as writer:
        writer.write(_ROWS[0])
    assert _entry(out)["samples"] == 1


@_TABLE.line("an error inside `with MDSWriter(…)`")
def test_a_writer_that_fails_leaves_nothing(theirs: ModuleType, tmp_path: Path) -> None:
    for library in (theirs, mine):
        out = tmp_path / library.__name__
        with pytest.raises(KeyError):
            _write(library, out, [_ROWS[0], {"m": 1}])
        assert (out / "index.json").exists() == (library is theirs)


@_TABLE.line("`pkl` columns of `MDSWriter`")
def test_pickles_are_read_where_that_is_allowed(theirs: ModuleType, tmp_path: Path) -> None:
    with theirs.MDSWriter(out=str(tmp_path / "set"), columns={"v": "pkl"}) as writer:
        writer.write({"v": {1, 2}})
    with pytest.raises(UsageError), mine.MDSWriter(out=tmp_path / "new", columns={"v": "pkl"}) as refused:
        refused.write({"v": {1, 2}})
    for library in (theirs, mine):
        with pytest.raises(ValueError, match="v"):
            library.StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    for library in (theirs, mine):
        local = shutil.copytree(tmp_path / "set", tmp_path / library.__name__)
        assert library.StreamingDataset(local=str(local), batch_size=1, allow_unsafe_types=True)[0] == {"v": {1, 2}}
    with lading.open(tmp_path / "set", options={"allow_pickle": True}) as dataset:
        assert dataset[0] == {"v": {1, 2}}
    with lading.open(tmp_path / "set") as dataset:
        assert pickle.loads(dataset[0]["v"]) == {1, 2}


@_TABLE.line('`StreamingDataset(local="set", split="train")`, `ds[i]`, `len(ds)`')
def test_samples_by_number(theirs: ModuleType, tmp_path: Path) -> None:
    _write(mine, tmp_path / "set" / "train")
    ours = mine.StreamingDataset(local=tmp_path / "set", split="train", batch_size=4)
    dataset = theirs.StreamingDataset(local=str(tmp_path / "set"), split="train", batch_size=4)
    assert (len(ours), ours.size, ours.length) == (len(dataset), dataset.size, dataset.length) == (200, 200, 200)
    with lading.open(tmp_path / "set", split="train") as opened:
        for index in (0, -1, slice(3, 30, 7), [5, 150], np.array([1, 199])):
            found = [each if isinstance(each, list) else [each] for each in (ours[index], dataset[index])]
            assert [*map(_plain, found[0])] == [*map(_plain, found[1])]
        assert [*map(_plain, opened)] == [*map(_plain, dataset)]
    with pytest.raises(IndexError):
        ours[200]


def _picture(mode: str, form: str | None = None) -> Any:
    picture = Image.effect_noise((20, 30), 50).convert(mode)
    if form is None:
        return picture
    data = io.BytesIO()
    picture.save(data, form)
    return Image.open(data)


_VALUES: dict[str, list[Any]] = {
    "bytes": [b"x"], "str": ["é", ""], "int": [5, -(2**63)], "json": [{"a": [1]}, [1], "s", 3, None, 1.5, True],
    "float16": [0.5, np.float32(0.25), 1], "float32": [0.25, 1], "float64": [1e-9, 2], "int8": [-3], "int16": [-3],
    "int32": [-3], "int64": [-3], "uint8": [200, np.uint8(3)], "uint16": [7], "uint32": [7], "uint64": [2**63],
    "ndarray": [np.arange(12).reshape(3, 4), np.int8([1])], "ndarray:float32": [np.float32([[1, 2]])],
    "ndarray:int64:3,4": [np.arange(12).reshape(3, 4)], "str_int": [10**30, 5], "str_float": [0.1, 3.0],
    "str_decimal": [Decimal("1.50")], "pil": [_picture("RGB"), _picture("L")],
    "jpeg": [_picture("RGB"), _picture("RGB", "JPEG")], "png": [_picture("RGB"), _picture("L")],
    "list[pil]": [[_picture("RGB"), _picture("L")], []], "list[png]": [[_picture("RGB")], []],
    "list[jpeg]": [[_picture("RGB"), _picture("RGB", "JPEG")], []],
}  # fmt: skip


def _facts(value: Any) -> Any:
    """Return type and content of a value."""
    if isinstance(value, list):
        return [*map(_facts, value)]
    if isinstance(value, Image.Image):
        return type(value), value.size, value.mode, value.tobytes()
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tolist()
    return type(value), value


@_TABLE.line("`MDSWriter(out=…, columns=…, compression=…, hashes=…, size_limit=…)`")
def test_every_encoding_has_the_bytes_and_values_of_the_peer(theirs: ModuleType, tmp_path: Path) -> None:
    columns = {f"c{number:02}": encoding for number, encoding in enumerate(_VALUES)}
    rows = [
        {name: (values := _VALUES[encoding])[number % len(values)] for name, encoding in columns.items()}
        for number in range(max(map(len, _VALUES.values())))
    ]
    for library in (theirs, mine):
        with library.MDSWriter(out=str(tmp_path / library.__name__), columns=columns) as out:
            for row in rows:
                out.write(row)
    assert _files(tmp_path / mine.__name__) == _files(tmp_path / theirs.__name__)
    ours = mine.StreamingDataset(local=tmp_path / theirs.__name__, batch_size=1)
    peers = theirs.StreamingDataset(local=str(tmp_path / mine.__name__), batch_size=1)
    for one, two in zip(ours, peers, strict=True):
        for name, encoding in columns.items():
            assert _facts(one[name]) == _facts(two[name]), encoding


@_TABLE.line("`StreamingDataset(remote=…, local=…, keep_zip=…, validate_hash=…)`")
@pytest.mark.cases(2)
@pytest.mark.parametrize("keep_zip", [True, False])
def test_shards_are_fetched_into_the_local_folder(theirs: ModuleType, tmp_path: Path, keep_zip: bool) -> None:
    remote = _write(theirs, tmp_path / "remote")
    how = {"keep_zip": keep_zip, "validate_hash": "sha1"}
    for library in (theirs, mine):
        dataset = library.StreamingDataset(
            remote=str(remote), local=str(tmp_path / library.__name__), batch_size=8, predownload=64, **how
        )
        assert _numbers(DataLoader(dataset, 8, collate_fn=_column)) == [*range(200)]
    copy = lading.compat.mosaicml.LocalCopy(tmp_path / "cache", remote=remote, keep_zip=keep_zip, validate_hash="sha1")
    assert [row["n"] for row in copy] == [*range(200)]
    expected = _files(tmp_path / theirs.__name__)
    assert _files(tmp_path / mine.__name__) == _files(tmp_path / "cache") == expected


@_TABLE.line(
    "`ds.shards[i].get_raw_size()`, `get_zip_size()`, `get_item()`, `decode_sample()` …",
    "`raw_data`, `zip_data`, `column_names`, `column_encodings`, `column_sizes` of a shard",
)
@pytest.mark.cases(2)
@pytest.mark.parametrize("compression", [None, "gz"])
def test_a_shard_has_the_names_of_the_peer(theirs: ModuleType, tmp_path: Path, compression: str | None) -> None:
    _write(theirs, tmp_path / "set", compression=compression)
    dataset = theirs.StreamingDataset(local=str(tmp_path / "set"), batch_size=1)
    assert len([*dataset]) == len(_ROWS)  # unpacks
    ours = mine.StreamingDataset(local=tmp_path / "set", batch_size=1)
    with lading.open(tmp_path / "set") as opened:
        for shards in (ours.shards, opened.shards):
            for shard, peer in zip(shards, dataset.shards, strict=True):
                for name in ("column_names", "column_encodings", "column_sizes", "size"):
                    assert getattr(shard, name) == getattr(peer, name)
                for name in ("raw_data", "zip_data"):
                    file, other = getattr(shard, name), getattr(peer, name)
                    assert (None if file is None else vars(file)) == (None if other is None else vars(other))
                for name in ("get_raw_size", "get_zip_size", "get_max_size"):
                    assert getattr(shard, name)() == getattr(peer, name)()
                assert shard.get_persistent_size(True) == peer.get_persistent_size(True)
                assert shard.get_sample_data(1) == (data := peer.get_sample_data(1))
                assert (
                    _plain(shard.decode_sample(data)) == _plain(peer.decode_sample(data)) == _plain(shard.get_item(1))
                )


@_TABLE.line(
    "`MDSReader(dirname, split, column_encodings, …)`, `JSONReader`, `CSVReader`, `TSVReader`, `XSVReader`, "
    "`from_json`, `reader_from_json`"
)
@pytest.mark.cases(5)
@pytest.mark.parametrize("kind", ["mds", "json", "csv", "tsv", "xsv"])
def test_readers_take_the_arguments_of_the_peer_in_its_order(theirs: ModuleType, tmp_path: Path, kind: str) -> None:
    writer = getattr(theirs, f"{kind.upper()}Writer")
    more = {"separator": "|"} if kind == "xsv" else {}
    with writer(out=str(tmp_path / "set"), columns={"n": "int", "text": "str"}, **more) as out:
        for row in _ROWS:
            out.write({"n": row["n"], "text": row["text"]})
    formats = import_peer("streaming.base.format")
    module = import_peer(f"streaming.base.format.{'xsv' if kind in ('csv', 'tsv') else kind}.reader")
    info, entry = import_peer("streaming.base.format.base.reader").FileInfo, _entry(tmp_path / "set")
    peer_class, our_class = getattr(module, f"{kind.upper()}Reader"), getattr(mine, f"{kind.upper()}Reader")
    orders = {
        "mds": ("column_encodings", "column_names", "column_sizes", "compression", "hashes", "raw_data", "samples",
                "size_limit", "zip_data"),
        "json": ("columns", "compression", "hashes", "newline", "raw_data", "raw_meta", "samples", "size_limit",
                 "zip_data", "zip_meta"),
        "xsv": ("column_encodings", "column_names", "compression", "hashes", "newline", "raw_data", "raw_meta",
                "samples", "separator", "size_limit", "zip_data", "zip_meta"),
    }  # fmt: skip
    order = [name for name in orders.get(kind, orders["xsv"]) if kind not in ("csv", "tsv") or name != "separator"]
    values = {name: info(**value) if name.startswith("raw") else value for name, value in entry.items()}
    given = (str(tmp_path), "set", *(values[name] for name in order))
    peers = [peer_class(*given), peer_class.from_json(str(tmp_path), "set", entry),
             formats.reader_from_json(str(tmp_path), "set", entry)]  # fmt: skip
    ours = [our_class(*given), our_class.from_json(str(tmp_path), "set", entry),
            mine.reader_from_json(str(tmp_path), "set", entry)]  # fmt: skip
    for reader, peer in zip(ours, peers, strict=True):
        assert isinstance(reader, our_class)
        assert [*map(_plain, reader)] == [*map(_plain, peer)]
        for name in set(order) - {"raw_data", "raw_meta"}:
            assert getattr(reader, name) == getattr(peer, name), name
        for raw in {"raw_data", "raw_meta"} & set(order):
            assert vars(getattr(reader, raw)) == vars(getattr(peer, raw))
    for other in (peer_class, our_class):
        with pytest.raises(ValueError, match="format"):
            other.from_json(str(tmp_path), "set", {**entry, "format": "other"})


@_TABLE.line("`class MyReader(Reader)` with `get_sample_data` and `decode_sample`; `file_pairs`, `FileInfo`")
def test_a_reader_of_ones_own(theirs: ModuleType, tmp_path: Path) -> None:
    base = import_peer("streaming.base.format.base.reader")
    found = []
    for library in (base, mine):

        class Lines(library.Reader):  # type: ignore[misc,name-defined] # either library
            def get_sample_data(self, idx: int) -> bytes:
                return b"%d" % idx

            def decode_sample(self, data: bytes) -> dict[str, Any]:
                return {"n": int(data)}

        reader = Lines(str(tmp_path), None, "gz", ["sha1"], 5, "1kb")
        raw, packed = library.FileInfo("a", 100, {}), library.FileInfo("a.gz", 10, {})
        reader.file_pairs.append((raw, packed))
        (tmp_path / "a.gz").write_bytes(bytes(10))
        found.append((reader[1:4], reader[-1], reader.size_limit, reader.get_max_size(),
                      reader.set_up_local({str(tmp_path / "a.gz")}, True), reader.evict()))  # fmt: skip
    assert found[0] == found[1]


@_TABLE.line("`evict()`, `set_up_local()`", "`stream.prepare_shard(shard)`")
def test_shards_are_fetched_and_evicted(theirs: ModuleType, tmp_path: Path) -> None:
    remote = _write(theirs, tmp_path / "remote")
    stream = theirs.Stream(remote=str(remote), local=str(tmp_path / "theirs"), download_retry=1, download_timeout=60,
                           keep_zip=True)  # fmt: skip
    dataset = theirs.StreamingDataset(streams=[stream], batch_size=1)
    copy, found = lading.compat.mosaicml.LocalCopy(tmp_path / "cache", remote=remote, keep_zip=True), []
    for shards, prepare in ((dataset.shards, stream.prepare_shard), (copy.shards, copy.prepare_shard)):
        shard = shards[1]
        delta = prepare(shard)
        listing = {str(path) for path in Path(shard.dirname).iterdir()}
        found.append((delta, shard.set_up_local(listing, True), shard.evict(), shard.set_up_local(set(), True)))
    assert found[0] == found[1]
    assert _files(tmp_path / "cache").keys() == _files(tmp_path / "theirs").keys()
    with lading.open(remote) as opened, pytest.raises(UsageError, match="LocalCopy"):
        opened.shards[1].evict()


@_TABLE.line('`merge_index("out")`')
def test_indexes_are_merged(theirs: ModuleType, tmp_path: Path) -> None:
    for library in (theirs, mine):
        for part in range(2):
            _write(theirs, tmp_path / library.__name__ / f"{part}", _ROWS[100 * part :][:100])
    util = import_peer("streaming.base.util")
    util.merge_index(str(tmp_path / theirs.__name__), keep_local=True)
    lading.merge(tmp_path / mine.__name__)
    with lading.open(tmp_path / mine.__name__) as ours, lading.open(tmp_path / theirs.__name__) as peers:
        assert [row["n"] for row in ours] == [row["n"] for row in peers] == [*range(200)]


@_TABLE.line(
    "`StreamingDataset(shuffle=True, batch_size=…)` in `StreamingDataLoader`",
    "`loader.state_dict()`, `loader.load_state_dict(state)`",
    "`shuffle_seed=…`",
)
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.soak)])
def test_a_script_of_a_user_of_streaming(theirs: ModuleType, tmp_path: Path, workers: int) -> None:
    """Written with one library and read with the other, or with itself: the same rows, each once an epoch."""
    epochs: dict[tuple[str, str], list[list[int]]] = {}
    for writes in (theirs, mine):
        remote = _write(writes, tmp_path / writes.__name__)
        for reads in (theirs, mine):

            def dataset(name: str, reads: Any = reads, remote: Path = remote) -> Any:
                return reads.StreamingDataset(
                    remote=str(remote), local=str(tmp_path / f"{remote.name}-{reads.__name__}-{name}"),
                    shuffle=True, shuffle_seed=7, batch_size=16,
                )  # fmt: skip

            def loader(of: Any) -> Any:
                return theirs.StreamingDataLoader(of, batch_size=16, num_workers=workers, collate_fn=_column)

            whole = loader(dataset("whole"))
            found = [_numbers(whole), _numbers(whole)]
            part = loader(dataset("part"))
            batches = iter(part)
            begun = [number for _ in range(5) for number in next(batches)["n"]]
            state = json.loads(json.dumps(part.state_dict()))
            del batches, part
            resumed = loader(dataset("resumed"))
            resumed.load_state_dict(state)
            assert [begun + _numbers(resumed), _numbers(resumed)] == found
            assert [sorted(epoch) for epoch in found] == [[*range(200)]] * 2
            assert found[0] != found[1]
            assert len(whole) == 13
            assert (state["epoch"], state["sample_in_epoch"], state["shuffle_seed"]) == (0, 80, 7)
            epochs[writes.__name__, reads.__name__] = found
    assert epochs[theirs.__name__, mine.__name__] == epochs[mine.__name__, mine.__name__]
    in_place = lading.loader(tmp_path / mine.__name__, 64, shuffle=True, seed=7)
    assert sorted(number for batch in in_place for number in batch["n"].tolist()) == [*range(200)]
    ours = mine.StreamingDataset(local=tmp_path / mine.__name__, shuffle=True, shuffle_seed=7, batch_size=16)
    with pytest.raises(UsageError, match="another order"):
        ours.load_state_dict({"epoch": 0, "sample_in_epoch": 80, "num_canonical_nodes": 1, "shuffle_seed": 7})


@_TABLE.line(
    '`shuffle_algo="py1e"`, `shuffle_algo="naive"`, `shuffle_block_size=…`',
    "other `shuffle_algo`, `partition_algo=…`, `batching_method=…`",
    "`num_canonical_nodes=…`",
    "`cache_limit=…`",
)
def test_orders(theirs: ModuleType, tmp_path: Path) -> None:
    _write(mine, tmp_path / "set")
    how: dict[str, Any] = {"local": str(tmp_path / "set"), "batch_size": 16, "shuffle": True}
    given: list[dict[str, Any]] = [{"shuffle_algo": "py1e", "shuffle_block_size": 128}, {"shuffle_algo": "naive"}]
    for library in (theirs, mine):
        for options in given:
            dataset = library.StreamingDataset(**{**how, **options})
            found = [row["n"] for row in dataset]
            assert sorted(found) == [*range(200)]
            assert found != sorted(found)
    refused: list[dict[str, Any]] = [
        {"shuffle_algo": "py2s"}, {"partition_algo": "orig"}, {"batching_method": "stratified"},
        {"cache_limit": "1gb"},
    ]  # fmt: skip
    for options in refused:
        theirs.StreamingDataset(**{**how, **options})
        with pytest.raises(UsageError, match=next(iter(options))):
            mine.StreamingDataset(**{**how, **options})
    for library in (theirs, mine):  # the numbers of nodes change the peer's order alone
        epochs = [
            [row["n"] for row in library.StreamingDataset(num_canonical_nodes=nodes, shuffle_block_size=64, **how)]
            for nodes in (1, 4)
        ]
        assert sorted(epochs[0]) == sorted(epochs[1]) == [*range(200)]
        assert (epochs[0] == epochs[1]) == (library is mine)
    for kind in ("block", "global"):
        found = [n for batch in lading.loader(tmp_path / "set", 64, shuffle=kind) for n in batch["n"].tolist()]
        assert sorted(found) == [*range(200)]
    limited = lading.loader(tmp_path / "set", 64, cache_dir=tmp_path / "copies", cache_limit="1GB")
    assert sum(len(batch["n"]) for batch in limited) == 200
    assert lading.loader(tmp_path / "set", 64, shuffle="block").epoch == 0
    assert lading.loader(tmp_path / "set", 64, shuffle="global").epoch == 0


_WEIGHTS: list[tuple[list[dict[str, Any]], int | str | None]] = [
    ([{"proportion": 0.7}, {"proportion": 0.3}], None),
    ([{"proportion": 2}, {"proportion": 1}], 100),
    ([{"repeat": 1.5}, {"repeat": 0.1}], None),
    ([{"choose": 70}, {}], None),
    ([{}, {}], 77),
    ([{}, {}], "0.1k"),
]


@_TABLE.line("`Stream(proportion=…)`, `repeat=…`, `choose=…`, `epoch_size=…`")
@pytest.mark.cases(len(_WEIGHTS))
@pytest.mark.parametrize("weights, epoch_size", _WEIGHTS)
def test_streams_have_their_share(
    theirs: ModuleType, tmp_path: Path, weights: list[dict[str, Any]], epoch_size: int | str | None
) -> None:
    folders = [_write(mine, tmp_path / "a", _ROWS[:120]), _write(mine, tmp_path / "b", _ROWS[120:])]
    found = []
    for library in (theirs, mine):
        streams = [library.Stream(local=str(each), **given) for each, given in zip(folders, weights, strict=True)]
        dataset = library.StreamingDataset(streams=streams, epoch_size=epoch_size, batch_size=10, shuffle=True)
        times = Counter(row["n"] for row in dataset)
        of_first = sum(count for number, count in times.items() if number < 120)
        found.append((len(dataset), of_first, sum(times.values()), max(times.values()) - min(times.values()) <= 1))
        assert found[-1][2] == dataset.epoch_size
    assert found[0][:3] == found[1][:3]
    a, b = map(lading.open, folders)
    both = lading.mix({"a": (a, 0.7), "b": (b, 0.3)})
    assert Counter(next(iter(lading.loader(both, 10)))["n"] < 120)[True] == 7
    if "proportion" not in weights[0]:
        times = [
            each.get("repeat", each.get("choose", len(ds)) / len(ds)) for each, ds in zip(weights, (a, b), strict=True)
        ]
        repeats = None if epoch_size else {"a": times[0], "b": times[1]}
        mixed = lading.mix({"a": a, "b": b}, repeats=repeats)
        loader = lading.loader(mixed, 10, shuffle=True, epoch_size=found[0][2] if epoch_size else None)
        numbers = np.concatenate([batch["n"] for batch in loader])
        assert len(numbers) == found[0][2]
        assert abs(int((numbers < 120).sum()) - found[0][1]) <= (1 if epoch_size else 0)


@_TABLE.line("`replication=…`")
def test_ranks_are_replicated(theirs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(mine, tmp_path / "set")
    monkeypatch.setenv("WORLD_SIZE", "4")
    of_rank = []
    for rank in range(4):
        monkeypatch.setenv("RANK", f"{rank}")
        dataset = mine.StreamingDataset(local=tmp_path / "set", shuffle=True, batch_size=10, replication=2)
        assert len(dataset) == 100
        of_rank.append([row["n"] for row in dataset])
    assert of_rank[0] == of_rank[1]
    assert of_rank[2] == of_rank[3]
    assert sorted(of_rank[0] + of_rank[2]) == [*range(200)]
    world = import_peer("streaming.base.world").World(2, 2, 1, 3).replicate(2)
    assert (world.num_ranks, world.rank) == (2, 1)
    assert theirs.StreamingDataset


def test_each_line_is_run() -> None:
    _TABLE.check()
