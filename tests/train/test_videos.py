"""Frames of videos, next to what PyAV decodes from the first frame on."""

from __future__ import annotations

import io
import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lading
from lading._core.train.sounds import sound
from lading._core.train.videos import frames
from lading.errors import DataError, UsageError
from sound_and_video import sound_file, video_file


@pytest.mark.parametrize("kind, codec", [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("mpegts", "mpeg4"),
                                         ("webm", "libvpx")])  # fmt: skip
@pytest.mark.parametrize(
    "options", [{"count": 1}, {"count": 3}, {"count": 8}, {"count": 40}, {"every": 1}, {"every": 9}]
)
def test_frames_are_those_of_a_decoder_from_the_first_on(kind: str, codec: str, options: dict[str, int]) -> None:
    av = pytest.importorskip("av")
    data = video_file(30, kind, codec)
    with av.open(io.BytesIO(data)) as container:
        whole = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(whole) == 30
    numbers = range(0, 30, options["every"]) if "every" in options else np.linspace(0, 29, options["count"]).round()
    found = frames(**options)(data)
    assert found.dtype == np.uint8
    assert np.array_equal(found, [whole[int(i)] for i in numbers])


def test_frames_of_a_size_and_a_short_video() -> None:
    found = frames(count=4, image_size=(12, 16))(video_file(2))
    assert found.shape == (4, 12, 16, 3)
    assert (found[0] == found[1]).all()
    assert (found[2] == found[3]).all()


def test_frames_stand_upright() -> None:
    """The matrix of a track turns its frames clockwise (ISO 14496-12, 8.3.2)."""
    av = pytest.importorskip("av")
    data = io.BytesIO()
    half = np.zeros((48, 64, 3), np.uint8)
    half[:24] = 255  # the upper half is white
    with av.open(data, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(half, format="rgb24")))
        container.mux(stream.encode())
    one, whole = 1 << 16, 1 << 30
    stored, turned = (
        struct.pack(">9i", *matrix)
        for matrix in ((one, 0, 0, 0, one, 0, 0, 0, whole), (0, one, 0, -one, 0, 0, 0, 0, whole))
    )
    track = data.getvalue().index(b"tkhd")
    at = data.getvalue().index(stored, track)
    file = data.getvalue()[:at] + turned + data.getvalue()[at + len(stored) :]
    for size, shape in ((None, (64, 48)), ((40, 20), (40, 20))):
        [found] = frames(count=1, image_size=size)(file)
        assert found.shape == (*shape, 3)
        middle = shape[1] // 2
        assert found[:, middle + 4 :].mean() > 200
        assert found[:, : middle - 4].mean() < 50


def test_frames_of_what_is_no_video() -> None:
    pytest.importorskip("av")
    for data in (b"", b"no video", video_file(30)[:400]):
        with pytest.raises(DataError, match="video"):
            frames(count=2)(data)
    sound = io.BytesIO()
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(sound, np.zeros(800), 8000, format="WAV")
    with pytest.raises(DataError, match="the file has no video"):
        frames(count=2)(sound.getvalue())


_TIMES = [40 * i + (1000 if i > 12 else 0) + 7 * (i % 3) for i in range(30)]  # milliseconds; a gap of one second


def _by_hand(data: bytes, start: float, stop: float | None) -> list[tuple[float, Any]]:
    """The frames that are shown in a part of a video, with the seconds at which they begin."""
    with pytest.importorskip("av").open(io.BytesIO(data)) as container:
        whole = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in container.decode(video=0)]
    ends = [time for time, _ in whole[1:]] + [math.inf]
    return [
        (time - whole[0][0], pixels)
        for (time, pixels), end in zip(whole, ends, strict=True)
        if end - whole[0][0] > start + 1e-9 and (stop is None or time - whole[0][0] < stop - 1e-9)
    ]


_VIDEOS = {
    "mp4": lambda: video_file(30),
    "uneven times": lambda: video_file(30, "matroska", "libx264", times=_TIMES),
    "from 1.4 s on": lambda: video_file(30, "mpegts", "mpeg2video"),
    "no times": lambda: video_file(30, "avi"),
}


