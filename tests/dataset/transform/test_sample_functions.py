"""Functions over single samples: they equal a plain loop, and what they leave alone stays as it is stored."""

from __future__ import annotations

import io
import json
import tarfile
import threading
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import lading
from lading._core.content.media_files import AudioFile
from lading.errors import DataError, FunctionError, Unrepresentable, UsageError
from lading.features import ClassLabel
from lading.features import Image as ImageFeature
from tars import tar_of

FORMATS = ["webdataset", "parquet", "arrow", "mds"]


def jpeg(number: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (30 + number, 20), (number * 9, 80, 90)).save(out, "JPEG")
    return out.getvalue()


def rows() -> list[dict[str, Any]]:
    return [
        {
            "__key__": f"{number:03d}", "jpg": jpeg(number), "txt": "word " * number + "end", "number": number,
            "json": {"lang": ["en", "de"][number % 2], "score": number / 8}, "npy": np.arange(number + 1, dtype="i2"),
        }
        for number in range(12)
    ]  # fmt: skip


@pytest.fixture(params=FORMATS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with lading.writer(tmp_path / "in", format=request.param, shard_size="2KB") as writer:
        for row in rows():
            writer.write(row)
    return tmp_path / "in"


def _plain(sample: Any) -> dict[str, Any]:
    """A sample whose values compare."""
    found = dict(sample)
    for name, value in found.items():
        if isinstance(value, Image.Image):
            found[name] = (value.mode, value.size, value.tobytes())
        elif isinstance(value, np.ndarray):
            found[name] = (str(value.dtype), value.tolist())
    return found


def add(sample: Any) -> Any:
    return {"words": len(sample["txt"].split()), "wide": sample["jpg"].width, "lang": sample["json"]["lang"]}


def add_to_all(sample: Any) -> Any:
    return {**sample, "words": len(sample["txt"].split())}


def set_in_place(sample: Any) -> Any:
    sample["words"] = len(sample["txt"].split())
    sample["json"]["seen"] = True
    return sample


def turn(sample: Any) -> Any:
    return {"jpg": sample["jpg"].rotate(90, expand=True)} if sample["number"] % 3 == 0 else None


@pytest.mark.parametrize("function", [add, add_to_all, set_in_place])
def test_law_map_is_a_plain_loop(folder: Path, function: Callable[[Any], Any], tmp_path: Path) -> None:
    with lading.open(folder) as ds:
        expected = []
        for sample in ds:
            made = function(dict(sample))
            expected.append(_plain({**sample, **(made or {})}))
        mapped = ds.map(function)
        assert [_plain(sample) for sample in mapped] == expected
        assert len(mapped) == len(expected)
        assert _plain(mapped[7]) == expected[7]
        mapped.write(tmp_path / "out", format="parquet", verify=True)
    with lading.open(tmp_path / "out") as out:
        assert [_plain(sample) for sample in out] == expected


@pytest.mark.soak
def test_law_filter_is_a_plain_loop(folder: Path) -> None:
    with lading.open(folder) as ds:
        expected = [sample["__key__"] for sample in ds if sample["jpg"].width > 33 and sample["json"]["lang"] == "en"]
        kept = ds.filter(lambda sample: sample["jpg"].width > 33 and sample["json"]["lang"] == "en")
        assert [sample["__key__"] for sample in kept] == expected
        assert len(kept) == len(expected)


@pytest.mark.soak
@pytest.mark.parametrize("target", ["parquet", "webdataset"])
def test_any_number_of_workers_writes_the_same_bytes(folder: Path, target: str, tmp_path: Path) -> None:
    with lading.open(folder) as ds:
        for workers in (1, 2):
            chain = ds.filter(lambda sample: sample["number"] != 4).map(turn).map(add)
            chain.write(tmp_path / f"{workers}", format=target, shard_size="2KB", workers=workers)
    one, two = (sorted((tmp_path / str(workers)).glob("shard*")) for workers in (1, 2))
    assert [file.name for file in one] == [file.name for file in two]
    assert [file.read_bytes() for file in one] == [file.read_bytes() for file in two]


@pytest.mark.cases(2)
def test_fields_that_a_function_leaves_alone_keep_their_bytes(folder: Path, tmp_path: Path) -> None:
    def look(sample: Any) -> Any:
        sample["mean"] = float(np.asarray(sample["jpg"]).mean())
        return sample

    with lading.open(folder) as ds:
        ds.map(look).write(tmp_path / "out", format="webdataset")
        ds.map(turn).write(tmp_path / "turned", format="webdataset")
    with lading.open(tmp_path / "out") as out:
        assert [sample["jpg"] for sample in out.with_decode(False)] == [row["jpg"] for row in rows()]
    with lading.open(tmp_path / "turned") as out:
        for sample, row in zip(out.with_decode(False), rows(), strict=True):
            assert (sample["jpg"] == row["jpg"]) is (row["number"] % 3 != 0)
        assert [sample["jpg"].size for sample in out][:2] == [(20, 30), (31, 20)]


def test_fields_that_a_function_does_not_look_at_are_not_opened(tmp_path: Path) -> None:
    schema = pa.schema([lading.features.with_feature(pa.field("jpg", pa.large_binary()), ImageFeature())])
    with lading.writer(tmp_path / "in", format="webdataset", schema=schema) as writer:
        for number in range(3):
            writer.write({"__key__": str(number), "jpg": b"broken", "n": number})
    with lading.open(tmp_path / "in") as ds:
        assert [sample["twice"] for sample in ds.map(lambda s: {"twice": 2 * s["n"]}).with_decode(False)] == [0, 2, 4]
        with pytest.raises(DataError, match=r"shard-000000.tar.* sample '0' column 'jpg': the image cannot be opened"):
            ds[0]
        with pytest.raises(DataError, match=r"sample '0' column 'jpg': the image cannot be opened"):
            list(ds.map(lambda s: {"w": s["jpg"].width}))


@pytest.mark.soak
def test_a_function_that_raises(folder: Path, tmp_path: Path) -> None:
    def divide(sample: Any) -> Any:
        return {"share": 1 / (sample["number"] - 5)}

    with lading.open(folder) as ds:
        with pytest.raises(FunctionError, match=r"sample '005'.*ZeroDivisionError.*in divide: return.*drop_sample"):
            list(ds.map(divide))
        dropping = ds.map(divide, on_error="drop_sample")
        assert len(dropping) == 11
        done = dropping.write(tmp_path / "out", format="parquet", ledger=tmp_path / "ledger")
    assert (done.samples, done.lost_rows) == (11, 1)
    [line] = map(json.loads, (tmp_path / "ledger").read_text().splitlines())
    assert line["__key__"] == "005"
    assert line["detail"].startswith("ZeroDivisionError: division by zero")


def test_samples_behind_a_limit_are_not_reported_with_their_errors(folder: Path, tmp_path: Path) -> None:
    def odd(sample: Any) -> Any:
        return {"share": sample["number"] // (sample["number"] % 2)}

    with lading.open(folder) as ds:
        few = ds.map(odd, on_error="drop_sample").limit(2)
        done = few.write(tmp_path / "out.parquet", ledger=tmp_path / "ledger")
    lines = [json.loads(line) for line in (tmp_path / "ledger").read_text().splitlines()]
    assert (done.samples, [line["__key__"] for line in lines]) == (2, ["000", "002"])


def test_declared_columns(folder: Path, tmp_path: Path) -> None:
    columns = {"icon": ImageFeature(), "size": ClassLabel(["small", "large"]), "ends": pa.list_(pa.int32())}
    with lading.open(folder) as ds:
        made = ds.map(
            lambda sample: {
                "icon": sample["jpg"].resize((4, 4)),
                "size": "large" if sample["number"] > 5 else "small",
                "ends": [1, sample["number"]],
            },
            columns=columns,
        )
        made.write(tmp_path / "out", format="parquet")
        with pytest.raises(UsageError, match=r"column 'other'.*columns= does not name"):
            list(ds.map(lambda _: {"other": 1}, columns=columns))
    with lading.open(tmp_path / "out") as out:
        assert (out[7]["icon"].size, out[7]["size"], out[7]["ends"]) == ((4, 4), 1, [1, 7])


def test_a_later_value_of_another_type(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": range(1500)}), tmp_path / "t.parquet")
    with lading.open(tmp_path / "t.parquet") as ds:
        odd = ds.map(lambda sample: {"m": 1 if sample["n"] < 1200 else "text"})
        with pytest.raises(DataError, match=r"column 'm'.*int64.*found str 'text'.*columns="):
            odd.write(tmp_path / "out", format="parquet")


@pytest.mark.parametrize(
    "function, message",
    [
        (lambda batch: [batch], "must return a dict"),
        (lambda sample: sample.__setitem__("x", 1), "returns nothing"),
        (lambda sample: sample.pop("n"), "not removed"),
    ],
)
def test_functions_that_return_something_else(function: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "t.parquet")
    with lading.open(tmp_path / "t.parquet") as ds, pytest.raises(UsageError, match=message):
        list(ds.map(function))


def test_a_function_that_workers_cannot_be_sent_is_refused_for_little_data_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1]}), tmp_path / "t.parquet")
    lock = threading.Lock()
    with lading.open(tmp_path / "t.parquet") as ds:
        mapped = ds.map(lambda sample: {"m": sample["n"], "free": not lock.locked()})
        assert mapped.write(tmp_path / "one", format="parquet").samples == 1
        with pytest.raises(UsageError, match=r"cannot be sent.*map=<function.*workers=1"):
            mapped.write(tmp_path / "two", format="parquet", workers=2)


