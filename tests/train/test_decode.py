"""Pixels, sound, arrays and frames, next to what peers decode."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow
from PIL import ImageOps

from lading._core.train.decode import as_pixels, as_sound, as_tensors, decoder_of, frames
from lading.errors import DataError, FunctionError, MissingExtra, UsageError
from lading.features import Audio, Image

_RNG = np.random.default_rng(1)
_PIXELS = np.asarray(Pillow.fromarray(_RNG.integers(0, 256, (6, 8, 3), np.uint8)).resize((80, 60), 2))


def _file(image: Any, kind: str, **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("turn", range(9))
def test_images_stand_upright_as_hugging_face_gives_them(kind: str, turn: int) -> None:
    features = pytest.importorskip("datasets").features
    exif = Pillow.Exif()
    if turn:
        exif[0x0112] = turn
    data = _file(Pillow.fromarray(_PIXELS), kind, exif=exif)
    upright = features.Image().decode_example({"bytes": data, "path": None}).convert("RGB")
    assert np.array_equal(as_pixels(data, "numpy"), np.asarray(upright))
    assert as_pixels(data, "pil").size == upright.size
    small = np.asarray(upright.resize((20, 30), 2)).astype(int)
    assert np.abs(as_pixels(data, "numpy", (30, 20)).astype(int) - small).mean() < 4


def test_pixels_are_those_of_pillow() -> None:
    torch = pytest.importorskip("torch")
    data = _file(Pillow.fromarray(_PIXELS), "PNG")
    assert np.array_equal(as_pixels(data, "numpy"), _PIXELS)
    found = as_pixels(data, "torch")
    assert (found.dtype, found.is_contiguous()) == (torch.uint8, True)
    assert np.array_equal(found.numpy(), _PIXELS.transpose(2, 0, 1))
    found = as_pixels(data, "numpy", (15, 25))
    assert np.array_equal(found, np.asarray(Pillow.fromarray(_PIXELS).resize((25, 15), 2, reducing_gap=2.0)))
    found[0] = 0  # the memory is its own


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    image = Pillow.fromarray(_PIXELS).convert(mode)
    kind = {"CMYK": "JPEG", "YCbCr": "JPEG"}.get(mode, "PNG")
    data = _file(image, kind)
    with Pillow.open(io.BytesIO(data)) as stored:
        assert np.array_equal(as_pixels(data, "numpy"), np.asarray(stored.convert("RGB")))
    assert as_pixels(data, "numpy", (7, 9)).shape == (7, 9, 3)


def test_transparency_is_left_out_without_a_warning() -> None:
    image = Pillow.fromarray(_PIXELS).quantize(8)
    data = _file(image, "PNG", transparency=bytes(range(8)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(as_pixels(data, "numpy"), np.asarray(image.convert("RGB")))


def test_of_sixteen_bits_the_upper_eight_are_kept() -> None:
    grey = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    for kind in ("PNG", "TIFF"):
        found = as_pixels(_file(Pillow.fromarray(grey), kind), "numpy")
        assert np.array_equal(found, np.repeat((grey // 256)[..., None], 3, 2))
    for dtype in (np.int32, np.float32):
        with pytest.raises(DataError, match="32 bits"):
            as_pixels(_file(Pillow.fromarray(grey.astype(dtype)), "TIFF"), "numpy")


def test_of_several_frames_the_first_is_taken() -> None:
    first, second = Pillow.new("RGB", (4, 4), "red"), Pillow.new("RGB", (4, 4), "blue")
    for kind in ("GIF", "TIFF", "WEBP"):
        options: dict[str, Any] = {"save_all": True, "append_images": [second]}
        options |= {"lossless": True} if kind == "WEBP" else {}
        assert as_pixels(_file(first, kind, **options), "numpy")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF"])
@pytest.mark.parametrize("size", [None, (5, 5)])
def test_a_file_that_is_cut_is_an_error(kind: str, size: Any) -> None:
    data = _file(Pillow.fromarray(_PIXELS), kind)
    for part in (0.05, 0.5, 0.9):
        with pytest.raises(DataError, match="the image cannot be"):
            as_pixels(data[: int(len(data) * part)], "numpy", size)


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"\xff\xd8\xff", b"RIFF1234WEBP", b"II*\0" + bytes(20), bytes(100)])
def test_what_is_no_image_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError, match="the image cannot be opened"):
        as_pixels(data, "numpy")


@pytest.mark.parametrize("pixels", [400, 1500])
def test_an_image_with_too_many_pixels_is_an_error(monkeypatch: pytest.MonkeyPatch, pixels: int) -> None:
    """Above twice the limit Pillow raises; above the limit Pillow warns, which the tests make an error."""
    monkeypatch.setattr(Pillow, "MAX_IMAGE_PIXELS", pixels)
    with pytest.raises(DataError, match=r"more pixels than Pillow allows.*MAX_IMAGE_PIXELS"):
        as_pixels(_file(Pillow.new("RGB", (50, 40)), "PNG"), "numpy")


def test_damaged_exif_data_leave_the_image_as_it_is() -> None:
    data = _file(Pillow.fromarray(_PIXELS), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_pixels(data, "numpy").shape == _PIXELS.shape


def test_sound_is_that_of_soundfile() -> None:
    soundfile = pytest.importorskip("soundfile")
    for channels in (1, 2):
        sound = _RNG.uniform(-1, 1, (800, channels)).astype(np.float32)
        data = io.BytesIO()
        soundfile.write(data, sound, 16000, "PCM_16", format="FLAC")
        expected, rate = soundfile.read(io.BytesIO(data.getvalue()), dtype="float32", always_2d=True)
        function = decoder_of("flac", Audio(), "numpy", None)
        found = function(data.getvalue())
        assert (found["array"].dtype, found["sample_rate"]) == (np.float32, rate)
        assert np.array_equal(found["array"], expected)
        pytest.importorskip("torch")
        tensor = as_sound(data.getvalue(), "torch")["array"]
        assert np.array_equal(tensor.numpy(), expected.T)
    with pytest.raises(DataError, match="the audio cannot be decoded"):
        as_sound(b"no sound", "numpy")
    with pytest.raises(UsageError, match="no image of Pillow"):
        decoder_of("flac", Audio(), "pil", None)


@pytest.mark.parametrize("kind", ["WAV", "FLAC"])
def test_sound_that_is_cut_is_an_error(kind: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, _RNG.uniform(-1, 1, (8000, 2)), 16000, "PCM_16", format=kind)
    for end in (-1, len(data.getvalue()) // 2):
        with pytest.raises(DataError, match=r"the audio (file is cut|cannot be decoded)"):
            as_sound(data.getvalue()[:end], "numpy")


def test_a_header_that_claims_more_sound_takes_no_memory() -> None:
    soundfile = pytest.importorskip("soundfile")
    data = io.BytesIO()
    soundfile.write(data, np.zeros((8000, 1)), 16000, "PCM_16", format="FLAC")
    claimed = bytearray(data.getvalue())
    claimed[21] |= 0x0F  # the upper bits of the number of frames (RFC 9639, 8.2)
    with pytest.raises(DataError, match=r"the audio (file is cut|cannot be decoded)"):
        as_sound(bytes(claimed), "numpy")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "WAV", "FLAC", "OGG", "mp4"])
def test_damaged_files_give_values_or_our_errors(kind: str) -> None:
    if kind == "mp4":
        data, function = _video(12), frames(count=3)
    elif kind in ("WAV", "FLAC", "OGG"):
        soundfile, stored = pytest.importorskip("soundfile"), io.BytesIO()
        soundfile.write(stored, _RNG.uniform(-1, 1, (2000, 2)), 16000, format=kind)
        data, function = stored.getvalue(), lambda file: as_sound(file, "numpy")
    else:
        data, function = _file(Pillow.fromarray(_PIXELS), kind), lambda file: as_pixels(file, "numpy", (9, 9))
    sound = 0
    for _ in range(300):
        damaged = np.frombuffer(bytearray(data), np.uint8)
        places = _RNG.integers(0, _RNG.choice([40, 400, len(data)]), _RNG.integers(1, 5)) % len(data)
        damaged[places] = _RNG.integers(0, 256, len(places))
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")
            function(damaged.tobytes()[: _RNG.choice([len(data), _RNG.integers(len(data))])])
            sound += 1
    assert 0 < sound < 300


def test_safetensors() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    torch = pytest.importorskip("torch")
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.array([1, 2])}
    data = safetensors.save(arrays)
    found = as_tensors(data, "numpy")
    assert {name: each.tolist() for name, each in found.items()} == {name: x.tolist() for name, x in arrays.items()}
    assert as_tensors(data, "torch")["a"].dtype == torch.float16
    with pytest.raises(DataError, match="the safetensors file cannot be decoded"):
        as_tensors(data[:-1], "numpy")


def test_an_error_of_a_function_is_one_of_lading() -> None:
    with pytest.raises(FunctionError, match="ZeroDivisionError"):
        decoder_of("jpg", Image(), lambda _: 1 // 0, None)(b"")
    with pytest.raises(MissingExtra):
        decoder_of("jpg", Image(), _missing, None)(b"")


def _missing(_: bytes) -> None:
    raise MissingExtra("a package")


def _video(count: int, kind: str = "mp4", codec: str = "mpeg4", gop: int = 7) -> bytes:
    av = pytest.importorskip("av")
    data = io.BytesIO()
    with av.open(data, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=10, options={"g": str(gop), "bf": "2" if codec == "mpeg4" else "0"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(count):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 40 + 4 * i, np.uint8), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return data.getvalue()


@pytest.mark.parametrize("kind, codec", [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("avi", "mpeg4"), ("mpegts", "mpeg4"),
                                         ("webm", "libvpx")])  # fmt: skip
@pytest.mark.parametrize(
    "options", [{"count": 1}, {"count": 3}, {"count": 8}, {"count": 40}, {"every": 1}, {"every": 9}]
)
def test_frames_are_those_of_a_decoder_from_the_first_on(kind: str, codec: str, options: dict[str, int]) -> None:
    av = pytest.importorskip("av")
    data = _video(30, kind, codec)
    with av.open(io.BytesIO(data)) as container:
        whole = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert len(whole) == 30
    numbers = range(0, 30, options["every"]) if "every" in options else np.linspace(0, 29, options["count"]).round()
    found = frames(**options)(data)
    assert found.dtype == np.uint8
    assert np.array_equal(found, [whole[int(i)] for i in numbers])


def test_frames_of_a_size_and_a_short_video() -> None:
    found = frames(count=4, image_size=(12, 16))(_video(2))
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
    for data in (b"", b"no video", _video(30)[:400]):
        with pytest.raises(DataError, match="video"):
            frames(count=2)(data)
    sound = io.BytesIO()
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(sound, np.zeros(800), 8000, format="WAV")
    with pytest.raises(DataError, match="the file has no video"):
        frames(count=2)(sound.getvalue())


@pytest.mark.parametrize("options", [{}, {"count": 0}, {"every": 0}, {"count": 2, "every": 2}])
def test_wrong_numbers_of_frames_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="count or every"):
        frames(**options)


@pytest.mark.parametrize("options", [{"count": 2.5}, {"every": "8"}, {"count": 2, "image_size": 0},
                                     {"count": 2, "image_size": (2,)}])  # fmt: skip
def test_wrong_values_of_frames_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="a number of at least 1"):
        frames(**options)


def test_exif_transpose_of_pillow_agrees_on_all_turns() -> None:
    for turn in range(1, 9):
        exif = Pillow.Exif()
        exif[0x0112] = turn
        data = _file(Pillow.fromarray(_PIXELS), "PNG", exif=exif)
        with Pillow.open(io.BytesIO(data)) as image:
            assert np.array_equal(as_pixels(data, "numpy"), np.asarray(ImageOps.exif_transpose(image)))
