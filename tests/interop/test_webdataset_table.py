"""Each line of the table of webdataset in `docs/coming-from.md`: both libraries, and what they give."""

from __future__ import annotations

import json
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lading
from doc_tables import Table
from lading.errors import UsageError
from peers import import_peer

wds = import_peer("webdataset")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("collected")]

TABLE = Table("webdataset")
COUNT, SHARDS = 24, 3


def picture(value: int) -> bytes:
    out = BytesIO()
    Image.new("RGB", (4, 3), (value, 2, 3)).save(out, format="PNG")
    return out.getvalue()


def sample(i: int) -> dict[str, Any]:
    return {
        "__key__": f"{i:03}",
        "png": picture(i),
        "json": {"i": i, "lang": "en" if i % 3 else "de"},
        "cls": i % 5,
        "txt": f"text {i}",
    }


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tars of webdataset's own writer, as a pattern."""
    folder = tmp_path_factory.mktemp("tars")
    with wds.ShardWriter(f"{folder}/%03d.tar", maxcount=COUNT // SHARDS, verbose=0) as writer:
        for i in range(COUNT):
            writer.write(sample(i))
    return f"{folder}/{{000..002}}.tar"


def theirs(urls: str, **options: Any) -> Any:
    return wds.WebDataset(urls, shardshuffle=False, **options)


def plain(value: Any) -> Any:
    return np.asarray(value).tolist() if isinstance(value, (Image.Image, np.ndarray)) else value


def rows(found: Any) -> list[dict[str, Any]]:
    """Return decoded samples as plain values, with `__key__` and the fields of webdataset."""
    return [
        {name: plain(value) for name, value in dict(each).items() if name == "__key__" or not name.startswith("__")}
        for each in found
    ]


def keys(loader: Any) -> list[str]:
    return [key for batch in loader for key in batch["__key__"]]


@TABLE.line('`wds.WebDataset("{000..041}.tar")`', '`sample["__key__"]`', '`.decode("pil")`')
def test_decoded_samples(urls: str) -> None:
    ds = lading.open(urls)
    peer = [*theirs(urls).decode("pil")]
    assert rows(ds) == rows(peer)
    assert [each["__key__"] for each in ds] == [each["__key__"] for each in peer]
    assert plain(ds[5]["png"]) == plain(peer[5]["png"])
    assert [each["png"] for each in ds.with_decode(False)] == [each["png"] for each in theirs(urls)]


@TABLE.line('`.to_tuple("jpg", "json")`', '`.rename(image="jpg")`', "`.slice(1000)`")
def test_columns_and_the_first_samples(urls: str) -> None:
    ds = lading.open(urls)
    peer = [*theirs(urls).decode("pil").to_tuple("png", "json")]
    assert [(plain(each["png"]), each["json"]) for each in ds.select("png", "json")] == [
        (plain(image), about) for image, about in peer
    ]
    assert ds.select("png", "json").columns == ["__key__", "png", "json"]
    renamed = rows(theirs(urls).decode("pil").rename(image="png"))
    assert rows(ds.rename({"png": "image"})) == renamed
    assert rows(ds.limit(10)) == rows(theirs(urls).decode("pil").slice(10))


@TABLE.line("`.select(fn)`", "`.map(fn)`", "`.map_dict(json=fn)`")
def test_functions(urls: str) -> None:
    ds = lading.open(urls)

    def english(each: Any) -> bool:
        return each["json"]["lang"] == "en"

    def doubled(about: dict[str, Any]) -> dict[str, Any]:
        return {"twice": 2 * about["i"]}

    decoded = theirs(urls).decode("pil")
    chosen = rows(theirs(urls).decode("pil").select(english))
    assert rows(ds.filter(english)) == rows(ds.where("json.lang == 'en'")) == chosen
    fn = doubled
    found = rows(ds.map(lambda sample: {"json": fn(sample["json"])}))
    assert found == rows(decoded.map_dict(json=fn))
    merged = theirs(urls).decode("pil").map(lambda sample: {**sample, "n": sample["json"]["i"]})
    assert rows(ds.map(lambda sample: {"n": sample["json"]["i"]})) == rows(merged)


@TABLE.line("`.batched(64)`", "`.shuffle(1000)`")
def test_batches_and_orders(urls: str) -> None:
    ds = lading.open(urls)
    peer = [[*batch[0]] for batch in theirs(urls).to_tuple("__key__").batched(10)]
    plain_order = [key for batch in peer for key in batch]
    assert [batch["__key__"] for batch in lading.loader(ds, 10)] == peer
    assert [batch.num_rows for batch in ds.batches(max_rows=5)] == [5, 3] * SHARDS
    mixed = [each["__key__"] for each in theirs(urls).shuffle(1000)]
    for found in (
        [each["__key__"] for each in ds.shuffle(seed=0)],
        keys(lading.loader(urls, 10, shuffle=True)),
        keys(lading.loader(urls, 10, shuffle="block")),
    ):
        assert sorted(found) == sorted(mixed) == sorted(plain_order)
        assert found != plain_order != mixed


@TABLE.line("`handler=wds.warn_and_continue`")
def test_damaged_shards(urls: str, tmp_path: Path) -> None:
    first, second = (Path(urls.replace("{000..002}", name)).read_bytes() for name in ("000", "001"))
    (tmp_path / "000.tar").write_bytes(first[: len(first) // 2 // 512 * 512 + 300])
    (tmp_path / "001.tar").write_bytes(second)
    pattern = f"{tmp_path}/{{000..002}}.tar"
    peer = [each["__key__"] for each in theirs(pattern, handler=wds.warn_and_continue)]
    with lading.open(pattern, on_bad_shard="skip") as ds:
        whole = [each["__key__"] for each in ds]
    assert whole == [f"{i:03}" for i in range(8, 16)]
    lading.salvage([tmp_path / "000.tar", tmp_path / "001.tar"], tmp_path / "out")
    saved = [each["__key__"] for each in lading.open(tmp_path / "out")]
    assert {*whole} < {*saved} <= {*peer}


@TABLE.line("`handler=wds.warn_and_continue` in `decode`")
def test_damaged_payload(tmp_path: Path) -> None:
    with wds.TarWriter(str(tmp_path / "a.tar")) as writer:
        for i in range(6):
            writer.write({"__key__": f"{i}", "png": b"no picture" if i == 2 else picture(i)})
    peer = [s["__key__"] for s in theirs(f"{tmp_path}/a.tar").decode("rgb8", handler=wds.warn_and_continue)]
    loader = lading.loader(tmp_path / "a.tar", 1, on_error="skip")
    found = keys(loader)
    assert {*found} == {*peer}
    assert len(found) == 6
    assert loader.counts.total() == 1


@TABLE.line("`wds.TarWriter`, `wds.ShardWriter(pattern, maxsize=…)`", "`widsindex create`",
            '`wids.ShardListDataset("index.json")[i]`')  # fmt: skip
def test_writers_and_indexes(tmp_path: Path) -> None:
    """wids is in no release of webdataset of today: its index is one that lading wrote."""
    with wds.ShardWriter(f"{tmp_path}/%03d.tar", maxsize=1500, verbose=0) as writer:
        for i in range(COUNT):
            writer.write(sample(i))
    with lading.writer(tmp_path / "out", format="webdataset", shard_size="20KB") as writer:
        for i in range(COUNT):
            writer.write(sample(i))
    shards = sorted(map(str, (tmp_path / "out").glob("*.tar")))
    assert len(shards) > 1 < len([*tmp_path.glob("*.tar")])
    assert rows(theirs(shards).decode("pil")) == rows(theirs(sorted(map(str, tmp_path.glob("*.tar")))).decode("pil"))
    [index] = (tmp_path / "out").glob("*.json")
    about = json.loads(index.read_text())
    assert [each["nsamples"] for each in about["shardlist"]] == [len([*theirs(path)]) for path in shards]
    assert lading.open(index)[5]["__key__"] == "005"


@TABLE.line("`pipe:` URLs")
def test_no_programs(urls: str) -> None:
    with pytest.raises(UsageError, match="pipe"):
        lading.open(f"pipe:cat {urls}")


@TABLE.line("`pipe:` URLs")
@pytest.mark.soak
def test_programs_of_webdataset(urls: str) -> None:
    first = urls.replace("{000..002}", "000")
    assert len([*theirs(f"pipe:cat {first}")]) == COUNT // SHARDS


# Training


@TABLE.line('`wds.WebDataset(urls, shardshuffle=100).shuffle(1000).decode("rgb8").batched(64)`',
            "`nodesplitter=wds.split_by_node`, `workersplitter=…`", "`resampled=True`, `.with_epoch(n)`")  # fmt: skip
def test_loaders(urls: str) -> None:
    peer = wds.WebDataset(urls, shardshuffle=100).shuffle(1000).decode("rgb8").to_tuple("__key__", "png").batched(6)
    expected = {key: plain(image) for names, images in peer for key, image in zip(names, images, strict=True)}
    loader = lading.loader(urls, 6, shuffle=True)
    for _ in range(2):  # epochs are whole
        found = {key: plain(i) for batch in loader for key, i in zip(batch["__key__"], batch["png"], strict=True)}
        assert found == expected
    ranks = [[*lading.loader(urls, 3, shuffle=True, rank=rank, world_size=4)] for rank in range(4)]
    assert [*map(len, ranks)] == [2] * 4
    assert Counter(key for batches in ranks for key in keys(batches)) == Counter([*expected])
    assert len(keys([*lading.loader(urls, 3, shuffle=True, epoch_size=10)])) == 10


@TABLE.line("`wds.WebLoader(ds, num_workers=4)`")
@pytest.mark.soak
def test_workers(urls: str) -> None:
    peer = [each["__key__"] for each in wds.WebLoader(theirs(urls).decode("rgb8"), num_workers=2, batch_size=None)]
    assert sorted(keys(lading.loader(urls, 6, workers=2))) == sorted(peer)
    assert sorted(keys(lading.loader(urls, 6))) == sorted(peer)


@TABLE.line("`wds.RandomMix([a, b], [0.7, 0.3])`")
def test_mixtures(urls: str) -> None:
    urls_a, urls_b = (urls.replace("{000..002}", names) for names in ("{000..001}", "002"))
    peer = [each["__key__"] for each in wds.RandomMix([theirs(urls_a), theirs(urls_b)], [0.7, 0.3])]
    a, b = lading.open(urls_a), lading.open(urls_b)
    found = keys(lading.loader(lading.mix({"a": (a, 0.7), "b": (b, 0.3)}), 10))
    assert {*peer} | {*found} <= {f"{i:03}" for i in range(COUNT)}
    assert sum(int(key) < 16 for key in found[:20]) == 14


@TABLE.line("resume within an epoch: not possible")
def test_states(urls: str) -> None:
    assert not hasattr(theirs(urls), "state_dict")
    loader = lading.loader(urls, 5, shuffle=True, seed=1)
    whole = keys(loader)
    loader.set_epoch(0)
    loop = iter(loader)
    first = keys([next(loop), next(loop)])
    state = json.loads(json.dumps(loader.state_dict()))
    loader = lading.loader(urls, 5, shuffle=True, seed=1)
    loader.load_state_dict(state)
    assert first + keys(loader) == whole


def test_each_line_is_run() -> None:
    TABLE.check()
