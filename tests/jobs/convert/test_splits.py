"""Sources of several splits, which one index lists: each becomes a dataset, and all appear at once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lading
from golden_cases import Golden
from lading._core.cli.main import app
from lading._core.features.items import INTERLEAVED_SCHEMA
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, DestinationExists, SeveralSplits, UsageError

_FOR_DATASETS = {"layout": "huggingface"}


@pytest.fixture
def source(golden: Golden, tmp_path: Path) -> Path:
    """A DatasetDict of train and test that datasets saved."""
    shutil.copytree(golden("arrow") / "hf-dataset-dict", tmp_path / "source")
    return tmp_path / "source"


def test_the_folder_may_come_from_a_generator(source: Path, tmp_path: Path) -> None:
    done = lading.convert(iter([source]), tmp_path / "out", format="arrow")
    assert list(done.splits) == ["train", "test"]


def rows(folder: Path | str) -> list[str]:
    with lading.open(folder).with_decode(False) as dataset:
        return [str(row) for row in dataset]


def test_the_error_tells_the_splits(source: Path) -> None:
    with pytest.raises(SeveralSplits) as told:
        lading.open(source)
    assert list(told.value.splits) == ["train", "test"]


@pytest.mark.soak
@pytest.mark.parametrize("named", ["", "/", "/dataset_dict.json"])
def test_all_splits_are_converted_and_listed(named: str, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = lading.convert(f"{source}{named}", out, format="arrow", options=_FOR_DATASETS, verify=True)
    assert sorted(path.name for path in out.iterdir()) == ["_lading", "dataset_dict.json", "test", "train"]
    assert json.loads((out / "dataset_dict.json").read_bytes()) == {"splits": ["train", "test"]}
    for name in ("train", "test"):
        assert rows(out / name) == rows(source / name)
        assert lading.digest(out / name).ordered == lading.digest(source / name).ordered == done.splits[name].digest
        assert lading.verify(out / name, deep=True).ok
    assert done.samples == sum(one.samples for one in done.splits.values()) == 3 + len(rows(source / "train"))
    assert (done.verified, done.digest) == (True, None)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.soak
def test_the_folder_may_be_named_in_other_ways(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(source)
    monkeypatch.chdir(source)
    named = [f"file://{source}", f"file://{source}/", [source], (f"file://{source}",), f"{tmp_path}/./link", ".",
             f"file://{source}/dataset_dict.json", "dataset_dict.json"]  # fmt: skip
    for number, spelled in enumerate(named):
        out = tmp_path / f"{number}"
        lading.convert(spelled, out, format="parquet")
        assert sorted(path.name for path in out.iterdir()) == [".huggingface.yaml", "_lading", "test", "train"]
        assert rows(out / "test") == rows(source / "test")


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
def test_other_formats_have_a_folder_for_each(fmt: str, source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", format=fmt, workers=2)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        ".huggingface.yaml",
        "_lading",
        "test",
        "train",
    ]
    for name in ("train", "test"):
        assert lading.digest(tmp_path / "out" / name).ordered == lading.digest(source / name).ordered


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "arrow"])
@pytest.mark.parametrize("named", ["", "/"])
def test_splits_stay_several_on_the_way_through_another_format(
    fmt: str, named: str, source: Path, tmp_path: Path
) -> None:
    out, back = tmp_path / "out", tmp_path / "back"
    lading.convert(source, out, format=fmt)
    with pytest.raises(SeveralSplits, match="several splits; expected one of them, found train, test") as told:
        lading.open(out)
    assert list(told.value.splits) == ["train", "test"]
    done = lading.convert(f"{out}{named}", back, format="arrow", options=_FOR_DATASETS, verify=True)
    assert list(done.splits) == ["train", "test"]
    assert json.loads((back / "dataset_dict.json").read_bytes()) == {"splits": ["train", "test"]}
    for name in ("train", "test"):
        assert lading.digest(back / name).ordered == lading.digest(out / name).ordered
    with lading.open([out / "train", out / "test"]).with_decode(False) as both:  # who wants them as one names them
        assert len(both) == done.samples


@pytest.mark.soak
@pytest.mark.parametrize(
    "told",
    ["[]", "{}", '{"splits": []}', '{"splits": ["a", "../b"]}', '{"splits": ["/etc"]}', '{"splits": ["test", "test"]}'],
)
def test_a_list_of_splits_that_is_none(told: str, source: Path, tmp_path: Path) -> None:
    lading.convert(source, tmp_path / "out", format="parquet")
    (tmp_path / "out/_lading/splits.json").write_text(told)
    for read in (lading.open, lambda folder: lading.convert(folder, tmp_path / "more", format="csv")):
        with pytest.raises(DataError, match=r"splits\.json column 'splits': not a list of splits"):
            read(tmp_path / "out")


@pytest.mark.parametrize("fmt", ["parquet", "arrow", "huggingface"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_merge_makes_no_one_dataset_of_splits(fmt: str, overwrite: bool, source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = _FOR_DATASETS if fmt == "huggingface" else None
    lading.convert(source, out, format="parquet" if fmt == "parquet" else "arrow", options=options)
    [own] = [path for name in ("_lading/splits.json", "dataset_dict.json") if (path := out / name).exists()]
    before = sorted(out.rglob("*"))
    with pytest.raises(UsageError, match=f"holds splits, which its list keeps apart; found {own.relative_to(out)}"):
        lading.merge(out, overwrite=overwrite)
    assert sorted(out.rglob("*")) == before
    own.unlink()  # as the error says
    assert lading.merge(out, overwrite=overwrite).parts == 2


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["parquet", "huggingface"])
def test_merge_makes_no_one_dataset_of_splits_further_down(fmt: str, source: Path, tmp_path: Path) -> None:
    options = _FOR_DATASETS if fmt == "huggingface" else None
    for name in "xy":
        lading.convert(
            source, tmp_path / "m/1" / name, format="parquet" if options is None else "arrow", options=options
        )
    lists = sorted([*(tmp_path / "m").rglob("splits.json"), *(tmp_path / "m").rglob("dataset_dict.json")])
    before = sorted((tmp_path / "m").rglob("*"))
    for own in lists:
        with pytest.raises(UsageError, match=f"keeps apart; found {own.relative_to(tmp_path / 'm')}"):
            lading.merge(tmp_path / "m")
        assert sorted((tmp_path / "m").rglob("*")) == before
        own.unlink()
        before.remove(own)
    assert lading.merge(tmp_path / "m").parts == 4


def test_a_list_of_splits_that_is_of_no_part_is_in_no_way_of_merge(tmp_path: Path) -> None:
    for number, place in enumerate(("a", "b")):
        with lading.writer(tmp_path / place, format="parquet") as writer:
            writer.write({"a": number})
    for place in ("a/docs", "c"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert lading.merge(tmp_path).parts == 2


@pytest.mark.parametrize("told", ["garbage", '{"splits": []}', '{"splits": ["../x"]}'])
@pytest.mark.parametrize("listed_by", ["_lading/splits.json", "dataset_dict.json"])
def test_salvage_joins_no_splits_whose_list_is_damaged(
    told: str, listed_by: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = source
    if listed_by != "dataset_dict.json":
        folder = tmp_path / "mine"
        lading.convert(source, folder, format="parquet")
    (folder / listed_by).write_text(told)
    monkeypatch.chdir(folder)
    for spelled in (".", folder, *([listed_by] if folder == source else [])):
        with pytest.raises(SeveralSplits, match="Choose one of them: split=") as error:
            lading.salvage(spelled, tmp_path / "saved")
        assert sorted(error.value.splits) == ["test", "train"]


def test_a_split_alone_is_salvaged_beside_a_damaged_list(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "train")
    (source / "dataset_dict.json").write_text("garbage")
    assert lading.salvage(source, tmp_path / "saved").samples == 3


@pytest.mark.soak
def test_usual_rules_of_destinations_hold(source: Path, tmp_path: Path) -> None:
    for inside in (source, f"file://{source}", source / "more", f"file://{source}/more", tmp_path):
        with pytest.raises(UsageError, match="inside the source"):
            lading.convert(source, inside, format="parquet", overwrite=True)
    with pytest.raises(UsageError, match="names no folder"):
        lading.convert(source, "", format="parquet", overwrite=True)
    out = tmp_path / "out"
    assert lading.convert(source, out, format="parquet", dry_run=True).samples > 3
    assert not out.exists()
    lading.convert(source, out, format="parquet")
    with pytest.raises(DestinationExists):
        lading.convert(source, out, format="parquet")
    lading.convert(source, out, format="csv", columns=["label"], overwrite=True)
    assert {path.name for path in out.rglob("*.parquet")} == set()
    assert lading.convert(source, out, format="parquet", dry_run=True, overwrite=True).samples > 3
    for more in ({"limit": 1}, {"ledger": tmp_path / "ledger"}):
        with pytest.raises(UsageError, match="of one split"):
            lading.convert(source, tmp_path / "more", format="csv", **more)
    with pytest.raises(SeveralSplits):
        lading.convert([source, source / "train"], tmp_path / "more", format="csv")


@pytest.mark.parametrize("lazy", [False, True])
def test_the_destination_holds_nothing_that_a_split_leads_to(lazy: bool, tmp_path: Path) -> None:
    """As for one dataset alone: each split is built in a folder out of sight, which holds nothing of it."""
    media, source = tmp_path / "img", tmp_path / "source"
    for name in ("train", "test"):
        row = {"sample_id": name, "position": 0, "modality": "image",
               "source_ref": json.dumps({"path": str(media / "p.png")})}  # fmt: skip
        with lading.writer(source / name, format="arrow", options=_FOR_DATASETS) as writer:
            writer.write_batch(pa.table({f.name: pa.array([row.get(f.name)], f.type) for f in INTERLEAVED_SCHEMA}))
    (source / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    media.mkdir()
    (media / "p.png").write_bytes(b"a picture")
    for place, root, told in ((media, media, "may lead to"), (media / "out", tmp_path, "would lead to")):
        (media / "out").mkdir(exist_ok=True)
        if lazy or root == media:
            with pytest.raises(UsageError, match=told):
                lading.convert(source, place, format="parquet", view="interleaved", overwrite=True, lazy=lazy,
                               roots=[root])  # fmt: skip
    assert (media / "p.png").read_bytes() == b"a picture"


def test_where_one_fails_nothing_appears(source: Path, tmp_path: Path) -> None:
    [shard] = (source / "test").glob("*.arrow")
    shard.write_bytes(shard.read_bytes()[:-100])
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError):
        lading.convert(source, tmp_path / "out", format="arrow", options=_FOR_DATASETS)
    assert list((tmp_path / "out").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_splits_of_another_store(source: Path) -> None:
    store = MemoryStore({
        f"memory://far/{path.relative_to(source)}": path.read_bytes() for path in source.rglob("*") if path.is_file()
    })  # fmt: skip
    stores = Stores({"memory://far": store})
    lading.convert("memory://far", "memory://far-away/out", format="arrow", options=_FOR_DATASETS, stores=stores)
    with lading.open("memory://far-away/out/test", stores=stores).with_decode(False) as dataset:
        assert [str(row) for row in dataset] == rows(source / "test")
    with pytest.raises(SeveralSplits):
        lading.open("memory://far-away/out", stores=stores)


@pytest.mark.soak
def test_the_command_says_what_was_done_of_each(source: Path, tmp_path: Path) -> None:
    words = ["convert", str(source), str(tmp_path / "out"), "--to", "arrow", "--to-option", "layout=huggingface"]
    done = CliRunner().invoke(app, [*words, "--verify"])
    assert done.exit_code == 0, done.output
    assert "train" in done.output
    assert "test 3 samples" in done.output
    assert "equal when read back" in done.output
    told = CliRunner().invoke(app, [*words, "--json", "--overwrite"])
    assert json.loads(told.stdout)["splits"]["test"]["samples"] == 3
