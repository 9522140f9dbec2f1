"""Configs of repositories on Hugging Face's hub: README.md says which files belong to which config and split."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lading
from lading._core.cli.main import app
from lading._core.dataset.source.hub_configs import HubConfig, read_configs
from lading._core.storage.base import write_file
from lading._core.storage.memory import MemoryStore
from lading._core.storage.stores import Stores
from lading.errors import DataError, SeveralSplits, SourceNotFound, UnknownFormat, UsageError
from lading.testing import CountingStore
from numbered import read_numbers as read

NAMES = [f"{config}/{split}-0000{n}.parquet" for config in ("de", "en") for split in ("test", "train") for n in "01"]
"""The file at number n holds n: de test 0 1, de train 2 3, en test 4 5, en train 6 7."""
TWO = """configs:
- config_name: en
  data_files:
  - {split: train, path: en/train-*}
  - split: test
    path: [en/test-00001.parquet, "en/test-00000.*"]
- config_name: de
  data_files: de/**
"""


def repository(root: Path, yaml: str, names: list[str] = NAMES) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"n": [number]}), root / name)
    (root / "README.md").write_text(f"---\nlicense: mit\n{yaml}---\n# A dataset\n\n---\nconfigs: of prose\n---\n")
    return root


def test_a_config_is_chosen_by_its_name(tmp_path: Path) -> None:
    root = repository(tmp_path, TWO)
    with pytest.raises(UsageError, match=r"several configs; expected one of them, found en, de\. .*config='en'"):
        lading.open(root)
    assert read(root, config="en", split="train") == [6, 7]
    assert read(root, config="en", split="test") == [5, 4]  # in the order of the patterns
    assert read(root, config="de") == read(root, config="de", split="train") == [0, 1, 2, 3]
    with pytest.raises(SeveralSplits, match="train, test"):
        lading.open(root, config="en")
    with pytest.raises(UsageError, match="no such config; expected en, de, found fr"):
        lading.open(root, config="fr")
    with pytest.raises(SourceNotFound, match="no such split"):
        lading.open(root, config="de", split="test")


def test_other_files_are_counted(tmp_path: Path) -> None:
    root = repository(tmp_path, TWO)
    told = CliRunner().invoke(app, ["info", str(root), "--config", "en", "--split", "train", "--json"])
    assert "files outside the config 'en', left out" in told.stdout
    assert lading.open(root, config="de").counts == {"files outside the config 'de', left out": 4}


@pytest.mark.parametrize("default", ["default: true", "config_name: default"])
def test_one_config_and_the_default_are_taken_without_a_name(tmp_path: Path, default: str) -> None:
    named = default if default.startswith("config") else f"config_name: de\n  {default}"
    root = repository(tmp_path, f"configs:\n- config_name: en\n  data_files: en/*\n- {named}\n  data_files: de/test*\n")
    assert read(root) == [0, 1]
    one = repository(tmp_path / "one", "configs:\n- config_name: en\n  data_files: en/test*\n")
    assert read(one) == [4, 5]


def test_the_folder_of_a_config_and_the_names_in_it(tmp_path: Path) -> None:
    root = repository(tmp_path, "configs:\n- {config_name: 2024, data_dir: de}\n- {config_name: b, data_dir: ./en/}\n")
    assert read(root, config="2024", split="train") == [2, 3]
    assert read(root, config="b", split="test") == [4, 5]
    with pytest.raises(SeveralSplits, match="train, test"):
        lading.open(root, config="b")
    both = "configs:\n- {config_name: a, data_dir: de, data_files: {train: 'train*', dev: ['test-*1.parquet']}}\n"
    root = repository(tmp_path / "both", both)
    assert read(root, split="dev") == [1]


def test_a_folder_named_like_a_split_is_no_short_cut(tmp_path: Path) -> None:
    names = ["train/de.parquet", "train/en.parquet", "test/en.parquet"]
    yaml = "configs:\n- {config_name: en, data_files: {train: train/en*, test: test/en*}}\n"
    root = repository(tmp_path / "in", yaml, names)
    assert read(root, split="train") == [1]
    lading.convert(root, tmp_path / "out", format="parquet", progress=False)
    assert (read(tmp_path / "out/train"), read(tmp_path / "out/test")) == ([1], [2])


def test_files_that_no_pattern_of_a_folder_would_find(tmp_path: Path) -> None:
    root = repository(tmp_path, "configs:\n- config_name: a\n  data_files: rows.json\n", ["x.parquet"])
    (root / "rows.json").write_text('[{"n": 5}]')
    assert read(root) == [5]


def test_the_named_format_chooses_its_files_of_a_config(tmp_path: Path) -> None:
    root = repository(tmp_path, "configs:\n- {config_name: a, data_files: '*', sep: ;}\n", ["x.parquet"])
    (root / "y.csv").write_text("n\n7\n")
    with pytest.raises(UnknownFormat, match="several formats; found 1 csv, 1 parquet"):
        lading.open(root)
    assert read(root, format="parquet") == [0]
    assert lading.open(root, format="csv").counts["options of the config, not applied: sep"] == 1
    with pytest.raises(SourceNotFound, match="no shard of the format webdataset"):
        lading.open(root, format="webdataset")


def test_info_of_several_splits_says_what_to_type(tmp_path: Path) -> None:
    root = repository(tmp_path, TWO)
    told = CliRunner().invoke(app, ["info", str(root), "--config", "en"]).stdout
    assert "--config en --split train" in " ".join(told.split())


def test_a_wide_pattern_takes_shards_only(tmp_path: Path) -> None:
    root = repository(tmp_path, "configs:\n- {config_name: a, data_files: '**'}\n", ["x.parquet", "b/y.parquet"])
    for name in ("LICENSE", "b/notes.json", ".gitattributes"):
        (root / name).write_text("{}")
    assert read(root) == [1, 0]
    assert lading.open(root).counts == {"files of other formats, left out": 2}


def test_facts_of_lerobot_are_no_data_of_a_config(tmp_path: Path) -> None:
    names = ["data/chunk-000/file-000.parquet", "meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"]
    root = repository(tmp_path, "configs:\n- config_name: default\n  data_files: data/*/*.parquet\n", names)
    (root / "meta/info.json").write_text('{"codebase_version": "v3.0"}')
    assert read(root) == [0]


