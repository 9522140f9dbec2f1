"""Datasets pushed to a server of the Hub's API, through the Hub's own client, and loaded back by the peers."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

import lading
from hub_fixture import hub_of_test, running_hub_of_module  # noqa: F401 - fixtures
from hub_server import TOKEN, HubServer
from lading._core.jobs.push.card import features_as_yaml
from lading.errors import DestinationExists, StoreError, UsageError
from tars import tar_of

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # the client's own
_REPO = "hf://datasets/me/photos"
_SAMPLES = 40


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tar of samples with bytes, a text and JSON."""
    place = tmp_path_factory.mktemp("photos") / "photos.tar"
    members = [
        (f"{i:03}.{ending}", data)
        for i in range(_SAMPLES)
        for ending, data in (
            ("bin", os.urandom(2000)),
            ("txt", b"text %d" % i),
            ("json", json.dumps({"n": i}).encode()),
        )
    ]
    place.write_bytes(tar_of(*members))
    return str(place)


@pytest.fixture
def opened(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """The server, whose owner this process is."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return hub


def _push(source: Any, to: str = _REPO, name: str = "parquet", **options: Any) -> Any:
    return lading.push(source, to, name, progress=False, **options)


def _card(hub: HubServer, repo: str = "me/photos") -> tuple[dict[str, Any], str]:
    _, front, text = hub.repos[repo].files["README.md"].decode().split("---\n", 2)
    return yaml.safe_load(front), text


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", ["parquet", "webdataset"])
def test_the_peers_load_what_was_pushed(opened: HubServer, photos: str, name: str, tmp_path: Path) -> None:
    done = _push(photos, name=name, shard_size="20KB", license="mit", private=True)
    assert (done.samples, done.commits, done.splits) == (_SAMPLES, 1, {"train": _SAMPLES})
    repo = opened.repos["me/photos"]
    ending = {"parquet": "parquet", "webdataset": "tar"}[name]
    names = [f"data/train-{i:05}-of-{done.files:05}.{ending}" for i in range(done.files)]
    assert done.files > 1
    assert {*repo.files} == {".gitattributes", "README.md", *names}
    assert repo.private
    assert len(repo.commits) == 2, "the empty repository, and the dataset"
    assert sum(len(repo.files[name]) for name in names) == done.size_bytes

    held = lading.open(_REPO, split="train")
    assert lading.digest(held) == lading.digest(photos)
    assert lading.open(done.destination).columns == held.columns

    datasets = pytest.importorskip("datasets")
    told, _ = _card(opened)
    assert told["license"] == "mit"
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr("datasets.config.HF_ENDPOINT", opened.url)
        loaded = datasets.load_dataset("me/photos", split="train", cache_dir=str(tmp_path / "datasets"))
    assert len(loaded) == _SAMPLES
    for row, sample in zip(loaded, held, strict=True):
        assert row["__key__"] == sample["__key__"]
        assert row["bin"] == bytes(sample["bin"])


def test_what_is_there_is_replaced_only_if_that_is_said(opened: HubServer, photos: str) -> None:
    first = _push(photos, shard_size="20KB")
    with pytest.raises(DestinationExists, match=r"files of this split; found .* data/train-00000"):
        _push(photos)
    done = _push(photos, overwrite=True)
    assert (done.files, done.replaced, first.replaced) == (1, first.files, 0)
    repo = opened.repos["me/photos"]
    assert {*repo.files} == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
    assert "| train | 40 | 1 |" in _card(opened)[1]


def test_the_text_and_the_other_configs_of_a_card_stay(opened: HubServer, photos: str) -> None:
    own = "---\ntags:\n- mine\nconfigs:\n- config_name: other\n  data_files: x/*.csv\n---\nMy text.\n"
    opened.put("me/photos", {"README.md": own.encode(), "x/a.csv": b"a\n1\n"})
    held = lading.open(photos)
    _push({"train": held.limit(30), "test": held[30:]}, f"{_REPO}/small")
    _push({"val": held.limit(5)}, f"{_REPO}/small")
    told, text = _card(opened)
    assert text == "My text.\n"
    assert told["tags"] == ["mine"]
    assert told["configs"][0] == {"config_name": "other", "data_files": "x/*.csv"}
    files = [{"split": name, "path": f"small/{name}-*.parquet"} for name in ("train", "test", "val")]
    assert told["configs"][1:] == [{"config_name": "small", "data_files": files}]
    counts = {split["name"]: split["num_examples"] for split in told["dataset_info"]["splits"]}
    assert counts == {"train": 30, "test": 10, "val": 5}
    assert len(lading.open(_REPO, config="small", split="test")) == 10
    assert len(lading.open(_REPO, config="other")) == 1


def test_a_push_that_failed_goes_on_with_what_is_uploaded(opened: HubServer, photos: str) -> None:
    opened.refused["/commit/"] = [400]
    with pytest.raises(StoreError, match="the Hub answers 400"):
        _push(photos, shard_size="20KB")
    assert len(opened.repos["me/photos"].commits) == 1
    uploaded = opened.uploaded
    done = _push(photos, shard_size="20KB")
    assert opened.uploaded == uploaded == done.size_bytes
    assert lading.digest(lading.open(_REPO)) == lading.digest(photos)


def test_values_in_tars_keep_their_types(opened: HubServer) -> None:
    rows = [{"label": i, "text": f"t{i}", "meta": {"n": i}, "score": i / 2} for i in range(3)]
    sample = lading.open(_push(rows, name="webdataset").destination)[1]
    assert {name: value for name, value in sample.items() if name != "__key__"} == {
        "label.cls": 1, "text": "t1", "meta.json": {"n": 1}, "score.json": 0.5,
    }  # fmt: skip
    as_named = lading.open(_push(rows, f"{_REPO}/x", name="webdataset", options={"endings": "names"}).destination)
    assert as_named[1]["label"] == b"1"


def test_documents_name_no_local_files(opened: HubServer, tmp_path: Path) -> None:
    place = tmp_path / "docs.tar"
    place.write_bytes(tar_of(("a.json", b'{"texts": ["x", null], "images": [null, "a.png"]}'), ("a.png", b"\x89PNG")))
    docs = lading.open(place, view="interleaved")
    done = docs.push(_REPO, progress=False)
    assert done.counts == {"rows are pushed without source_ref, which names files of this machine": 3}
    assert lading.digest(lading.open(_REPO, view="interleaved")) == lading.digest(docs)
    [data] = [data for name, data in opened.repos["me/photos"].files.items() if name.endswith(".parquet")]
    table = pq.read_table(io.BytesIO(data))
    assert table.num_rows == 3
    assert "source_ref" not in table.column_names or table["source_ref"].null_count == 3
    assert str(tmp_path) not in str(table.to_pylist())


def test_a_branch_is_made(opened: HubServer, photos: str) -> None:
    opened.put("me/photos", {"README.md": b"Text."})
    _push(photos, f"{_REPO}@v2", message="Second")
    repo = opened.repos["me/photos"]
    assert [*repo.files] == ["README.md"]
    assert repo.commits[-1][0] == "Second"
    assert len(lading.open(f"{_REPO}@v2")) == _SAMPLES


def test_small_files_are_part_of_the_commit(opened: HubServer, photos: str) -> None:
    done = _push(lading.open(photos).select("txt", "json"), name="jsonl")
    assert opened.uploaded == 0
    assert lading.digest(lading.open(done.destination)) == lading.digest(lading.open(photos).select("txt", "json"))


def test_refusals(hub: HubServer, photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("out", "hf://me/photos", "hf://datasets/me", f"{_REPO}/a/b"):
        with pytest.raises(UsageError, match="no dataset's repository on the Hub"):
            _push(photos, wrong)
    with pytest.raises(UsageError, match="datasets does not read this format"):
        _push(photos, name="mds")
    with pytest.raises(UsageError, match="written in one commit"):
        lading.convert(photos, _REPO, "parquet", progress=False)
    with pytest.raises(StoreError, match=r"the Hub answers 401.*hf auth login"):
        _push(photos)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(StoreError, match="the Hub answers 403"):
        _push(photos, "hf://datasets/others/photos")
    assert not hub.repos


def test_features_in_a_card_are_those_of_datasets() -> None:
    datasets = pytest.importorskip("datasets")
    value = datasets.Value
    features = datasets.Features({
        "id": value("int64"), "image": datasets.Image(), "sound": datasets.Audio(sampling_rate=16000),
        "label": datasets.ClassLabel(names=["a", "b"]), "names": datasets.List(value("string")),
        "pair": datasets.List(value("float32"), length=2), "struct": {"a": value("int8"), "b": [{"c": value("bool")}]},
        "large": datasets.LargeList(datasets.Image()), "array": datasets.Array2D((2, 3), "float32"),
        "nested": datasets.List(datasets.List(value("int32"))),
    })  # fmt: skip
    assert features_as_yaml(json.loads(json.dumps(features.to_dict()))) == features._to_yaml_list()


def test_what_people_wrote_in_the_yaml_stays(opened: HubServer, photos: str) -> None:
    own = "# of mine\nlanguage: [no, en]  # Norwegian\nversion: 1.10\ntime: 12:30:00\n'license': other\n"
    opened.put("me/photos", {"README.md": f"---\n{own}---\nText.\n".encode()})
    _push(photos, license="mit")
    card = opened.repos["me/photos"].files["README.md"].decode()
    assert card.startswith("---\n" + own.replace("'license': other", "license: mit"))
    assert _card(opened)[1] == "Text.\n"


def test_files_of_other_splits_stay(opened: HubServer, photos: str) -> None:
    opened.put("me/photos", {"data/train.extra-00000-of-00001.parquet": b"", "x/train-clean.csv": b"a\n1\n"})
    _push(photos, overwrite=True)
    assert "data/train.extra-00000-of-00001.parquet" in opened.repos["me/photos"].files
    with pytest.raises(UsageError, match=r"would be read as a part of this split; .*found x/train-clean\.csv"):
        _push(photos, f"{_REPO}/x", overwrite=True)
    listed = b"---\nconfigs:\n- {config_name: default, data_dir: old, data_files: [{split: train, path: a.csv}]}\n---\n"
    opened.put("me/photos", {"README.md": listed, "old/a.csv": b"a\n1\n"})
    with pytest.raises(DestinationExists, match=r"old/a\.csv"):
        _push(photos)
    _push(photos, overwrite=True)
    files = [{"split": "train", "path": "data/train-*.parquet"}]
    assert _card(opened)[0]["configs"] == [{"config_name": "default", "data_files": files}], "without data_dir"


def test_what_datasets_would_not_load_is_refused(opened: HubServer, photos: str) -> None:
    held = lading.open(photos)
    for parts, match in (
        ({"train-clean": held}, "does not take this name"),
        ({}, "no split to push"),
        ({"train": held, "test": held.drop("bin")}, r"differ in columns.*expected bin, found none more"),
    ):
        with pytest.raises(UsageError, match=match):
            _push(parts)
    with pytest.raises(UsageError, match=r"Write hf://datasets/me/photos\."):
        _push(photos, "me/photos")
    assert not opened.repos
    _push({"train": held, "val": [{"bin": b"", "txt": "", "json": {"n": 1}, "__key__": "a"}]})
    assert "| train | 40 |" in _card(opened)[1]
    _push({"test": held.limit(3)})
    assert "| train | 40 |" in _card(opened)[1], "it is there still"
    before = opened.uploaded
    with pytest.raises(UsageError, match=r"differ in columns.*expected json, found none more"):
        _push({"other": held.drop("json")})
    with pytest.raises(UsageError, match="another format"):
        _push({"other": held}, name="webdataset")
    with pytest.raises(UsageError, match=r'the Hub refuses the YAML of the card.*"license" must be one of'):
        _push({"other": held}, license="odd")
    assert opened.uploaded == before
    _push({"train": held, "test": held, "val": held}, name="webdataset", overwrite=True)
    assert "dataset_info" not in _card(opened)[0], "it told of the files that are gone"


def test_a_commit_that_came_meanwhile(opened: HubServer, photos: str) -> None:
    def other(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["__key__"] == "000":
            opened.put("me/photos", {"a": b""})
        return sample

    with pytest.raises(StoreError, match=r"answers 412.*Push again"):
        _push(lading.open(photos).map(other))
    assert [*opened.repos["me/photos"].files] == ["a"]


def test_each_split_of_a_source_is_pushed(opened: HubServer, photos: str, tmp_path: Path) -> None:
    lading.convert(lading.open(photos).split({"train": 30, "test": 10}), tmp_path / "sets", "mds", progress=False)
    done = _push(str(tmp_path / "sets"))
    assert done.splits == {"train": 30, "test": 10}
    assert len(lading.open(_REPO, split="test")) == 10
    _push(str(tmp_path / "sets"), f"{_REPO}/one", split="test")
    assert [*lading.open(f"{_REPO}/one/*.parquet")] == [*lading.open(_REPO, split="test")]
