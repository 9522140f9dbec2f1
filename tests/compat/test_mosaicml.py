"""A cache folder of MDS: what is there is brought into order, and may be removed."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import lading
from golden_cases import Golden
from lading.errors import BadReference, DataError, NotFound, SourceNotFound, UsageError

_NAMES = ("raw", "zip", "raw meta", "zip meta")


def _copied(golden: Golden, case: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(golden("mds") / case, tmp_path / "cache"))


def _entry(folder: Path, number: int = 0) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((folder / "index.json").read_text())["shards"][number]
    return entry


def _files(folder: Path, entry: dict[str, Any]) -> dict[str, tuple[Path, bool]]:
    """Files of a shard by kind, and whether they are unpacked ones."""
    keys = {"raw": "raw_data", "zip": "zip_data", "raw meta": "raw_meta", "zip meta": "zip_meta"}
    return {
        kind: (folder / entry[key]["basename"], kind.startswith("raw")) for kind, key in keys.items() if entry.get(key)
    }


@pytest.mark.parametrize("case", ["comp-none", "comp-zstd3", "text-json", "text-json-zstd"])
@pytest.mark.parametrize("keep", [True, False])
def test_every_state_is_brought_into_order(golden: Golden, case: str, keep: bool, tmp_path: Path) -> None:
    folder = _copied(golden, case, tmp_path)
    entry = _entry(folder)
    files = _files(folder, entry)
    sizes = {kind: entry[f"{'raw' if raw else 'zip'}_{'meta' if 'meta' in kind else 'data'}"]["bytes"]
             for kind, (_, raw) in files.items()}  # fmt: skip
    for state in product([True, False], repeat=len(files)):
        there = {kind for kind, is_there in zip(files, state, strict=True) if is_there}
        for kind, (path, _) in files.items():
            path.write_bytes(bytes(sizes[kind])) if kind in there else path.unlink(missing_ok=True)
        raws = {kind for kind, (_, raw) in files.items() if raw}
        zips = set(files) - raws
        # Of a kind all or nothing; then the rules for both.
        raw, packed = raws <= there, bool(zips) and zips <= there
        if zips and keep and raw and not packed:
            raw = False
        elif raw and packed and not keep:
            packed = False
        left = (raws if raw else set()) | (zips if packed else set())
        copy = lading.compat.mosaicml.LocalCopy(folder)
        assert copy.shards[0].set_up_local(copy.listing(), keep) == sum(sizes[kind] for kind in left)
        assert {kind for kind, (path, _) in files.items() if path.exists()} == left
        assert copy.shards[0].evict() == sum(sizes[kind] for kind in left)
        assert not any(path.exists() for path, _ in files.values())
        assert copy.shards[0].evict() == 0


@pytest.mark.parametrize("case", ["all-encodings", "comp-br", "raw-and-zip", "text-xsv-zstd"])
def test_samples_are_those_of_the_dataset(golden: Golden, case: str, tmp_path: Path) -> None:
    folder = _copied(golden, case, tmp_path)
    copy = lading.compat.mosaicml.LocalCopy(folder)
    with lading.open(folder) as dataset:
        assert len(copy) == len(dataset)
        for shard, other in zip(copy.shards, dataset.shards, strict=True):
            assert shard.size == len(shard) == len(other)
            assert [shard.get_sample_data(i) for i in range(len(shard))] == [
                other.get_sample_data(i) for i in range(len(other))
            ]
            assert (shard.get_raw_size(), shard.get_zip_size()) == (other.get_raw_size(), other.get_zip_size())
            assert [*map(sorted, shard)] == [*map(sorted, shard[:])]
            shard.close()


def test_what_was_removed_is_not_there_until_it_comes_back(golden: Golden, tmp_path: Path) -> None:
    folder = _copied(golden, "comp-zstd3", tmp_path)
    shard = lading.compat.mosaicml.LocalCopy(folder).shards[1]
    path = folder / "shard.00001.mds.zstd"
    body, first = path.read_bytes(), repr(shard[0])
    assert shard.evict() == len(body)
    with pytest.raises(NotFound, match=r"shard\.00001"):
        shard.get_item(0)
    path.write_bytes(body)
    assert repr(shard.get_item(0)) == first
    # The unpacked file alone does as well, and a broken one is told.
    with lading.open(folder) as dataset:
        raw = _entry(folder, 1)["raw_data"]
        assert dataset.shards[1].get_raw_size() == raw["bytes"]
    (folder / raw["basename"]).write_bytes(bytes(raw["bytes"]))
    shard.close()
    with pytest.raises(DataError, match=r"shard\.00001\.mds"):
        shard.get_item(0)


def test_a_shard_stands_alone(golden: Golden) -> None:
    folder = golden("mds") / "comp-zstd3"
    entry = _entry(folder)
    columns = {name: entry[name] for name in ("column_names", "column_encodings", "column_sizes")}
    for told, count in (
        (lambda file: file, int), (lambda file: SimpleNamespace(**file), int),
        (lambda file: MappingProxyType({**file, "hashes": MappingProxyType(file["hashes"])}), np.int64),
    ):  # fmt: skip
        shard = lading.compat.mosaicml.MDSShard(
            folder, None, "zstd:3", ["sha1", "xxh64"], count(entry["samples"]), "4kb",
            raw_data=told(entry["raw_data"]), zip_data=told(entry["zip_data"]), **columns,
        )  # fmt: skip
        assert (shard.size, shard.size_limit, shard.split) == (entry["samples"], 4096, "")
        with lading.open(folder) as dataset:
            assert repr(shard[-1]) == repr(dataset.shards[0][-1])
        assert shard.get_persistent_size(keep_zip=False) == 3314
        for wrong in (shard.size, -shard.size - 1):
            with pytest.raises(IndexError):
                shard[wrong]


@pytest.mark.parametrize("changes, error", [
    ({"compression": None}, DataError),
    ({"raw_data": {"basename": "../x.mds", "bytes": 1000, "hashes": {}}}, BadReference),
    ({"zip_data": {"basename": "/etc/passwd", "bytes": 10, "hashes": {}}}, BadReference),
    ({"raw_data": {"basename": "\ud800.mds", "bytes": 1000, "hashes": {}}}, DataError),
    ({"samples": -1}, DataError),
    ({"samples": 1 << 70}, DataError),
    ({"column_names": {"a"}}, DataError),
    ({"column_names": ["a"]}, DataError),
    ({"format": "tar"}, DataError),
    ({"raw_data": None}, DataError),
    ({"size_limit": "much"}, UsageError),
])  # fmt: skip
def test_what_does_not_fit_together(golden: Golden, changes: dict[str, Any], error: type[Exception]) -> None:
    folder = golden("mds") / "comp-zstd3"
    told = {name: value for name, value in _entry(folder).items() if name != "version"} | changes
    first = [told.pop(name) for name in ("compression", "hashes", "samples", "size_limit")]
    with pytest.raises(error):
        lading.compat.mosaicml.MDSShard(folder, "", *first, **told)


def test_pickles_are_told_and_bytes_unless_they_are_allowed(golden: Golden) -> None:
    folder = golden("mds") / "pickle"
    [shard] = lading.compat.mosaicml.LocalCopy(folder).shards
    with pytest.raises(UsageError, match="code"):
        shard.validate(allow_unsafe_types=False)
    assert isinstance(shard[0]["obj"], bytes)
    [allowed] = lading.compat.mosaicml.LocalCopy(folder, allow_pickle=True).shards
    allowed.validate(allow_unsafe_types=True)
    assert not isinstance(allowed[0]["obj"], bytes)


def test_splits_and_folders_without_an_index(golden: Golden, tmp_path: Path) -> None:
    copy = lading.compat.mosaicml.LocalCopy(golden("mds") / "splits", "val")
    with lading.open(golden("mds") / "splits" / "val") as dataset:
        assert len(copy) == len(dataset)
    assert all("/val/" in path for path in copy.listing())
    with pytest.raises(SourceNotFound, match=r"index\.json"):
        lading.compat.mosaicml.LocalCopy(tmp_path)
    (tmp_path / "index.json").write_text("[]")
    with pytest.raises(SourceNotFound, match="not an index of MDS"):
        lading.compat.mosaicml.LocalCopy(tmp_path)


def test_only_files_of_the_shard_are_removed(golden: Golden, tmp_path: Path) -> None:
    folder = _copied(golden, "comp-zstd3", tmp_path)
    index = json.loads((folder / "index.json").read_text())
    first = index["shards"][0]
    for name, error in (("index.json", BadReference), ("_lading/manifest.json", BadReference)):
        changed = first | {"raw_data": first["raw_data"] | {"basename": name}}
        (folder / "index.json").write_text(json.dumps(index | {"shards": [changed]}))
        with pytest.raises(error):
            lading.compat.mosaicml.LocalCopy(folder)
    second = index["shards"][1] | {"raw_data": first["raw_data"]}
    (folder / "index.json").write_text(json.dumps(index | {"shards": [first, second]}))
    with pytest.raises(DataError, match="twice"):
        lading.compat.mosaicml.LocalCopy(folder)


def test_a_link_out_of_the_folder_is_not_followed(golden: Golden, tmp_path: Path) -> None:
    folder = _copied(golden, "comp-none", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (folder / "shard.00000.mds").rename(elsewhere / "shard.00000.mds")
    (folder / "sub").symlink_to(elsewhere)
    index = json.loads((folder / "index.json").read_text())
    index["shards"] = index["shards"][:1]
    index["shards"][0]["raw_data"]["basename"] = "sub/shard.00000.mds"
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(BadReference, match="link"):
        lading.compat.mosaicml.LocalCopy(folder).shards[0].evict()
    assert (elsewhere / "shard.00000.mds").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"hashes": 5}, {"hashes": "sha1"}, {"raw_data": None},
        *({"size_limit": wrong} for wrong in ({}, 1.5, "abc", -5, True, "9" * 5000)),
    ],
)  # fmt: skip
def test_an_index_of_other_types(golden: Golden, changes: dict[str, Any], tmp_path: Path) -> None:
    folder = _copied(golden, "comp-none", tmp_path)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0] |= changes
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError):
        lading.compat.mosaicml.LocalCopy(folder)


@pytest.mark.parametrize("name", ["dirname", "split", "self", "limits", "allow_pickle", "more", "author"])
def test_an_index_says_no_more_of_a_shard_than_what_it_is(golden: Golden, name: str, tmp_path: Path) -> None:
    """As `lading.open`, which goes by what it knows; where a shard lies, and what is allowed, the caller says."""
    folder = _copied(golden, "pickle", tmp_path)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0][name] = True
    (folder / "index.json").write_text(json.dumps(index))
    copy = lading.compat.mosaicml.LocalCopy(folder)
    assert (copy.dirname, copy.shards[0].dirname) == (str(folder), str(folder))
    with lading.open(folder) as dataset:
        assert repr(list(copy.shards[0])) == repr(list(dataset.shards[0]))
        assert any(isinstance(value, bytes) for value in copy.shards[0][0].values())


def test_who_may_read_pickles_is_told_by_true_or_false(golden: Golden) -> None:
    with pytest.raises(UsageError, match="true nor false"):
        lading.compat.mosaicml.LocalCopy(golden("mds") / "pickle", allow_pickle="false")  # type: ignore[arg-type] # what is refused