def test_what_is_no_config(tmp_path: Path) -> None:
    root = repository(tmp_path / "plain", "pretty_name: configs\n", ["a.parquet", "b.parquet"])
    assert read(root) == [0, 1]
    for source in (root, root / "a.parquet", f"{root}/*.parquet"):
        with pytest.raises(UsageError, match="config"):
            lading.open(source, config="en")
    lading.open(root).write(tmp_path / "own", format="parquet", progress=False)
    (tmp_path / "own/README.md").write_text(f"---\n{TWO}---\n")
    assert read(tmp_path / "own") == [0, 1]  # its manifest holds
    with pytest.raises(UsageError, match="no configs"):
        lading.open(tmp_path / "own", config="en")


def test_a_pattern_without_files_is_an_error(tmp_path: Path) -> None:
    root = repository(tmp_path, "configs:\n- config_name: a\n  data_files: [en/train*, fr/*]\n")
    with pytest.raises(SourceNotFound, match=r"README.md: no file matches.* fr/\*"):
        lading.open(root)


@pytest.mark.parametrize(
    "configs",
    ["en", "[en]", "[{data_files: x}]", "[{config_name: a, data_files: 3}, {config_name: b, data_files: [[]]}]",
     "[{config_name: a, data_files: ../x}]", "[{config_name: a, data_files: 'https://a/b'}]",
     "[{config_name: a, data_dir: /etc}]", "[{config_name: a, data_files: [{path: []}]}]", "[", "{a: *b}",
     "[{config_name: a, data_files: [{split: [], path: a}]}]"],
)  # fmt: skip
def test_damaged_lists_name_the_file(configs: str) -> None:
    with pytest.raises(DataError, match=r"^r/README\.md"):
        read_configs(f"---\nconfigs: {configs}\n---\n".encode(), "r/README.md")