def test_audio_knows_its_header(tmp_path: Path) -> None:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.arange(8000, dtype="<i2").tobytes())
    with lading.writer(tmp_path / "in") as writer:
        writer.write({"__key__": "a", "wav": out.getvalue()})
    with lading.open(tmp_path / "in") as ds:
        clip = ds[0]["wav"]
        assert isinstance(clip, AudioFile)
        assert (clip, clip.sample_rate, clip.channels, clip.duration_s) == (out.getvalue(), 8000, 2, 0.5)
        assert clip.array.shape == (2, 4000)
        assert clip.array[:, 1].tolist() == [2 / 32768, 3 / 32768]
        assert type(ds.with_decode(False)[0]["wav"]) is bytes


def test_writers_take_images_arrays_and_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    image = Image.new("RGB", (8, 6), (10, 20, 30))
    with lading.writer(tmp_path / "out") as writer:
        writer.write({"jpg": image, "png": image, "npy": torch.arange(3), "n": np.int32(4)})
    with lading.open(tmp_path / "out") as ds:
        sample = ds[0]
        assert (sample["jpg"].format, sample["png"].format) == ("JPEG", "PNG")
        assert sample["png"].tobytes() == image.tobytes()
        assert sample["npy"].tolist() == [0, 1, 2]


@pytest.mark.soak
def test_a_new_column_has_the_type_of_its_first_value(folder: Path, tmp_path: Path) -> None:
    found = lading.open(folder).map(lambda sample: {"late": sample["__key__"] if sample["number"] > 9 else None})
    expected = [*[None] * 10, "010", "011"]
    assert [sample.get("late") for sample in found] == expected
    found.write(tmp_path / "out", format="parquet")
    assert pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))["late"].to_pylist() == expected


