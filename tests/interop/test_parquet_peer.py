"""Hugging Face datasets reads what lading made of its own Parquet files: features, values, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lading._core.formats.base import Scan, ShardFile
from lading._core.formats.parquet.format import FORMAT
from lading._core.storage.local import LocalStore

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


def test_features_and_values_survive(datasets: Any, tmp_path: Path) -> None:
    features = datasets.Features(
        {
            "image": datasets.Image(decode=False),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "tokens": datasets.List(datasets.Value("int32")),
            "text": datasets.Value("large_string"),
            "when": datasets.Value("timestamp[s]"),
            "raw": datasets.Value("binary"),
        }
    )
    noise = np.random.default_rng(3).bytes(100_000)
    rows = {
        "image": [{"bytes": noise[i : i + 3000], "path": f"{i}.jpg"} for i in range(30)],
        "label": [i % 2 for i in range(30)],
        "tokens": [list(range(i)) for i in range(30)],
        "text": [f"text {i}" for i in range(30)],
        "when": [1_600_000_000 + i for i in range(30)],
        "raw": [noise[i * 7 : i * 7 + i] for i in range(30)],
    }
    theirs = datasets.Dataset.from_dict(rows, features=features)
    theirs.to_parquet(str(tmp_path / "theirs.parquet"), batch_size=7)

    store = LocalStore()
    reader = FORMAT.open(ShardFile(store, str(tmp_path / "theirs.parquet")), FORMAT.read_options({}))
    sink = store.put_stream(str(tmp_path / "ours.parquet"))
    writer = FORMAT.create([sink], reader.schema(), FORMAT.write_options({"row_group_bytes": 20_000}))
    for batch in reader.batches(Scan(max_rows=10, max_bytes=1 << 20)):
        writer.write(batch)
    writer.close()
    sink.close()
    reader.close()

    read, again = (
        datasets.Dataset.from_parquet(str(tmp_path / name), cache_dir=str(tmp_path / f"cache of {name}"))
        for name in ("ours.parquet", "theirs.parquet")
    )
    # Payload is large_binary with lading, whatever it was.
    assert read.features == {**again.features, "raw": datasets.Value("large_binary")}
    assert read.to_list() == again.to_list() == theirs.to_list()
