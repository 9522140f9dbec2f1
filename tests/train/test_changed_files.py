"""Files that somebody writes to while a loader reads them: an error that names file and sample, and no other data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lading
from lading.errors import CorruptShard

_SAMPLES, _BYTES = 40, 20_000

# The second and the third batch are read at once. The file changes when the second one is made.
_SCRIPT = """
import json, os, sys, threading, time
import lading

source, path, how, workers = sys.argv[1:]

def reads():
    # The thread that reads ahead waits for more to do in this function.
    [ident] = [each.ident for each in threading.enumerate() if each.name.startswith("lading-read")]
    return sys._current_frames()[ident].f_code.co_name != "run"

def transform(sample):
    if sample["__key__"] == "004":
        while reads():
            time.sleep(0.01)
        status = os.stat(path)
        if how == "cut":
            os.truncate(path, 4096)
        else:
            with open(path, "r+b") as file:
                file.seek(status.st_size // 2)
                file.write(b"other")
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    return sample

loader = lading.loader(source, 4, transform=transform, threads=1, workers=int(workers), decode=False)
seen = []
try:
    for batch in loader:
        seen += [[key, value == bytes([int(key)]) * 20000] for key, value in zip(batch["__key__"], batch["bin"])]
except lading.errors.CorruptShard as error:
    print(json.dumps([seen, error.message, error.file, error.row, error.found]))
"""


@pytest.mark.mechanism("files that change under a loader")
@pytest.mark.cases(1)
@pytest.mark.parametrize(
    "name, how, workers",
    [
        ("webdataset", "cut", 0),
        ("webdataset", "changed", 0),
        ("mds", "cut", 0),
        ("mds", "changed", 1),
        ("arrow", "cut", 0),
        ("arrow", "changed", 0),
    ],
)
def test_a_file_that_changes_is_an_error_of_its_next_sample(name: str, how: str, workers: int, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format=name) as writer:
        for i in range(_SAMPLES):
            writer.write({"__key__": f"{i:03}", "bin": bytes([i]) * _BYTES})
    [path] = [path for path in (tmp_path / "in").iterdir() if path.suffix in (".tar", ".mds", ".arrow")]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path / "in"), str(path), how, str(workers)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    seen, message, file, row, found = json.loads(done.stdout)
    assert seen == [[f"{i:03}", True] for i in range(4)]
    assert (message, file, row) == ("the file changed while it was open", str(path), 4)
    assert found == "4096 bytes" if how == "cut" else found.startswith("20")


_WHILE_DECODING = """
import os, sys, time
import lading

def decode(value):
    if value[0] == 5:
        os.truncate(sys.argv[2], 4096)
        time.sleep(0.05)
    return len(value)

try:
    for batch in lading.loader(sys.argv[1], 8, threads=1, decode={"bin": decode}):
        print(batch["bin"].tolist())
except lading.errors.CorruptShard as error:
    print(error.message, error.found)
"""


@pytest.mark.soak
@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow"])
def test_a_file_that_is_cut_while_its_samples_are_decoded_is_an_error(name: str, tmp_path: Path) -> None:
    """Values are copied when they are decoded: to touch what the file has lost would end the process."""
    with lading.writer(tmp_path / "in", format=name) as writer:
        for i in range(_SAMPLES):
            writer.write({"__key__": f"{i:03}", "bin": bytes([i]) * _BYTES})
    [path] = [path for path in (tmp_path / "in").iterdir() if path.suffix in (".tar", ".mds", ".arrow")]
    done = subprocess.run(
        [sys.executable, "-c", _WHILE_DECODING, str(tmp_path / "in"), str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "the file changed while it was open 4096 bytes\n"), done


@pytest.mark.parametrize("name", ["webdataset", "mds", "arrow"])
def test_a_batch_whose_file_was_written_while_it_was_decoded_is_an_error(name: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format=name) as writer:
        for i in range(_SAMPLES):
            writer.write({"__key__": f"{i:03}", "bin": bytes([i]) * _BYTES})
    [path] = [path for path in (tmp_path / "in").iterdir() if path.suffix in (".tar", ".mds", ".arrow")]
    stored = path.read_bytes()

    def decode(value: bytes) -> int:
        if value[0] == 5:
            with open(path, "r+b") as file:
                file.write(stored.replace(bytes([6]) * 100, bytes([66]) * 100))
            os.utime(path, ns=(0, 0))
        return value[0]

    batches = iter(lading.loader(tmp_path / "in", 8, threads=1, decode={"bin": decode}))
    with pytest.raises(CorruptShard, match="the file changed while it was open"):
        next(batches)


@pytest.mark.parametrize("name", ["webdataset", "mds"])
def test_only_large_values_are_left_in_the_files_that_may_change(name: str, tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format=name) as writer:
        for i in range(_SAMPLES):
            writer.write({"large": bytes([i]) * _BYTES, "small": bytes([i]) * 40})
    loader = lading.loader(tmp_path / "in", 4, columns=["large", "small"], decode=False)
    [[rows]], _ = loader.reader(0).rows_and_bytes([np.arange(4)])
    assert [rows.table.column_names[i] for i in rows.mapped] == ["large"]
    assert rows.table["small"].to_pylist() == [bytes([i]) * 40 for i in range(4)]
    [table] = lading.loader(tmp_path / "in", _SAMPLES, columns=["large", "small"], collate="arrow")
    assert table.schema.field("small").type == table.schema.field("large").type