@pytest.mark.parametrize("video", _VIDEOS)
def test_frames_of_a_window_are_those_that_are_shown_in_it(video: str) -> None:
    data = _VIDEOS[video]()
    for start, stop in ((0, 0.5), (0.55, 1.1), (1.1, 1.35), (0.72, None)):
        shown = [pixels for _, pixels in _by_hand(data, start, stop)]
        for options in ({"every": 1}, {"every": 3}, {"count": len(shown)}, {"count": 2}, {"count": 9}):
            numbers = np.linspace(0, len(shown) - 1, options.get("count", 0)).round()
            wanted = shown[:: options["every"]] if "every" in options else [shown[int(i)] for i in numbers]
            assert np.array_equal(frames(**options, start=start, stop=stop)(data), wanted)


@pytest.mark.parametrize("video", _VIDEOS)
@pytest.mark.parametrize("fps", [4, 10, 12.5])
def test_frames_a_second_are_those_that_are_shown_at_each_time(video: str, fps: float) -> None:
    data = _VIDEOS[video]()
    found = frames(fps=fps, start=0.3, stop=1.3)(data)
    wanted = [_by_hand(data, 0.3 + k / fps, None)[0][1] for k in range(math.ceil(fps))]
    assert np.array_equal(found, wanted)


def test_windows_of_some_seconds() -> None:
    """Three seconds of 10 frames each: windows of one second may begin at 0 to 2 seconds."""
    data = video_file(30)
    whole = frames(every=1)(data)
    assert np.array_equal(frames(count=10, start=0.5, seconds=1)(data), whole[5:15])
    for at, first in (("start", 0), ("middle", 10)):
        assert np.array_equal(frames(count=10, seconds=1, at=at)(data), whole[first : first + 10])
    found = frames(count=10, seconds=1, clips=3)(data)
    assert np.array_equal(found, [whole[first : first + 10] for first in (0, 10, 20)])
    found = frames(fps=5, seconds=1, clips=5, image_size=(12, 16))(data)
    assert found.shape == (5, 5, 12, 16, 3)
    assert np.array_equal(frames(fps=5, seconds=1, clips=1)(data), [whole[0:10:2]])


def test_random_windows_repeat_by_their_generator() -> None:
    data = video_file(30)
    function = frames(fps=10, seconds=1, at="random")
    greys = [*frames(every=1)(data).mean(axis=(1, 2, 3))]
    firsts = [greys.index(function(data, np.random.default_rng(seed))[0].mean()) for seed in range(60)]
    assert set(firsts) <= {*range(21)}
    assert len({*firsts}) > 10
    clips = frames(fps=10, seconds=1, at="random", clips=4)
    found = clips(data, np.random.default_rng(1))
    assert np.array_equal(found, clips(data, np.random.default_rng(1)))
    assert sorted(each.mean() for each in found) == [each.mean() for each in found]
    with pytest.raises(UsageError, match="needs a generator"):
        function(data)


def test_a_video_that_claims_to_last_for_years_takes_no_memory() -> None:
    data = video_file(3, "matroska", "libx264", times=[0, 40, 1_000_000_000])
    assert len(frames(fps=10, stop=1)(data)) == 10
    with pytest.raises(DataError, match=r"repeated more than 100 times.*3 frames in 1,000,000 seconds"):
        frames(fps=10)(data)


def test_a_video_that_is_shorter_is_an_error_or_repeats_its_last_frame() -> None:
    data = video_file(10)
    whole = frames(every=1)(data)
    longer = [*whole, *[whole[-1]] * 10]
    for options in ({"seconds": 2.0}, {"start": 0.0, "stop": 2.0}):
        with pytest.raises(DataError, match=r"shorter than the window.*1\.000 seconds.*pad=True"):
            frames(count=20, **options)(data)
        assert np.array_equal(frames(count=20, pad=True, **options)(data), longer)
        assert np.array_equal(frames(fps=10, pad=True, **options)(data), longer)
        assert np.array_equal(frames(every=2, pad=True, **options)(data), longer[::2])
    with pytest.raises(DataError, match="begins behind the video"):
        frames(count=1, start=1)(data)


