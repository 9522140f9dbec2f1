"""Each line of the table of Hugging Face datasets in `docs/coming-from.md`: both libraries, and what they give."""

from __future__ import annotations

import json
import wave
from collections import Counter
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

import lading
from doc_tables import Table
from hub_fixture import hub_of_test, running_hub_of_module  # noqa: F401 - fixtures
from hub_server import TOKEN, HubServer
from peers import import_peer

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]

TABLE = Table("Hugging Face datasets")

COUNT = 20
ROWS = [
    {"a": i, "b": f"text {i}", "lang": ("de", "en", "fr")[i % 3], "score": (7 * i) % 20 / 4, "meta": {"x": i, "y": "z"}}
    for i in range(COUNT)
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A Parquet file of the rows."""
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.fixture
def theirs(datasets: Any, table: Path) -> Any:
    """The rows in datasets."""
    return datasets.Dataset(pa.table(pq.read_table(table)))


@pytest.fixture
def ds(table: Path) -> lading.Dataset:
    """The rows in lading."""
    return lading.open(table)


def rows(found: Any) -> list[dict[str, Any]]:
    """Return samples as plain dicts, without the key that lading gives to rows."""
    return [{name: value for name, value in dict(sample).items() if name != "__key__"} for sample in found]


def pixels(image: Any) -> Any:
    return np.asarray(image).tolist()


def picture(value: int) -> bytes:
    out = BytesIO()
    Pillow.new("RGB", (4, 3), (value, 2, 3)).save(out, format="PNG")
    return out.getvalue()


def sound() -> bytes:
    """Return a WAV file of ten samples."""
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(20))
    return out.getvalue()


# Opening


@TABLE.line('`load_dataset("webdataset", data_files="*.tar")`')
def test_tars(datasets: Any, tmp_path: Path) -> None:
    with import_peer("webdataset").TarWriter(str(tmp_path / "a.tar")) as writer:
        for i in range(3):
            writer.write({"__key__": f"{i}", "png": picture(i), "json": {"i": i}})
    peer = datasets.load_dataset("webdataset", data_files=f"{tmp_path}/*.tar", split="train", cache_dir=tmp_path / "c")
    found = lading.open(f"{tmp_path}/*.tar")
    assert [(s["__key__"], pixels(s["png"]), s["json"]) for s in found] == [
        (s["__key__"], pixels(s["png"]), s["json"]) for s in peer
    ]


@TABLE.line('`load_dataset("imagefolder", data_dir="pets")`, `"audiofolder"`')
def test_folders_of_classes(datasets: Any, tmp_path: Path) -> None:
    """The same for sounds: datasets reads no folder of them without torchcodec, which is not installed."""
    for kind, ending, data in (("image", "png", picture(1)), ("audio", "wav", sound())):
        for i, name in enumerate(("cat", "cat", "dog")):
            for folder in (tmp_path / kind / "pets" / name, tmp_path / kind / "plain"):
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{i}.{ending}").write_bytes(data)
        (tmp_path / kind / "plain" / "metadata.csv").write_text(
            "file_name,size\n" + "".join(f"{i}.{ending},{i * 10}\n" for i in range(3))
        )
    for folder, other in (("pets", "label"), ("plain", "size")):
        peer = datasets.load_dataset(
            "imagefolder", data_dir=str(tmp_path / "image" / folder), split="train", cache_dir=tmp_path / "c"
        ).cast_column("image", datasets.Image(decode=False))
        with lading.open(tmp_path / "image" / folder).with_decode(False) as found:
            assert [(s["image"], s[other]) for s in found] == [
                (Path(s["image"]["path"]).read_bytes(), s[other]) for s in peer
            ]
        with lading.open(tmp_path / "audio" / folder).with_decode(False) as found:
            assert [(s["audio"], s[other]) for s in found] == [(sound(), each) for each in peer[other]]


@TABLE.line('`load_dataset("parquet", …)`, `"json"`, `"csv"`, `"arrow"`')
def test_files_of_rows(datasets: Any, tmp_path: Path) -> None:
    plain = [{name: value for name, value in row.items() if name != "meta"} for row in ROWS]
    peer = datasets.Dataset.from_list(plain)
    peer.to_parquet(tmp_path / "a.parquet")
    peer.to_json(tmp_path / "a.jsonl")
    peer.to_csv(tmp_path / "a.csv")
    with pa.ipc.new_file(tmp_path / "a.arrow", peer.data.schema) as writer:
        writer.write_table(pa.table(peer.data.table))
    for kind, name in (("parquet", "a.parquet"), ("json", "a.jsonl"), ("csv", "a.csv"), ("arrow", "a.arrow")):
        loaded = datasets.load_dataset(kind, data_files=str(tmp_path / name), split="train", cache_dir=tmp_path / "c")
        options = {"types": {"a": "int64", "score": "float64"}} if kind == "csv" else None
        assert rows(lading.open(tmp_path / name, options=options)) == list(loaded) == plain
    assert lading.open(tmp_path / "a.csv")[0]["a"] == "0"


@TABLE.line('`load_dataset(…, cache_dir="cache")`')
def test_the_cache_of_datasets(datasets: Any, table: Path, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    peer = datasets.load_dataset("parquet", data_files=str(table), split="train", cache_dir=cache)
    assert rows(lading.open(cache)) == list(peer)
    (tmp_path / "b.csv").write_text("n\n1\n")
    datasets.load_dataset("csv", data_files=str(tmp_path / "b.csv"), split="train", cache_dir=cache)
    with pytest.raises(lading.LadingError, match=r"(?s)csv.*parquet"):
        lading.open(cache)


@TABLE.line('`load_dataset("repository", "en", split="train")` of a local copy')
def test_configurations_of_a_repository(datasets: Any, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    for config in ("de", "en"):
        (repository / config).mkdir(parents=True)
        for split in ("train", "test"):
            datasets.Dataset.from_list([{"x": f"{config} {split}"}]).to_json(repository / config / f"{split}.jsonl")
    configs = "".join(
        f"- config_name: {config}\n  data_files:\n  - split: train\n    path: {config}/train.jsonl\n"
        f"  - split: test\n    path: {config}/test.jsonl\n"
        for config in ("de", "en")
    )
    (repository / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    peer = datasets.load_dataset(str(repository), "en", split="train", cache_dir=tmp_path / "c")
    assert rows(lading.open(repository, config="en", split="train")) == list(peer) == [{"x": "en train"}]


@TABLE.line('`load_from_disk("saved")`', '`ds.save_to_disk("out")`')
def test_saved_folders(datasets: Any, theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    theirs.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": theirs, "test": theirs.select([1])}).save_to_disk(tmp_path / "saved")
    assert rows(lading.open(tmp_path / "one")) == list(datasets.load_from_disk(tmp_path / "one"))
    for split in ("train", "test"):
        peer = datasets.load_from_disk(tmp_path / "saved")[split]
        assert rows(lading.open(tmp_path / "saved" / split)) == list(peer)
    ds.write(tmp_path / "out", format="arrow", options={"layout": "huggingface"})
    assert rows(datasets.load_from_disk(tmp_path / "out")) == ROWS


@TABLE.line("`streaming=True`")
def test_streams(datasets: Any, table: Path, tmp_path: Path) -> None:
    stream = datasets.load_dataset("parquet", data_files=str(table), split="train", streaming=True)
    before = sorted(tmp_path.rglob("*"))
    assert rows(lading.open(table)) == list(stream)
    assert sorted(tmp_path.rglob("*")) == before  # lading made no copy


# Samples and columns


@TABLE.line("`len(ds)`, `ds[i]`, `ds[:5]`, `ds[[3, 1]]`", '`ds["txt"]`')
def test_samples_by_number(theirs: Any, ds: lading.Dataset) -> None:
    assert len(ds) == len(theirs) == COUNT
    assert rows([ds[3], ds[-1]]) == [theirs[3], theirs[-1]]
    for chosen in (slice(5), [3, 1]):
        part = ds[chosen]
        assert isinstance(part, lading.Dataset)
        assert {name: [s[name] for s in part] for name in ROWS[0]} == theirs[chosen]
    assert list(ds["b"]) == list(theirs["b"])


@TABLE.line('`ds.select_columns(["a", "b"])`', '`ds.remove_columns(["a"])`',
            '`ds.rename_column("a", "b")`, `ds.rename_columns({"a": "b"})`')  # fmt: skip
def test_columns(theirs: Any, ds: lading.Dataset) -> None:
    assert rows(ds.select("a", "b")) == list(theirs.select_columns(["a", "b"]))
    assert rows(ds.drop("a")) == list(theirs.remove_columns(["a"]))
    renamed = rows(ds.rename({"a": "n"}))
    assert renamed == list(theirs.rename_column("a", "n")) == list(theirs.rename_columns({"a": "n"}))
    assert [*renamed[0]] == theirs.rename_column("a", "n").column_names


@TABLE.line('`ds.cast_column("a", Value("float32"))`', "`ds.cast(features)`")
def test_types(datasets: Any, theirs: Any, ds: lading.Dataset, table: Path) -> None:
    peer = theirs.cast_column("a", datasets.Value("float32"))
    found = ds.cast({"a": "float32"})
    assert found.schema.field("a").type == peer.features.arrow_schema.field("a").type
    assert rows(found) == list(peer)
    features = datasets.Features({**theirs.features, "a": datasets.Value("int8"), "score": datasets.Value("float32")})
    peer = theirs.cast(features)
    schema = pa.schema([*features.arrow_schema])
    for same in (ds.cast({"a": "int8", "score": "float32"}), lading.open(table, schema=schema)):
        assert [same.schema.field(n).type for n in schema.names] == schema.types
        assert rows(same) == list(peer)


@TABLE.line("`ds.flatten()`")
def test_flat_columns(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    assert rows(ds.flatten("meta")) == list(theirs.flatten())
    with lading.writer(tmp_path / "tars", format="webdataset") as writer:
        writer.write({"__key__": "a", "json": {"x": 1, "y": "z"}})
    assert rows(lading.open(tmp_path / "tars").flatten("json")) == [{"json.x": 1, "json.y": "z"}]


# Functions


@TABLE.line("`ds.map(fn)`", '`ds.map(fn, remove_columns=["a"])`')
def test_map(datasets: Any, theirs: Any, ds: lading.Dataset) -> None:
    def fn(sample: dict[str, Any]) -> dict[str, Any]:
        return {"n": sample["a"] * 2, "b": sample["b"].upper()}

    assert rows(ds.map(fn)) == list(theirs.map(fn))
    features = datasets.Features({**theirs.features, "n": datasets.Value("int32")})
    typed = ds.map(fn, columns={"n": "int32"})
    assert typed.schema.field("n").type == pa.int32() == theirs.map(fn, features=features).data.schema.field("n").type
    assert rows(ds.map(fn).drop("a")) == list(theirs.map(fn, remove_columns=["a"]))


@TABLE.line("`ds.filter(fn)`")
def test_filter(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    def fn(sample: dict[str, Any]) -> bool:
        return sample["score"] > 2.5

    assert rows(ds.filter(fn)) == rows(ds.where("score > 2.5")) == list(theirs.filter(fn))
    with lading.writer(tmp_path / "tars", format="webdataset") as writer:
        for i, row in enumerate(ROWS):
            writer.write({"__key__": f"{i:02}", "json": {"score": row["score"]}})
    found = lading.open(tmp_path / "tars").where("json.score > 0.5")
    assert [s["json"]["score"] for s in found] == [s["score"] for s in theirs.filter(lambda s: s["score"] > 0.5)]


@TABLE.line("`ds.map(fn, batched=True)`, `ds.filter(fn, batched=True)`")
def test_functions_of_batches(theirs: Any, ds: lading.Dataset) -> None:
    def added(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("n", pa.array([2 * value.as_py() for value in batch["a"]]))

    def even(batch: pa.RecordBatch) -> pa.Array:
        return pa.array([value.as_py() % 2 == 0 for value in batch["a"]])

    assert rows(ds.map_batches(added)) == list(theirs.map(lambda b: {"n": [2 * a for a in b["a"]]}, batched=True))
    assert rows(ds.filter_batches(even)) == list(theirs.filter(lambda b: [a % 2 == 0 for a in b["a"]], batched=True))


@TABLE.line("`ds.to_pandas()`, `ds.to_polars()`")
def test_frames(theirs: Any, ds: lading.Dataset) -> None:
    assert ds.select("a", "b").to_pandas().to_dict("list") == theirs.select_columns(["a", "b"]).to_pandas().to_dict(
        "list"
    )
    assert ds.select("a", "b").to_polars().equals(theirs.select_columns(["a", "b"]).to_polars())
    pictures = lading.open([{"image": picture(1)}])
    assert pictures.to_polars(media="bytes")["image"].to_list() == [picture(1)]


# Order and parts


@TABLE.line("`ds.select([5, 1, 3])`, `ds.select(range(1000))`", "`ds.take(1000)`")
def test_selected_rows(theirs: Any, ds: lading.Dataset) -> None:
    assert rows(ds[[5, 1, 3]]) == list(theirs.select([5, 1, 3]))
    assert rows(ds[:10]) == list(theirs.select(range(10)))
    assert ds.select("a").columns == ["a"]
    assert rows(ds.limit(7)) == list(theirs.take(7))
    assert ds.take(7)["a"].to_pylist() == theirs.take(7)["a"][:]
    taken = ds.take([5, 1])
    assert isinstance(taken, pa.Table)
    assert taken["a"].to_pylist() == [5, 1]


@TABLE.line("`ds.shuffle(seed=42)`", '`ds.sort("score", reverse=True)`')
def test_orders(theirs: Any, ds: lading.Dataset) -> None:
    peer, found = [s["a"] for s in theirs.shuffle(seed=42)], [s["a"] for s in ds.shuffle(seed=42)]
    assert sorted(found) == sorted(peer) == [*range(COUNT)] != found
    assert found == [s["a"] for s in ds.shuffle(seed=42)] != [s["a"] for s in ds.shuffle(seed=43)]
    peer = theirs.sort("score", reverse=True)
    assert rows(ds.sort("score", descending=True)) == list(peer)


@TABLE.line("`ds.train_test_split(test_size=0.1, seed=42)`")
def test_splits(theirs: Any, ds: lading.Dataset) -> None:
    peer = theirs.train_test_split(test_size=0.1, seed=42)
    found = ds.split({"train": 0.9, "test": 0.1}, seed=42)
    assert {name: len(part) for name, part in found.items()} == peer.num_rows == {"train": 18, "test": 2}
    assert sorted(s["a"] for part in found.values() for s in part) == [*range(COUNT)]
    groups = ds.split({"train": 0.6, "test": 0.4}, seed=42, by="lang")
    assert not {s["lang"] for s in groups["train"]} & {s["lang"] for s in groups["test"]}


@TABLE.line('`ds.unique("lang")`')
def test_values(theirs: Any, ds: lading.Dataset) -> None:
    counts = ds.stats().columns["lang"]
    assert dict(counts.top) == Counter(theirs["lang"])
    assert [s["lang"] for s in ds.dedup(by="lang")] == theirs.unique("lang")


@TABLE.line('`ds.iter(batch_size=64)`, `with_format("arrow")`')
def test_batches(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    peer = [pa.table(batch) for batch in theirs.with_format("arrow").iter(batch_size=6)]
    found = [*ds.batches(max_rows=6)]
    assert [batch.to_pylist() for batch in found] == [batch.to_pylist() for batch in peer]
    ds.write(tmp_path / "shards", format="parquet", num_shards=2)
    ds = lading.open(tmp_path / "shards")
    assert [batch.num_rows for batch in ds.batches(max_rows=6)] == [6, 4, 6, 4]
    assert [[*batch["a"]] for batch in lading.loader(ds, 6)] == [batch["a"].to_pylist() for batch in peer]


@TABLE.line("`concatenate_datasets([a, b])`")
def test_one_behind_the_other(datasets: Any, theirs: Any, ds: lading.Dataset, table: Path, tmp_path: Path) -> None:
    ds[:3].write(tmp_path / "few.parquet")
    peer = list(datasets.concatenate_datasets([theirs, theirs.select(range(3))]))
    assert rows(lading.concat([ds, ds[:3]])) == peer
    assert rows(lading.open([str(table), str(tmp_path / "few.parquet")])) == peer


# Features


@TABLE.line("`ds.features`", "`Image(decode=False)`",
            "`Image()`, `Audio()`, `ClassLabel(names=…)`, `Array2D(shape, dtype)`")  # fmt: skip
def test_features(datasets: Any, tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "audio": datasets.Audio(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "grid": datasets.Array2D((2, 3), "float32"),
        }
    )
    grid = [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    row = {"image": {"bytes": picture(1), "path": None}, "label": "dog", "grid": grid}
    encoded = datasets.Dataset.from_list([row], features=datasets.Features({name: features[name] for name in row}))
    peer = encoded.add_column("audio", [{"bytes": sound(), "path": None}]).cast_column("audio", datasets.Audio())
    peer.to_parquet(tmp_path / "a.parquet")
    with lading.open(tmp_path / "a.parquet") as found:
        assert {f.name: lading.features.feature_of(f) for f in found.schema} == {
            "image": lading.features.Image(),
            "audio": lading.features.Audio(),
            "label": lading.features.ClassLabel(["cat", "dog"]),
            "grid": lading.features.Array("float32", (2, 3)),
        }
        assert found.schema.field("label").metadata
        with_numbers = peer.with_format("numpy").remove_columns(["image", "audio"])[0]
        assert pixels(found[0]["image"]) == pixels(peer.select_columns("image")[0]["image"])
        assert found[0]["grid"].tolist() == with_numbers["grid"].tolist() == grid
        assert found[0]["label"] == with_numbers["label"] == 1
        raw = peer.cast_column("image", datasets.Image(decode=False))
        assert found.with_decode(False)[0]["image"] == raw.remove_columns("audio")[0]["image"]["bytes"]


# Writing


@TABLE.line('`ds.to_parquet("out.parquet")`', '`ds.to_json("out.jsonl")`, `ds.to_csv("out.csv")`')
def test_files(datasets: Any, theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    flat = ds.drop("meta")
    for kind, name in (("parquet", "out.parquet"), ("json", "out.jsonl"), ("csv", "out.csv")):
        (tmp_path / kind).mkdir()
        getattr(theirs.remove_columns("meta"), f"to_{kind}")(tmp_path / kind / name)
        flat.write(tmp_path / name)
        loaded = [
            datasets.load_dataset(kind, data_files=str(path), split="train", cache_dir=tmp_path / "c")
            for path in (tmp_path / name, tmp_path / kind / name)
        ]
        assert list(loaded[0]) == list(loaded[1])
    with lading.writer(tmp_path / "media", format="webdataset") as writer:
        writer.write({"__key__": "a", "png": picture(1), "wav": sound(), "mp4": b"\0\0\0\x18ftypisom"})
    lading.open(tmp_path / "media").write(tmp_path / "media.parquet")
    opened = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "media.parquet"), split="train", cache_dir=tmp_path / "c"
    )
    kinds = {name: type(opened.features[name]).__name__ for name in ("png", "wav", "mp4")}
    assert kinds == {"png": "Image", "wav": "Audio", "mp4": "Video"}
    assert pixels(opened.select_columns("png")[0]["png"]) == pixels(Pillow.open(BytesIO(picture(1))))


@TABLE.line('`max_shard_size="500MB"`, `num_shards=16`')
def test_sizes_of_shards(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    theirs.save_to_disk(tmp_path / "theirs", num_shards=4)
    ds.write(tmp_path / "ours", format="arrow", num_shards=4)
    assert len([*(tmp_path / "ours").glob("*.arrow")]) == len([*(tmp_path / "theirs").glob("*.arrow")]) == 4
    many = theirs.select([*range(COUNT)] * 50)
    many.save_to_disk(tmp_path / "small", max_shard_size="20KB")
    many.to_parquet(tmp_path / "many.parquet")
    lading.open(tmp_path / "many.parquet").write(tmp_path / "few", format="arrow", shard_size="20KB")
    assert all(len([*(tmp_path / folder).glob("*.arrow")]) > 1 for folder in ("small", "few"))


@TABLE.line("`num_proc=8`")
@pytest.mark.soak
def test_processes(theirs: Any, ds: lading.Dataset, tmp_path: Path) -> None:
    theirs.save_to_disk(tmp_path / "theirs", num_proc=2)
    ds.write(tmp_path / "ours", format="arrow", workers=2)
    assert rows(lading.open(tmp_path / "ours")) == rows(lading.open(tmp_path / "theirs")) == ROWS


@TABLE.line('`ds.push_to_hub("me/photos", private=True)`')
def test_the_hub(ds: lading.Dataset, hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    ds.push("hf://datasets/me/photos", private=True)
    assert hub.repos["me/photos"].private
    assert rows(lading.open("hf://datasets/me/photos")) == ROWS


# Rows in memory


@TABLE.line("a `Dataset` or `IterableDataset` in memory")
def test_datasets_in_memory(datasets: Any, theirs: Any) -> None:
    labels = theirs.class_encode_column("lang")
    for dataset in (labels, labels.to_iterable_dataset()):
        ours = lading.open(dataset)
        assert rows(ours) == labels.to_list()
        assert ours.where("lang == 'fr'")["a"].to_pylist() == [row["a"] for row in ROWS if row["lang"] == "fr"]


@TABLE.line("`Dataset.from_dict`, `from_list`, `from_generator`, `from_pandas`, `from_polars`")
def test_rows_in_memory(datasets: Any) -> None:
    columns = {name: [row[name] for row in ROWS] for name in ("a", "b", "score")}
    expected = datasets.Dataset.from_dict(columns).to_list()
    frames = [pytest.importorskip(name).DataFrame(columns) for name in ("pandas", "polars")]
    for given in (columns, expected, (row for row in expected), *frames):
        assert rows(lading.open(given)) == expected


# Training


@TABLE.line('`DataLoader(ds.with_format("torch"), batch_size=64, shuffle=True)`')
def test_loaders(theirs: Any, ds: lading.Dataset) -> None:
    torch = import_peer("torch")
    numbers = theirs.select_columns(["a", "score"]).with_format("torch")

    def read(loader: Any) -> list[Any]:
        batches = [*loader]
        assert [len(batch["a"]) for batch in batches] == [8, 8, 4]
        return sorted(zip(*(torch.cat([batch[name] for batch in batches]).tolist() for name in ("a", "score")),
                          strict=True))  # fmt: skip

    expected = read(torch.utils.data.DataLoader(numbers, batch_size=8, shuffle=True))
    ours = ds.select("a", "score")
    assert read(lading.loader(ours, 8, shuffle=True, collate="torch")) == expected
    assert read(torch.utils.data.DataLoader(ours, batch_size=8, shuffle=True)) == expected


def numbers_of(loader: Any) -> list[int]:
    return [int(number) for batch in loader for number in batch["a"]]


@TABLE.line("`ds.to_iterable_dataset().shuffle(seed=42, buffer_size=1000)`", "`ds.set_epoch(3)`",
            "`ds.state_dict()`, `ds.load_state_dict(state)`")  # fmt: skip
def test_epochs_and_states(theirs: Any, ds: lading.Dataset) -> None:
    stream = theirs.to_iterable_dataset().shuffle(seed=42, buffer_size=1000)
    loader = lading.loader(ds, 4, shuffle=True, seed=42)
    orders = []
    for epoch in range(2):
        stream.set_epoch(epoch)
        peer, found = [s["a"] for s in stream], numbers_of(loader)  # a finished loop counts by itself
        assert sorted(peer) == sorted(found) == [*range(COUNT)]
        orders.append((peer, found))
    assert orders[0][0] != orders[1][0]
    assert orders[0][1] != orders[1][1]
    loader.set_epoch(0)
    assert numbers_of(loader) == orders[0][1]
    loader.set_epoch(1)
    rest = iter(loader)
    first = [int(n) for _ in range(2) for n in next(rest)["a"]]
    state = json.loads(json.dumps(loader.state_dict()))
    again = lading.loader(ds, 4, shuffle=True, seed=42)
    again.load_state_dict(state)
    assert first + numbers_of(again) == orders[1][1]
    plain = theirs.to_iterable_dataset()
    loop = iter(plain)
    taken = [next(loop)["a"] for _ in range(8)]
    resumed = theirs.to_iterable_dataset()
    resumed.load_state_dict(plain.state_dict())
    assert taken + [s["a"] for s in resumed] == [*range(COUNT)]


@TABLE.line("`split_dataset_by_node(ds, rank, world_size)`")
def test_ranks(datasets: Any, theirs: Any, ds: lading.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    split = import_peer("datasets.distributed").split_dataset_by_node
    peer = sorted(s["a"] for rank in range(3) for s in split(theirs, rank, 3))
    loaders = [lading.loader(ds, 4, rank=rank, world_size=3) for rank in range(3)]
    found = [[*loader] for loader in loaders]
    assert {*map(len, found)} == {2}
    given = Counter(int(n) for batches in found for batch in batches for n in batch["a"])
    assert sorted(given) == peer == [*range(COUNT)]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert numbers_of(lading.loader(ds, 4)) == [int(n) for batch in found[1] for n in batch["a"]]


@TABLE.line("`interleave_datasets([a, b], probabilities=[0.7, 0.3])`", '`…, stopping_strategy="all_exhausted"`')
@pytest.mark.parametrize("stop, strategy", [("first", "first_exhausted"), ("all", "all_exhausted")])
@pytest.mark.cases(2)
def test_mixtures(datasets: Any, tmp_path: Path, stop: Any, strategy: str) -> None:
    parts = [[*range(70)], [*range(100, 160)]]
    a, b = (datasets.Dataset.from_dict({"a": part}) for part in parts)
    peer = datasets.interleave_datasets([a, b], probabilities=[0.7, 0.3], seed=1, stopping_strategy=strategy)["a"]
    for name, part in (("a", a), ("b", b)):
        part.to_parquet(tmp_path / f"{name}.parquet")
    left, right = (lading.open(tmp_path / f"{name}.parquet") for name in "ab")
    mixture = lading.mix({"a": (left, 0.7), "b": (right, 0.3)}, stop=stop)
    found = numbers_of(lading.loader(mixture, 10))
    assert stop == "first" or {*parts[0], *parts[1]} <= {*found}
    ended = [{*part} <= {*numbers} for numbers in (peer, found) for part in parts]
    assert all(ended) if stop == "all" else any(ended[:2]) and any(ended[2:]) and not all(ended[2:])
    assert sum(n < 100 for n in found[:100]) == 70 != sum(n < 100 for n in peer[:100])  # exact, not drawn


@TABLE.line("`LengthGroupedSampler(batch_size, lengths=lengths)`, which is `group_by_length` of `Trainer`")
def test_batches_of_similar_length() -> None:
    """Both pad less than batches of neighbours; lading's are at random places of the epoch."""
    sampler = pytest.importorskip("transformers.trainer_pt_utils").LengthGroupedSampler
    lengths = np.random.default_rng(0).lognormal(4, 0.8, 2000).astype(int) + 1
    batch_size, texts = 16, ["x" * length for length in lengths.tolist()]
    ds = lading.open(pa.table({"b": texts}))

    def padding(batches: list[list[int]]) -> float:
        return 1 - sum(map(sum, batches)) / sum(max(batch) * len(batch) for batch in batches)

    order = [*sampler(batch_size, lengths=lengths.tolist())]
    theirs = [lengths[order[i : i + batch_size]].tolist() for i in range(0, len(order), batch_size)]
    loader = lading.loader(ds, batch_size, bucket_by="len(b)", shuffle=True)
    ours = [[len(text) for text in batch["b"]] for batch in loader]
    assert sorted(chain.from_iterable(ours)) == sorted(chain.from_iterable(theirs)) == sorted(lengths.tolist())
    neighbours = [lengths[i : i + batch_size].tolist() for i in range(0, len(lengths), batch_size)]
    assert max(padding(ours), padding(theirs)) < 0.2 < padding(neighbours)
    bounded = [[len(text) for text in batch["b"]] for batch in lading.loader(ds, batch_tokens=4096, bucket_by="len(b)")]
    assert max(max(batch) * len(batch) for batch in bounded) <= 4096


@TABLE.line("packing in a collator of TRL")
def test_packing(ds: lading.Dataset) -> None:
    """TRL is not installed: each token stands once, in sequences of one length."""

    def words(text: str) -> list[int]:
        return [*map(len, text.split())]

    packed = lading.pack(
        lading.loader(ds.select("b"), 8), 16, tokenizer=lambda text: [*map(len, text.split())], column="b", batch_size=2
    )
    tokens = [int(t) for batch in packed for t in np.asarray(batch["input_ids"]).ravel() if t]
    assert Counter(tokens) == Counter(len(word) for row in ROWS for word in row["b"].split())


def test_each_line_is_run() -> None:
    TABLE.check()