def test_a_function_over_batches_that_raises_names_its_line(folder: Path) -> None:
    def broken(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.column("nothing")

    for made in (lading.open(folder).map_batches(broken), lading.open(folder).filter_batches(broken)):
        with pytest.raises(FunctionError, match=r"batch of .* from sample '000'; found KeyError: .*in broken") as info:
            list(made)
        assert isinstance(info.value.__cause__, KeyError)


def test_a_value_that_is_broken_names_its_sample_and_how_to_leave_it_out(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        for number in range(5):
            writer.write({"__key__": str(number), "json": b"{" if number == 3 else b'{"a": 1}'})
    found = lading.open(tmp_path / "in")
    with pytest.raises(DataError, match=r"sample '3' column 'json': broken JSON.*on_error='drop_sample'"):
        list(found)
    assert len(list(found.filter(lambda sample: "a" in sample["json"], on_error="drop_sample"))) == 4


@pytest.mark.parametrize("column", ["new", "txt", "__key__"])
def test_a_lone_surrogate_names_its_sample_and_column(column: str, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("1.txt", b"a"), ("2.txt", b"b")))
    dataset = lading.open(tmp_path / "a.tar")
    with pytest.raises(Unrepresentable, match="a text with a lone surrogate") as caught:
        list(dataset.map(lambda sample: {column: "\ud800" if sample["txt"] == "b" else "x"}))
    error = caught.value
    assert (error.file, error.sample, error.column, error.row) == (str(tmp_path / "a.tar"), "2", column, 1)


def test_numbers_with_line_ends_stay_text_behind_a_function(tmp_path: Path) -> None:
    (tmp_path / "in.tar").write_bytes(tar_of(*((f"{number}.cls", b"%d\n" % number) for number in range(3))))
    lading.open(tmp_path / "in.tar").map(lambda sample: {"more": 1}).write(tmp_path / "out", format="parquet")
    [file] = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).select(["cls", "more"]).to_pydict() == {"cls": ["0\n", "1\n", "2\n"], "more": [1, 1, 1]}