def test_a_window_takes_numbers_of_numpy() -> None:
    data = video_file(30)
    found = frames(count=np.int32(4), start=np.float32(0.5), stop=np.float32(2))(data)
    assert np.array_equal(found, frames(count=4, start=0.5, stop=2)(data))
    assert np.array_equal(frames(fps=np.float32(4))(data), frames(fps=4)(data))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"count": 0},
        {"count": True},
        {"every": 0},
        {"count": 2, "every": 2},
        {"count": 8, "fps": 4},
        {"fps": 0},
        {"fps": "4"},
    ],
)
def test_wrong_numbers_of_frames_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"count or every|frames a second"):
        frames(**options)


@pytest.mark.parametrize(
    "options, match",
    [
        ({"stop": 2, "seconds": 1}, "or a stop"),
        ({"clips": 2, "start": 2, "seconds": 1}, "clips is a number of windows"),
        ({"at": "random"}, "with seconds="),
        ({"clips": 2}, "clips is a number of windows"),
        ({"clips": 0, "seconds": 1}, "clips is a number of windows"),
        ({"clips": 2, "seconds": 1, "at": "middle"}, "clips is a number of windows"),
        ({"start": 1, "pad": True}, "pad fills up windows"),
    ],
)
def test_wrong_windows_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        frames(count=2, **options)


@pytest.mark.parametrize("options", [{"count": 2.5}, {"every": "8"}, {"count": 2, "image_size": 0},
                                     {"count": 2, "image_size": (2,)}])  # fmt: skip
def test_wrong_values_of_frames_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a number of at least 1"):
        frames(**options)


def test_random_windows_of_a_loader(tmp_path: Path) -> None:
    """They are the same with any ranks and stops, differ where a sample comes again, and cut sound at the same time."""
    seconds = np.arange(3000, dtype=np.float32) / 3000
    video, ramp = video_file(30), sound_file(seconds, 1000, "WAV", "FLOAT")
    greys = frames(every=1)(video).mean(axis=(1, 2, 3))
    with lading.writer(tmp_path / "clips", format="webdataset") as writer:
        for i in range(8):
            writer.write({"__key__": f"{i}", "mp4": video, "wav": ramp})

    decode = {"mp4": frames(fps=10, seconds=1, at="random"), "wav": sound(1000, mono=True, seconds=1, at="random")}

    def drawn(batch_size: int, seen: int = 0, rank: int = 0, ranks: int = 1) -> dict[str, tuple[float, float]]:
        loader = lading.loader(
            tmp_path / "clips", batch_size, shuffle=True, seed=3, decode=decode, rank=rank, world_size=ranks
        )
        loader.load_state_dict({**loader.state_dict(), "position": seen})
        batches = [*loader]
        assert {(batch["mp4"].shape[1:], batch["wav"].shape[1:]) for batch in batches} == {((10, 48, 64, 3), (1000,))}
        return {
            key: (float(np.abs(greys - clip[0].mean()).argmin()) / 10, 3 * float(part[0]))
            for batch in batches for key, clip, part in zip(batch["__key__"], batch["mp4"], batch["wav"], strict=True)
        }  # fmt: skip

    expected = drawn(3)
    assert len({second for _, second in expected.values()}) == len(expected) == 8
    assert all(abs(second - first) < 0.25 for first, second in expected.values())  # some neighbours look alike
    assert {**drawn(2, rank=0, ranks=2), **drawn(2, rank=1, ranks=2)} == expected
    rest = drawn(4, seen=4)
    assert (len(rest), rest.items() <= expected.items()) == (4, True)
    long = [*lading.loader(tmp_path / "clips", 8, shuffle=True, seed=3, decode=decode, epoch_size=24)]
    windows = [
        (key, float(part[0])) for batch in long for key, part in zip(batch["__key__"], batch["wav"], strict=True)
    ]
    assert sorted(Counter(key for key, _ in windows).values()) == [3] * 8
    assert len({*windows}) == 24
