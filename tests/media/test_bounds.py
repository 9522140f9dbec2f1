"""Memory is bounded by the look-ahead, and a writer that is killed leaves nothing that looks finished."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading._core.storage.base import unfinished
from lading.media import MediaReader, MediaWriter
from media import document, without_bytes

_MB = 1 << 20
_SIZE = 4 * _MB


def _documents(count: int) -> Iterator[dict[str, Any]]:
    for at in range(count):
        yield document(bytes([at]) * _SIZE, name=str(at))


def _peak(documents: Iterator[Any]) -> int:
    tracemalloc.start()
    for _ in documents:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("codec", ["zstd", "none"])
def test_memory_is_bounded_by_the_look_ahead(tmp_path: Path, workers: int, codec: str) -> None:
    count = 40
    written: list[dict[str, Any]] = []

    def run() -> Iterator[Any]:
        for doc in MediaWriter(tmp_path, workers=workers, codec=codec).run(_documents(count)):
            written.extend(without_bytes([doc]))
            yield doc

    ahead = 1 if workers == 1 else 2 * workers
    # Of each document ahead the content and, plain, a copy; what is being written; what the consumer holds.
    assert _peak(run()) < (2 * ahead + 5) * _SIZE
    for ordered in (True, False):
        reader = MediaReader(tmp_path, workers=workers, preserve_order=ordered, codec=codec)
        assert _peak(reader.run({**doc, "media": [dict(doc["media"][0])]} for doc in written)) < (ahead + 6) * _SIZE
    assert reader.stats.payload_bytes == count * _SIZE


_WRITE = """
import sys
from lading.media import MediaWriter

with MediaWriter(sys.argv[1], max_file_size=3 << 20, codec="none") as writer:
    for _ in range(10):
        writer.write({"media_bytes": bytes(1 << 20)})
    print("written", flush=True)
    sys.stdin.read()
"""


@pytest.mark.mechanism("a writer of media that is killed")
def test_a_killed_writer_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    (tmp_path / "000_00000.bin").write_bytes(b"what was there")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _WRITE, str(tmp_path)], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        child.kill()
    shown = [path for path in tmp_path.iterdir() if not unfinished(path.name)]
    assert [path.name for path in shown] == ["000_00000.bin"]
    assert shown[0].read_bytes() == b"what was there"
