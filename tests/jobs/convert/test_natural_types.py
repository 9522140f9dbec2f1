"""Members of tars in other formats: text as text, numbers as numbers, media as media, and the same bytes back."""

import io
import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from in_process import by_tasks
from lading.errors import BadReference, Unrepresentable

FORMATS = ("parquet", "arrow", "jsonl", "csv", "mds", "webdataset")


def write_tar(path: Path, samples: list[dict[str, bytes]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, sample in enumerate(samples):
            for name, data in sample.items():
                member = tarfile.TarInfo(f"{number:03}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return str(path)


def members_of(folder: str) -> dict[str, bytes]:
    found = {}
    for path in sorted(Path(folder).rglob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                found[member.name] = (tar.extractfile(member) or io.BytesIO()).read()
    return found


def texts(count: int = 40) -> list[dict[str, bytes]]:
    return [{"txt": f"ä caption {i}".encode(), "cls": b"%d" % (i - 5), "json": b'{"lang": "en", "n": %d}' % i}
            for i in range(count)]  # fmt: skip


def png(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.full((4 + number % 3, 5, 3), number, np.uint8)).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "jsonl", "csv", "mds"])
def test_texts_and_numbers_have_their_types(tmp_path: Path, fmt: str) -> None:
    source = write_tar(tmp_path / "a.tar", texts())
    lading.convert(source, tmp_path / "out", format=fmt, verify=True)
    schema = lading.open(tmp_path / "out").schema
    assert pa.types.is_string(schema.field("txt").type) or pa.types.is_large_string(schema.field("txt").type)
    assert schema.field("cls").type == pa.int64()
    first = lading.open(tmp_path / "out")[7]
    assert first == {"__key__": "007", "txt": "ä caption 7", "cls": 2, "json": {"lang": "en", "n": 7}}


@pytest.mark.soak
@pytest.mark.parametrize("one, other", [*itertools.permutations(FORMATS, 2)])
def test_every_pair_of_formats_gives_the_same_bytes_back(tmp_path: Path, one: str, other: str) -> None:
    source = write_tar(tmp_path / "a.tar", texts(9))
    lading.convert(source, tmp_path / "one", format=one, verify=True)
    lading.convert(tmp_path / "one", tmp_path / "other", format=other, verify=True)
    lading.convert(tmp_path / "other", tmp_path / "back", format="webdataset", verify=True)
    for folder in ("one", "other", "back"):
        assert lading.diff(source, tmp_path / folder).equal
    assert members_of(tmp_path / "back") == members_of(tmp_path)  # the source lies next to it


def test_peers_read_text_numbers_and_pictures_without_an_option(tmp_path: Path) -> None:
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    samples = [{"png": png(i), "mp3": b"ID3" + bytes(90), **sample} for i, sample in enumerate(texts(6))]
    source = write_tar(tmp_path / "a.tar", samples)
    lading.convert(source, tmp_path / "out", format="parquet", verify=True)
    [file] = map(str, (tmp_path / "out").glob("*.parquet"))
    frame = pandas.read_parquet(file)
    assert frame["txt"].tolist() == [f"ä caption {i}" for i in range(6)]
    assert frame["cls"].tolist() == [-5, -4, -3, -2, -1, 0]
    rows = datasets.load_dataset("parquet", data_files=file, cache_dir=str(tmp_path / "cache"), split="train")
    assert rows.features["png"] == datasets.Image()
    assert rows.features["mp3"] == datasets.Audio()
    assert [picture.size for picture in rows["png"]] == [(5, 4 + i % 3) for i in range(6)]
    assert np.asarray(rows["png"][2]).tolist() == np.full((6, 5, 3), 2).tolist()


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow", "jsonl", "csv", "webdataset"])
def test_datasets_opens_a_folder_by_its_name(fmt: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.chdir(tmp_path)
    source = lading.open(write_tar(tmp_path / "a.tar", texts(40))).drop("json")
    source.write("whole", format=fmt, num_shards=2)
    lading.convert(source.split({"train": 0.75, "val": 0.25}), "splits", format=fmt)
    for number in range(3):
        source[number * 10 : number * 10 + 10].write(f"parts/{number}", format=fmt)
    lading.merge("parts")
    for folder, counts in (("whole", {"train": 40}), ("splits", {"train": 30, "val": 10}), ("parts", {"train": 30})):
        found = datasets.load_dataset(folder, cache_dir="cache")
        assert {name: len(rows) for name, rows in found.items()} == counts
    for name, rows in datasets.load_dataset("splits", cache_dir="cache").items():
        assert rows["txt"][:] == lading.open("splits", split=name)["txt"][:]


def test_media_of_parquet_are_bytes_again_without_a_manifest(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", [{"png": png(i), "cls": b"1"} for i in range(3)])
    lading.convert(source, tmp_path / "out", format="parquet")
    [file] = (tmp_path / "out").glob("*.parquet")
    copy = tmp_path / "alone.parquet"
    copy.write_bytes(file.read_bytes())
    ds = lading.open(copy)
    assert ds.schema.field("png").type == pa.large_binary()
    assert ds.with_decode(False)[1]["png"] == png(1)
    assert lading.diff(source, copy).equal
    assert b"huggingface" not in (ds.schema.metadata or {})


def test_option_writes_media_as_bytes_alone(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", [{"png": png(0)}])
    lading.convert(source, tmp_path / "out", format="parquet", options={"huggingface": False})
    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["png"].to_pylist() == [png(0)]


@pytest.mark.soak
def test_workers_write_the_same_files(tmp_path: Path) -> None:
    for shard in range(3):
        write_tar(tmp_path / "src" / f"{shard}.tar", [{"png": png(shard), **sample} for sample in texts(20)])
    for workers in (1, 2):
        lading.convert(tmp_path / "src", tmp_path / f"w{workers}", format="parquet", **by_tasks(workers), verify=True)
    one, two = ([file.read_bytes() for file in sorted((tmp_path / f"w{n}").glob("*.parquet"))] for n in (1, 2))
    assert one == two


def test_ids_that_are_texts_and_numbers_with_line_ends_stay_as_they_are(tmp_path: Path) -> None:
    samples = [{"id": b"u-%d" % i, "cls": b"%d\n" % i, "index": b"%d" % i} for i in range(20)]
    source = write_tar(tmp_path / "a.tar", samples)
    lading.convert(source, tmp_path / "out", format="parquet", verify=True)
    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["id"].to_pylist() == [f"u-{i}" for i in range(20)]
    assert pq.read_table(file)["cls"].to_pylist() == [f"{i}\n" for i in range(20)]
    assert pq.read_table(file)["index"].to_pylist() == [*range(20)]
    assert lading.diff(source, tmp_path / "out").equal
    lading.convert(tmp_path / "out", tmp_path / "back", format="webdataset", verify=True)
    assert members_of(tmp_path / "back") == members_of(tmp_path)


@pytest.mark.parametrize(
    "name, value, message, option",
    [
        ("cls", b"007", "row 30 sample '030' column 'cls': not a number", "cls=string"),
        ("cls", b"9223372036854775808", "row 30 sample '030' column 'cls': not a number", "cls=string"),
        ("txt", b"\xff\xfe", "row 30 sample '030' column 'txt': invalid UTF-8", "txt=binary"),
    ],
)
def test_later_values_that_do_not_fit_name_the_sample_and_the_way_out(
    tmp_path: Path, name: str, value: bytes, message: str, option: str
) -> None:
    samples = texts()
    samples[30] = {**samples[30], name: value}
    source = write_tar(tmp_path / "a.tar", samples)
    with pytest.raises(Unrepresentable, match=message) as caught:
        lading.convert(source, tmp_path / "out", format="parquet")
    assert f"--type {option}" in caught.value.advice
    kind = pa.string() if option.endswith("string") else pa.binary()
    lading.convert(source, tmp_path / "out", format="parquet", schema_overrides={name: kind}, verify=True)
    [file] = (tmp_path / "out").glob("*.parquet")
    kept = pq.read_table(file)[name][30].as_py()
    assert kept in (value, value.decode("latin-1"))


def test_extreme_numbers_are_kept(tmp_path: Path) -> None:
    values = [b"0", b"-1", b"9223372036854775807", b"-9223372036854775808", b"1000000000000000000"]
    source = write_tar(tmp_path / "a.tar", [{"cls": value} for value in values])
    lading.convert(source, tmp_path / "out", format="parquet", verify=True)
    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file)["cls"].to_pylist() == [int(value) for value in values]


def test_writer_and_dataset_write_give_the_same_types(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", texts())
    ds = lading.open(source)
    ds.write(tmp_path / "ds", format="parquet")
    with lading.writer(tmp_path / "batches", format="parquet") as writer:
        for batch in ds.batches(lazy=True):
            writer.write_batch(batch)
    for folder in ("ds", "batches"):
        [file] = (tmp_path / folder).glob("*.parquet")
        assert pq.read_schema(file).field("cls").type == pa.int64()
        assert lading.diff(source, tmp_path / folder).equal


def hugging_face(folder: Path, *, nulls: bool = False) -> tuple[str, Any]:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(
        {
            "image": [Image.open(io.BytesIO(png(i))) for i in range(7)],
            "label": [i % 2 for i in range(7)],
            "ok": [i % 3 == 0 for i in range(7)],
            "tags": [["ä"] * (i % 3) for i in range(7)],
            "text": [None if nulls and i == 3 else f"t{i}" for i in range(7)],
            "score": [i / 7 for i in range(7)],
        },
        features=datasets.Features(
            image=datasets.Image(), label=datasets.ClassLabel(names=["cat", "dog"]), ok=datasets.Value("bool"),
            tags=datasets.List(datasets.Value("string")), text=datasets.Value("string"),
            score=datasets.Value("float32"),
        ),
    )  # fmt: skip
    rows.save_to_disk(str(folder))
    return str(folder), rows


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["mds", "webdataset"])
def test_hugging_face_there_and_back(tmp_path: Path, fmt: str) -> None:
    source, rows = hugging_face(tmp_path / "hf")
    lading.convert(source, tmp_path / "out", format=fmt, verify=True)
    assert lading.diff(source, tmp_path / "out").equal
    layout = {"layout": "huggingface"}
    lading.convert(tmp_path / "out", tmp_path / "back", format="arrow", options=layout, verify=True)
    datasets = pytest.importorskip("datasets")
    back = datasets.load_from_disk(str(tmp_path / "back"))
    assert back.features == rows.features
    for one, other in zip(rows, back, strict=True):
        assert np.array_equal(np.asarray(one.pop("image")), np.asarray(other.pop("image")))
        assert one == other


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the peer leaves the tar open
def test_webdataset_decodes_pictures_of_hugging_face(tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    source, rows = hugging_face(tmp_path / "hf")
    lading.convert(source, tmp_path / "out", format="webdataset")
    [tar] = map(str, (tmp_path / "out").glob("*.tar"))
    found = list(webdataset.WebDataset([tar], shardshuffle=False).decode("rgb8"))
    assert [sample["image.png"].tolist() for sample in found] == [np.asarray(row["image"]).tolist() for row in rows]


def test_mds_names_images_by_their_header_and_lists_json(tmp_path: Path) -> None:
    source, _ = hugging_face(tmp_path / "hf")
    lading.convert(source, tmp_path / "out", format="mds")
    [shard] = json.loads((tmp_path / "out" / "index.json").read_text())["shards"]
    encodings = dict(zip(shard["column_names"], shard["column_encodings"], strict=True))
    assert encodings == {"image": "png", "label": "int", "ok": "json", "score": "float32", "tags": "json",
                         "text": "str"}  # fmt: skip


def test_nulls_for_mds_name_the_option(tmp_path: Path) -> None:
    source, _ = hugging_face(tmp_path / "hf", nulls=True)
    with pytest.raises(Unrepresentable, match="row 3 column 'text': MDS cannot hold nulls") as caught:
        lading.convert(source, tmp_path / "out", format="mds")
    assert "--to-option nulls=mask" in caught.value.advice
    lading.convert(source, tmp_path / "out", format="mds", options={"nulls": "mask"}, verify=True)
    assert lading.open(tmp_path / "out")[3]["text"] is None


def test_paths_of_media_are_counted_and_media_elsewhere_are_refused(tmp_path: Path) -> None:
    media = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    features = {"info": {"features": {"image": {"_type": "Image"}}}}
    schema = pa.schema([("image", media)], metadata={"huggingface": json.dumps(features)})
    values = [{"bytes": png(0), "path": "a.png"}, {"bytes": png(1), "path": None}, None]
    pq.write_table(pa.table([pa.array(values, media)], schema=schema), tmp_path / "in.parquet")
    made = lading.convert(tmp_path / "in.parquet", tmp_path / "out", format="mds", options={"nulls": "mask"})
    assert made.counts["paths of media, left out"] == 1
    assert lading.diff(tmp_path / "in.parquet", tmp_path / "out").equal
    values[1] = {"bytes": None, "path": "b.png"}
    pq.write_table(pa.table([pa.array(values, media)], schema=schema), tmp_path / "in.parquet")
    with pytest.raises(BadReference, match=r"row 1.* column 'image'.*found b\.png"):
        lading.convert(tmp_path / "in.parquet", tmp_path / "out2", format="mds", options={"nulls": "mask"})