def test_lists_that_are_bombs_end_at_once(tmp_path: Path) -> None:
    deep = ["configs: " + "[" * 100_000, "configs:\n- " + "- " * 100_000]
    letters = "abcdefgh"
    lists = [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in pairwise(letters)]
    wide = "\n".join(["a: &a [x]", *lists, "configs: *h"])
    for text in (*deep, wide):
        with pytest.raises(DataError, match=r"^r/README\.md") as told:
            read_configs(f"---\n{text}\n---\n".encode(), "r/README.md")
        assert len(str(told.value)) < 300
    root = repository(tmp_path, "", ["a.parquet"])
    (root / "README.md").unlink()
    (root / "README.md").symlink_to(tmp_path / "nothing")
    assert read(root) == [0]


def test_front_matter_as_the_hub_takes_it() -> None:
    text = "\n---\r\nconfigs:\r\n- config_name: no\r\n  data_files: 'a: b.csv'\r\n---\r\n"
    assert read_configs(text.encode(), "") == [HubConfig("no", {"train": ["a: b.csv"]})]
    for text in (
        "configs: [",
        "# Title\n---\nconfigs: [\n---\n",
        "---\nother: [\n---\n",
        "",
        "---\nconfigs: [\n",
        "---\nconfigs:\n---\n",
    ):
        assert read_configs(text.encode(), "") == []


def test_requests_to_a_remote_folder() -> None:
    inner, plain = MemoryStore(), MemoryStore()
    for name in NAMES:
        for store in (inner, plain):
            write_file(store, f"memory://hub/{name}", [b"PAR1"])
    write_file(inner, "memory://hub/README.md", [f"---\n{TWO}---\n".encode()])
    counting, without = CountingStore(inner), CountingStore(plain)
    with pytest.raises(UsageError, match="several configs"):
        lading.open("memory://hub", stores=Stores({"memory://": counting}))
    with pytest.raises(SeveralSplits):
        lading.open("memory://hub", stores=Stores({"memory://": without}))
    assert counting.requests["walk"] == without.requests["walk"]
    assert counting.requests["head"] == without.requests["head"]
    assert counting.requests["get_ranges"] == without.requests["get_ranges"] + 1


@pytest.mark.interop
def test_datasets_itself_reads_these_rows(tmp_path: Path) -> None:
    from datasets import load_dataset

    root = repository(tmp_path / "hub", TWO.replace("config_name: de", "config_name: de\n  default: true"))
    for config, split in (("en", "train"), ("en", "test"), ("de", "train"), (None, "train")):
        theirs = load_dataset(str(root), config, split=split, cache_dir=str(tmp_path / "cache"))
        assert read(root, config=config, split=split) == theirs["n"][:]


def photos(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode())


def keys(root: Path, **opening: str) -> list[str]:
    with lading.open(root, **opening) as ds:  # type: ignore[arg-type]
        return [row["__key__"] for row in ds.with_decode(False)]


def test_a_config_of_loose_files(tmp_path: Path) -> None:
    photos(tmp_path, "big/cat/0.jpg", "big/dog/1.jpg", "small/cat/2.jpg", "small/dog/3.jpg", "other/4.jpg")
    (tmp_path / "README.md").write_text(
        "---\nconfigs:\n- config_name: big\n  data_dir: big\n- config_name: small\n  drop_labels: false\n"
        "  data_files:\n  - {split: train, path: 'small/cat/*'}\n  - {split: test, path: 'small/dog/**'}\n---\n"
    )
    with pytest.raises(UsageError, match="expected one of them, found big, small"):
        lading.open(tmp_path)
    assert keys(tmp_path, config="big") == ["cat/0", "dog/1"]
    with pytest.raises(SeveralSplits):
        keys(tmp_path, config="small")
    for format_name in ({}, {"format": "files"}):
        assert keys(tmp_path, config="small", split="test", **format_name) == ["dog/3"]
    found = lading.open(tmp_path, config="small", split="train").counts
    assert found["files outside the config 'small', left out"] == 3
    assert found["options of the config, not applied: drop_labels"] == 1


def test_lading_wrote_what_lies_next_to_a_card(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with lading.writer(out, format="webdataset") as writer:
        writer.write({"__key__": "a", "txt": "text"})
    (out / "README.md").write_text("---\nconfigs:\n- config_name: x\n  data_files: none/*\n---\n")
    assert keys(out) == ["a"]
