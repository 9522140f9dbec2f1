"""Decoding processes: they can only compute, and hostile bytes cost little and end as text."""

from __future__ import annotations

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from PIL import Image

from documents import picture
from hostile_media import CASES
from lading._core.view.drawers import Drawers
from processes import children
from sound_and_video import sound_file, video_file

_TRIES = """
import os, socket, subprocess, sys, threading
from lading._core.view.confined import confine
confine(1 << 30)
tries = {
    "socket": lambda: socket.socket(), "pair": lambda: socket.socketpair(), "fork": lambda: os.fork(),
    "program": lambda: subprocess.run(["true"]), "kill": lambda: os.kill(os.getppid(), 0),
    "write": lambda: open("made", "w"), "append": lambda: open("there", "a"), "remove": lambda: os.unlink("there"),
    "rename": lambda: os.rename("there", "made"), "folder": lambda: os.mkdir("made"),
    "memory": lambda: bytearray(2 << 30), "read": lambda: open("there").read(),
    "thread": lambda: threading.Thread(target=int).start(),
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name, "done")
    except (OSError, MemoryError) as error:
        print(name, type(error).__name__)
"""


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can refuse calls of a process")
def test_a_confined_process_can_only_compute(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("text")
    found = subprocess.run(
        [sys.executable, "-c", _TRIES], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    outcome = dict(line.split() for line in found.splitlines())
    assert {name for name, end in outcome.items() if end == "done"} == {"read", "thread"}
    assert {end for name, end in outcome.items() if name not in ("read", "thread", "memory")} == {"PermissionError"}
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.fixture(scope="module")
def drawers() -> Iterator[Drawers]:
    made = Drawers(1)
    yield made
    made.close()


def _peak_mb(stop: Event, found: list[int]) -> None:
    """Watch the memory of the decoding process."""
    while not stop.wait(0.02):
        for pid in children(_own_pid()):
            with suppress(OSError, IndexError):
                found.append(int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) >> 10)


def _own_pid() -> int:
    return int(Path("/proc/self").readlink().name)


@pytest.mark.soak
@pytest.mark.parametrize("name", CASES)
def test_hostile_bytes_end_as_text_and_the_next_picture_is_drawn(drawers: Drawers, name: str) -> None:
    what, made = CASES[name]
    data, stop, peaks = made(), Event(), [0]
    watch = Thread(target=_peak_mb, args=(stop, peaks))
    watch.start()
    began = time.monotonic()
    drawn = drawers.draw(what, 256, name, lambda: data)
    seconds = time.monotonic() - began
    stop.set()
    watch.join()
    assert len(drawn.picture) < 100_000
    assert drawn.picture or {"error", "why", "arrays", "peaks"} & set(drawn.facts)
    assert "0x" not in str(drawn.facts.get("error"))
    assert (seconds < 20, max(peaks) < 1500) == (True, True), (seconds, max(peaks))
    assert drawers.draw("thumbnail", 16, f"after {name}", lambda: picture(64, 48)).picture


@pytest.mark.soak
def test_sounds_arrays_and_videos_are_drawn(drawers: Drawers) -> None:
    sound = np.zeros((12_000, 2))
    sound[6_000:6_020, 1] = 0.5
    facts = drawers.draw("waveform", 6, "sound", lambda: sound_file(sound)).facts
    assert (facts["peaks"], facts["seconds"]) == ([0, 0, 0, 0.5, 0, 0], 0.75)
    values = np.arange(48.0).reshape(6, 8)
    made = io.BytesIO()
    np.save(made, values)
    drawn = drawers.draw("array", 8, "array", made.getvalue)
    assert {name: drawn.facts[name] for name in ("shape", "min", "max")} == {
        "shape": [6, 8],
        "min": "0.0",
        "max": "47.0",
    }
    with Image.open(io.BytesIO(drawn.picture)) as image:
        assert (image.size, image.getpixel((0, 0)), image.getpixel((7, 5))) == ((8, 6), 0, 255)
    many = io.BytesIO()
    np.savez_compressed(many, a=values, b=np.zeros(3, np.uint8))
    assert drawers.draw("array", 8, "arrays", many.getvalue).facts["arrays"] == [
        {"name": "a", "dtype": "float64", "shape": [6, 8]}, {"name": "b", "dtype": "uint8", "shape": [3]},
    ]  # fmt: skip
    with Image.open(io.BytesIO(drawers.draw("poster", 32, "video", lambda: video_file(30)).picture)) as image:
        assert (image.size, image.getpixel((9, 9))[0]) == ((32, 24), pytest.approx(40, abs=16))