def test_only_columns_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="webdataset") as writer:
        writer.write({"__key__": "0", "jpg": jpeg(1), "json": {"a": 1}, "cls": b"3"})
    with pytest.raises(Unrepresentable, match="column 'jpg': JSON cannot hold bytes") as info:
        lading.open(tmp_path / "in").write(tmp_path / "out", format="jsonl")
    assert "'json'" not in str(info.value)


@pytest.mark.parametrize("source", FORMATS)
def test_a_null_that_a_function_returns_is_none_in_every_sample(source: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format=source) as writer:
        for number in range(6):
            writer.write({"__key__": f"{number}", "txt": "t" * number})
    texts = ["t" * number for number in range(6)]
    expected = [(text, len(text) if len(text) % 2 else None) for text in texts]
    with lading.open(tmp_path / "in") as ds:
        made = ds.map(lambda s: {"odd": len(s["txt"]) if len(s["txt"]) % 2 else None})
        assert [(s["txt"], s["odd"]) for s in made] == expected
        assert [(s["txt"], s["odd"]) for s in made.head(6)] == expected
        assert [made[number]["odd"] for number in range(6)] == [odd for _, odd in expected]
        again = made.map(lambda s: {"none": s["odd"] is None, "there": "odd" in s})
        assert [(s["none"], s["there"]) for s in again] == [(odd is None, True) for _, odd in expected]
        assert [s["txt"] for s in made.filter(lambda s: s["odd"] is None)] == texts[::2]
        made.write(tmp_path / "tar", format="webdataset")
    with lading.open(tmp_path / "tar") as ds:
        assert [(s["txt"], s["odd"]) for s in ds] == expected
    [path] = (tmp_path / "tar").glob("*.tar")
    with tarfile.open(path) as tar:
        assert [name for name in tar.getnames() if name.endswith(".odd")] == ["1.odd", "3.odd", "5.odd"]


def test_samples_of_a_tar_without_a_manifest_have_the_members_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(("0.txt", b"x"), ("0.jpg", b"y"), ("1.txt", b"z")))
    with lading.open(tmp_path / "a.tar").with_decode(False) as ds:
        expected = [["__key__", "txt", "jpg"], ["__key__", "txt"]]
        assert [list(s) for s in ds] == [list(ds[i]) for i in (0, 1)] == expected
        names = ds.map(lambda s: {"names": sorted(s), "has": "jpg" in s})
        assert [(s["names"], s["has"]) for s in names] == [(sorted(each), "jpg" in each) for each in expected]


def test_a_field_that_some_samples_lack(tmp_path: Path) -> None:
    """The error says how to read a field that a sample may lack; other wrong keys are errors of the function."""
    members = [("0.txt", b"a"), ("0.cls", b"0"), ("1.cls", b"1")]
    (tmp_path / "a.tar").write_bytes(tar_of(*members))
    with lading.open(tmp_path / "a.tar") as ds:
        with pytest.raises(FunctionError, match=r"sample '1'.*KeyError: 'txt'") as lacks:
            list(ds.filter(lambda sample: bool(sample["txt"])))
        assert lacks.value.advice is not None
        assert "has the fields __key__, cls. " in lacks.value.advice
        assert ".get('txt')" in lacks.value.advice
        assert [sample["__key__"] for sample in ds.filter(lambda sample: bool(sample.get("txt")))] == ["0"]
        with pytest.raises(FunctionError, match=r"KeyError: 'gone'") as gone:
            list(ds.filter(lambda sample: {}["gone"]))
        assert gone.value.advice is not None
        assert ".get(" not in gone.value.advice
