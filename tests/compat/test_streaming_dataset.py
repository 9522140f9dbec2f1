"""`StreamingDataset`: ranks and workers share an epoch, a state goes on anywhere, and what is not done is told."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from lading.compat.mosaicml import MDSWriter, Stream, StreamingDataset
from lading.errors import DataError, DestinationExists, SourceNotFound, UsageError

_COUNT = 103


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with MDSWriter(out=tmp_path / "set", columns={"n": "int"}, size_limit=200) as out:
        for number in range(_COUNT):
            out.write({"n": number, "of no column": 0})
    return tmp_path / "set"


def _numbers(dataset: StreamingDataset) -> list[int]:
    return [sample["n"] for sample in dataset]


@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_share_an_epoch(folder: Path, monkeypatch: pytest.MonkeyPatch, shuffle: bool) -> None:
    alone = StreamingDataset(local=folder, batch_size=4, shuffle=shuffle)
    whole, next_one = _numbers(alone), _numbers(alone)
    assert sorted(whole) == [*range(_COUNT)]
    assert (next_one != whole) == shuffle
    monkeypatch.setenv("WORLD_SIZE", "3")
    of_rank = []
    for rank in range(3):
        monkeypatch.setenv("RANK", f"{rank}")
        dataset = StreamingDataset(local=folder, batch_size=4, shuffle=shuffle)
        of_rank.append(_numbers(dataset))
        assert len(of_rank[-1]) <= len(dataset)
    assert sorted(chain(*of_rank)) == [*range(_COUNT)]
    assert [number for step in zip(*of_rank, strict=False) for number in step] == whole[: 3 * min(map(len, of_rank))]


def test_a_state_goes_on_with_other_ranks_and_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = StreamingDataset(local=folder, batch_size=4, shuffle=True)
    whole = _numbers(begun)
    batches = iter(begun)
    second = [next(batches)["n"] for _ in range(24)]
    state = begun.state_dict(24, from_beginning=False)
    assert state == begun.state_dict(24, from_beginning=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    rest = []
    for rank in range(2):
        monkeypatch.setenv("RANK", f"{rank}")
        dataset = StreamingDataset(local=folder, batch_size=7, shuffle=True)
        dataset.load_state_dict(state)
        rest += _numbers(dataset)
        assert dataset.state_dict(10, from_beginning=False)["sample_in_epoch"] == 34
    assert sorted(set(second + rest)) == [*range(_COUNT)]
    assert not set(second) & set(rest)
    assert second != whole[:24]
    with pytest.raises(UsageError, match="another order"):
        StreamingDataset(local=folder, batch_size=4, shuffle=True, shuffle_seed=1).load_state_dict(state)


def test_a_partial_repeat_is_drawn_anew_unless_it_is_fixed(folder: Path) -> None:
    for method, same in (("balanced", False), ("fixed", True)):
        dataset = StreamingDataset(streams=[Stream(local=folder, repeat=0.5)], batch_size=4, sampling_method=method)
        first, second = _numbers(dataset), _numbers(dataset)
        assert len(set(first)) == len(first) == _COUNT // 2
        assert first == sorted(first)
        assert (first == second) == same


@pytest.mark.parametrize("arguments, told", [
    ({"remote": "s3://bucket/set"}, "local="),
    ({}, "streams="),
    ({"local": "x", "streams": [Stream(local="x")]}, "streams="),
    ({"local": "x", "download_retry": 5}, "retry_s"),
    ({"local": "x", "sampling_granularity": 9}, "sampling_granularity"),
    ({"local": "x", "stream_config": {}}, "streams="),
    ({"local": "x", "colour": 9}, "colour"),
    ({"local": "x", "sampling_method": "fair"}, "balanced"),
    ({"local": "SET", "replication": 2}, "replication"),
    ({"streams": [Stream(local="SET", proportion=1), Stream(local="SET")]}, "proportion"),
    ({"streams": [Stream(local="SET", repeat=1)], "epoch_size": 9}, "epoch_size"),
    ({"local": "SET", "epoch_size": -4}, "epoch_size"),
    ({"local": "SET", "batch_size": 0}, "batch_size=0"),
    ({"local": "SET", "shuffle_block_size": -5}, "shuffle_block_size=-5"),
    ({"local": "SET", "predownload": -1}, "predownload=-1"),
    ({"local": "SET", "num_canonical_nodes": 0}, "num_canonical_nodes=0"),
    ({"local": "SET", "epoch_size": "4 dozen"}, "epoch_size"),
])  # fmt: skip
def test_what_is_not_done_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: Any, told: str) -> None:
    monkeypatch.chdir(folder.parent)
    (folder.parent / "SET").symlink_to(folder)
    with pytest.raises(UsageError, match=told):
        StreamingDataset(**{"batch_size": 4, **arguments})


def test_streams_and_samples_that_are_wrong(folder: Path, tmp_path: Path) -> None:
    for weights in ({"repeat": -1}, {"choose": 1, "proportion": 1}):
        with pytest.raises(UsageError, match="one weight"):
            Stream(local="x", **weights)  # type: ignore[arg-type] # what is refused
    with pytest.raises(UsageError, match="local="):
        Stream()
    with pytest.raises(SourceNotFound, match=r"index\.json"):
        StreamingDataset(local=tmp_path / "nothing", batch_size=4)
    with pytest.raises(UsageError, match="batch_size"):
        next(iter(StreamingDataset(local=folder)))
    with pytest.raises(UsageError, match="sorted"):
        MDSWriter(out=tmp_path / "out", columns={"n": "int"}, hashes=["xxh64", "sha1"])
    for arguments, told in (({"max_workers": 2}, "max_workers"), ({"columns": {"n": "number"}}, "'number'")):
        with pytest.raises(UsageError, match=told):
            MDSWriter(**{"out": tmp_path / "out", "columns": {"n": "int"}, **arguments})
    with pytest.raises(DestinationExists, match="exist_ok=True"):
        MDSWriter(out=folder, columns={"n": "int"})
    with pytest.raises(DataError, match="row 0"), MDSWriter(out=tmp_path / "out", columns={"n": "int"}) as out:
        out.write({"n": "text"})
    assert not (tmp_path / "out").exists()
