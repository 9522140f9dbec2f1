"""Results of jobs are short text in `print` and in notebooks, and media files too."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import lading
from lading._core.content.media_files import AudioFile, VideoFile


class _Printer:
    """The part of IPython's printer that `_repr_pretty_` is given."""

    def __init__(self) -> None:
        self.shown = ""

    def text(self, text: str) -> None:
        self.shown += text


def test_results_say_a_fact_a_line(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "a", format="jsonl") as out:
        for number in range(30):
            out.write({"n": number})
    ds = lading.open(tmp_path / "a")
    done = ds.where("n > 4").write(tmp_path / "b", format="parquet")
    lines = str(done).splitlines()
    assert lines[0] == "ConvertSummary"
    assert "  samples                 25" in lines
    assert any(line.startswith("  filtered ") for line in lines)
    assert not any(line.startswith("  digest") for line in lines)  # it was not verified
    assert max(map(len, lines)) < 160
    different = lading.diff(tmp_path / "a", tmp_path / "b")
    lines = str(different).splitlines()
    assert lines[0] == "DiffResult: different"
    assert lines[1].startswith("  A                       30 samples, digest ")
    assert lines[3:5] == ["  differing               30", "  sample 0                (no key): n"]
    assert lines[-1] == "                          … and 20 more"
    assert str(lading.diff(tmp_path / "a", tmp_path / "a")).startswith("DiffResult: equal\n")
    printer = _Printer()
    different._repr_pretty_(printer, cycle=False)
    assert printer.shown == str(different)
    assert str(lading.verify(tmp_path / "b", deep=True)).startswith("VerifyResult: ok\n")
    assert str(lading.clean(tmp_path / "b")).split() == ["Cleaned", "removed", "none"]
    (shard,) = (tmp_path / "b").glob("*.parquet")
    shard.write_bytes(shard.read_bytes()[:-9])
    assert str(lading.verify(tmp_path / "b")).startswith("VerifyResult: not ok\n")


def test_print_of_media_is_short() -> None:
    held = io.BytesIO()
    with wave.open(held, "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(8000)
        file.writeframes(bytes(16_000))
    clip = AudioFile(held.getvalue())
    assert str(clip) == f"{clip}" == repr(clip) == "<AudioFile wav, 1.00 s, 15.7 KB>"
    assert str(VideoFile(b"x" * 2048)) == "<VideoFile 2.0 KB>"
