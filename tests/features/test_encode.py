"""Python values as stored bytes: what stays as it is, what is encoded, what is refused."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lading._core.features.encode import array_bytes, as_bytes, media_bytes, npy_bytes, plain_item, video_cell
from lading._core.features.images import image_bytes
from lading.errors import NotFound, StoreError, Unrepresentable


def pixels(*shape: int, dtype: str = "uint8") -> np.ndarray[Any, Any]:
    most = 2 if dtype == "bool" else np.iinfo(dtype).max + 1
    return np.random.default_rng(7).integers(0, most, shape).astype(dtype)


def saved(image: Any, fmt: str) -> bytes:
    out = io.BytesIO()
    image.save(out, format=fmt)
    return out.getvalue()


def opened(data: bytes) -> Any:
    return Image.open(io.BytesIO(data))


JPEG = saved(Image.fromarray(pixels(20, 30, 3)), "JPEG")


def test_bytes_stay_as_they_are_even_if_they_are_no_image() -> None:
    for value in (
        b"not an image",
        bytearray(b"not an image"),
        memoryview(b"not an image"),
        {"bytes": b"not an image", "path": "x"},
    ):
        assert image_bytes(value) == b"not an image"
    assert as_bytes(memoryview(b"x")) == b"x"


def test_of_a_path_the_file_comes_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(JPEG + b"trailer")
    for value in (path, str(path), {"bytes": None, "path": str(path)}):
        assert image_bytes(value) == media_bytes(value) == JPEG + b"trailer"


@pytest.mark.parametrize("value", ["missing.jpg", Path("missing.jpg")])
def test_a_missing_file_is_named(value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"missing\.jpg"):
        image_bytes(value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a file"):
        media_bytes(tmp_path / "pipe")
    with pytest.raises(StoreError, match="cannot be read"):
        media_bytes("a\0b")


def test_an_opened_image_gives_its_file_before_and_after_it_was_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(JPEG)
    with Image.open(path) as image:
        assert image_bytes(image) == JPEG
        image.load()
        assert image_bytes(image) == JPEG
    assert image_bytes(opened(JPEG)) == JPEG


def test_an_image_that_is_not_loaded_gives_the_file_that_was_opened_not_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(JPEG)
    with Image.open(path) as image:
        path.unlink()
        assert image_bytes(image) == JPEG


def test_a_changed_image_is_encoded_in_its_own_format(tmp_path: Path) -> None:
    path = tmp_path / "a.bmp"
    path.write_bytes(saved(Image.fromarray(pixels(9, 8, 3)), "BMP"))
    with Image.open(path) as image:
        image.paste((1, 2, 3), (0, 0, 4, 4))
        again = opened(image_bytes(image))
        assert again.format == "BMP"
        assert again.tobytes() == image.tobytes()
        assert again.tobytes() != opened(path.read_bytes()).tobytes()


def test_a_later_frame_is_not_the_file(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(4, 4) // (i + 1)) for i in range(3)]
    path = tmp_path / "a.gif"
    frames[0].save(path, save_all=True, append_images=frames[1:])
    with Image.open(path) as image:
        assert image_bytes(image) == path.read_bytes()
        image.seek(1)
        assert np.array_equal(np.asarray(opened(image_bytes(image)).convert("RGB")), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_an_image_without_a_file_becomes_png(mode: str) -> None:
    image = Image.new(mode, (5, 6))
    again = opened(image_bytes(image))
    assert (again.format, again.mode, again.size) == ("PNG", mode, (5, 6))


def test_a_loaded_gif_from_memory_becomes_png_since_it_has_a_palette() -> None:
    image = opened(saved(Image.fromarray(pixels(4, 4)).convert("P"), "GIF"))
    image.load()
    assert opened(image_bytes(image)).format in ("PNG", "GIF")
    image.putpixel((0, 0), 3)
    assert opened(image_bytes(image)).format == "PNG"


def test_a_mode_that_png_cannot_hold_is_refused() -> None:
    with pytest.raises(Unrepresentable, match="CMYK"):
        image_bytes(Image.new("CMYK", (2, 2)))


@pytest.mark.parametrize(
    "array",
    [pixels(4, 5), pixels(4, 5, 1), pixels(4, 5, 3), pixels(4, 5, 4), pixels(4, 5, dtype="uint16"),
     pixels(4, 5, dtype="bool"), np.asfortranarray(pixels(4, 5, 3)), pixels(4, 5, dtype="uint16").astype(">u2")],
    ids=["gray", "one channel", "rgb", "rgba", "16 bits", "bool", "fortran", "big-endian"],
)  # fmt: skip
def test_an_array_becomes_png_and_comes_back(array: np.ndarray[Any, Any]) -> None:
    again = opened(image_bytes(array))
    assert again.format == "PNG"
    assert np.array_equal(np.asarray(again), array[:, :, 0] if array.shape[2:] == (1,) else array)


def test_the_format_of_arrays_can_be_chosen() -> None:
    assert opened(image_bytes(pixels(4, 5, 3), "JPEG")).format == "JPEG"
    with pytest.raises(Unrepresentable, match="JPEG"):
        image_bytes(pixels(4, 5, 4), "JPEG")


_DEEP, _CLEAR = pixels(9, 8, dtype="uint16"), pixels(9, 8, 4)


@pytest.mark.parametrize(
    "array, fmt",
    [
        (_DEEP, "WEBP"), (_DEEP, "webp"), (_DEEP, "GIF"), (_DEEP, "SPIDER"), (pixels(40, 40, 3), "GIF"),
        (pixels(100, 100, 3), "ICO"), (pixels(20, 20, 3), "ICNS"), (_CLEAR, "BMP"), (_CLEAR, "PPM"), (_CLEAR, "GIF"),
        (pixels(9, 8, 3), "PDF"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype}{value.shape}",
)  # fmt: skip
def test_what_a_format_would_change_is_refused(array: np.ndarray[Any, Any], fmt: str) -> None:
    with pytest.raises(Unrepresentable, match=f"cannot be encoded as {fmt}"):
        image_bytes(array, fmt)


@pytest.mark.parametrize(
    "array, fmt",
    [
        (_DEEP, "TIFF"), (_DEEP, "PPM"), (_DEEP, "JPEG2000"), (_CLEAR, "TGA"), (_CLEAR, "TIFF"), (pixels(9, 8), "GIF"),
        (pixels(9, 8, dtype="bool"), "GIF"), (pixels(9, 8, 3), "BMP"), (pixels(32, 32, 3), "ICO"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.dtype}{value.shape}",
)  # fmt: skip
def test_what_other_formats_hold_comes_back(array: np.ndarray[Any, Any], fmt: str) -> None:
    again = opened(image_bytes(array, fmt))
    assert again.format == fmt
    assert np.array_equal(np.asarray(again.convert(Image.fromarray(array).mode)), array)


@pytest.mark.parametrize("array", [pixels(40, 30), pixels(40, 30, 3), pixels(40, 30, 4)], ids=["gray", "rgb", "rgba"])
def test_lossy_formats_may_change_pixels_but_not_the_size(array: np.ndarray[Any, Any]) -> None:
    again = opened(image_bytes(array, "WEBP"))
    assert (again.format, again.size) == ("WEBP", (30, 40))


@pytest.mark.parametrize("fmt", ["GIF", "TGA", "PCX", "SGI", "WEBP", "JPEG"])
def test_a_picture_that_is_too_wide_for_a_format_is_refused(fmt: str) -> None:
    with pytest.raises(Unrepresentable, match=f"cannot be encoded as {fmt}; found mode L, 70000 × 1"):
        image_bytes(np.zeros((1, 70_000), np.uint8), fmt)


@pytest.mark.soak
@pytest.mark.parametrize("fmt", ["ICO", "ICNS"])
def test_icons_that_were_changed_become_png(fmt: str) -> None:
    """Pillow writes icons in sizes of its own."""
    image = Image.fromarray(pixels(20, 20, 3))
    image.format = fmt
    again = opened(image_bytes(image))
    assert (again.format, again.tobytes()) == ("PNG", image.tobytes())


def test_a_picture_that_its_format_and_png_refuse_is_told_of_its_format() -> None:
    """PNG, which nobody asked for, is tried after GIF."""
    image = Image.new("CMYK", (4, 4))
    image.format = "GIF"
    with pytest.raises(Unrepresentable, match="cannot be encoded as GIF; found mode CMYK"):
        image_bytes(image)


def test_a_later_frame_of_more_colours_than_gif_has_becomes_png() -> None:
    image = Image.fromarray(pixels(40, 40, 3))
    image.format = "GIF"
    again = opened(image_bytes(image))
    assert (again.format, again.tobytes()) == ("PNG", image.tobytes())


@pytest.mark.parametrize(
    "value",
    [pixels(4, 5).astype("int64"), pixels(4, 5).astype("float32"), pixels(4), pixels(4, 5, 3, 2), pixels(0, 5),
     pixels(4, 5, 3, dtype="uint16"), 7, ["a.jpg"], {}, {"uri": "x"}, {"bytes": None}],
)  # fmt: skip
def test_what_is_no_picture_is_refused(value: Any) -> None:
    with pytest.raises(Unrepresentable):
        image_bytes(value)


def test_arrays_are_stored_little_endian_in_c_order() -> None:
    array = np.arange(24, dtype=">i2").reshape(2, 3, 4)
    expected = b"".join(int(v).to_bytes(2, "little") for v in range(24))
    assert array_bytes(array, "int16", (2, 3, 4)) == expected
    assert array_bytes(np.asfortranarray(array), "int16", (2, None, 4)) == expected
    assert array_bytes(array.tolist(), "int16", (2, 3, 4)) == expected
    assert array_bytes(array[:, ::2], "int16", (2, 2, 4)) == expected[:8] + expected[16:32] + expected[40:]


@pytest.mark.parametrize(
    "value, dtype, shape",
    [
        (np.zeros((2, 3)), "float64", (3, 2)),
        (np.zeros(6), "float64", (2, 3)),
        (np.zeros((2, 3)), "float64", (2, None, 3)),
        ([256], "uint8", (1,)),
        ([-1], "uint64", (1,)),
        ([1.5], "int32", (1,)),
        ([float("nan")], "int32", (1,)),
        ([2**24 + 1], "float32", (1,)),
        ([1e300], "float32", (1,)),
        ([1 + 2j], "float64", (1,)),
        (["a"], "float64", (1,)),
        ([[1], [2, 3]], "int64", (2, None)),
        ([None], "float64", (1,)),
        ([2**53 + 1, 1.0], "int64", (2,)),
        ([2**53 + 1, 1.0], "float64", (2,)),
        ([[2**53 + 1], [0.5]], "float64", (2, 1)),
        ([np.uint64(2**63 + 1), np.int64(-5)], "uint64", (2,)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(value: Any, dtype: str, shape: tuple[int | None, ...]) -> None:
    with pytest.raises(Unrepresentable):
        array_bytes(value, dtype, shape)


def test_floats_may_round_and_whole_numbers_change_type() -> None:
    assert np.frombuffer(array_bytes([0.1, np.inf, np.nan], "float32", (3,)), "<f4")[0] == np.float32(0.1)
    assert array_bytes(np.array([1, 0], "int64"), "bool", (2,)) == b"\1\0"
    assert array_bytes([1.0, 2.0], "uint8", (2,)) == b"\1\2"
    mixed = [2**60, 0.5, float("nan"), np.float64("inf"), np.float32(1e30)]
    assert np.frombuffer(array_bytes(mixed, "float64", (5,))).tolist()[:2] == [2.0**60, 0.5]


def test_npy_keeps_what_the_array_is() -> None:
    array = np.asfortranarray(pixels(3, 4).astype(">f8"))
    again = np.load(io.BytesIO(npy_bytes(array)))
    assert np.array_equal(again, array)
    assert again.dtype == array.dtype
    assert np.load(io.BytesIO(npy_bytes([1, 2], "int8"))).dtype == "int8"
    with pytest.raises(Unrepresentable):
        npy_bytes([{}])


def test_numbers_of_numpy_become_those_of_python() -> None:
    assert [type(plain_item(v)) for v in (np.int8(1), np.float16(1), np.bool_(1), np.array(3))] == [
        int,
        float,
        bool,
        int,
    ]
    assert isinstance(plain_item(np.datetime64("2020-01-01")), np.datetime64)
    assert plain_item(np.ma.array(3)) == 3
    assert plain_item(np.ma.masked) is plain_item(np.ma.array(3, mask=True)) is None


def test_a_video_lies_inside_or_in_a_file_called_after_its_content(tmp_path: Path) -> None:
    path, data = tmp_path / "Clip.MOV", b"film" * 400_000
    path.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    common = {"extension": ".mov", "media_type": "video/quicktime", "size": len(data), "checksum": digest}
    assert video_cell(path) == {"mode": "bytes", "path": None, "bytes": data, **common}
    assets = tmp_path / "deep" / "assets"
    for value in (path, {"bytes": data, "extension": "mov"}):
        cell = video_cell(value, str(assets))
        assert cell == {"mode": "path", "path": f"{digest}.mov", "bytes": None, **common}
    assert [p.name for p in assets.iterdir()] == [f"{digest}.mov"]
    assert (assets / f"{digest}.mov").read_bytes() == data
    assert video_cell({"path": str(path), "checksum": "given"})["checksum"] == "given"
    assert video_cell({"path": str(path), "checksum": digest.upper()})["checksum"] == digest.upper()
    with pytest.raises(Unrepresentable, match="the checksum of another"):
        video_cell({"path": str(path), "checksum": "0" * 64})
    assert video_cell(b"x")["extension"] == ".mp4"
    assert video_cell({"bytes": b"x", "extension": ".odd"})["media_type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "value", [7, {}, {"path": None}, {"bytes": b"x", "fps": 3}, {"bytes": b"x", "extension": "/../x"}, [b"x"]]
)
def test_what_is_no_video_is_refused(value: Any) -> None:
    with pytest.raises(Unrepresentable):
        video_cell(value)


def test_a_video_without_an_extension_is_refused_and_a_missing_one_named(tmp_path: Path) -> None:
    (tmp_path / "film").write_bytes(b"x")
    with pytest.raises(Unrepresentable, match="extension"):
        video_cell(tmp_path / "film")
    with pytest.raises(NotFound, match=r"gone\.mp4"):
        video_cell(tmp_path / "gone.mp4", str(tmp_path))


def test_assets_that_cannot_be_written_are_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "assets").write_bytes(b"a file")
    with pytest.raises(StoreError):
        video_cell(b"x", str(tmp_path / "assets"))


def test_an_array_with_values_left_out_is_refused() -> None:
    """numpy alone would store what lies under the mask."""
    masked = np.ma.MaskedArray([1, 2, 3], [False, True, False])
    for made in (lambda: array_bytes(masked, "int64", (3,)), lambda: npy_bytes(masked)):
        with pytest.raises(Unrepresentable, match="left out"):
            made()
    with pytest.warns(UserWarning, match="masked"), pytest.raises(Unrepresentable, match="left out"):
        array_bytes([np.ma.masked, 1.0], "float64", (2,))
    for listed in ([masked, masked], [[masked]], [np.ma.array(3, mask=True), 1]):
        with pytest.raises(Unrepresentable):
            npy_bytes(listed)
    assert array_bytes(np.ma.MaskedArray([1, 2, 3]), "int8", (3,)) == b"\1\2\3"
    assert array_bytes([np.ma.MaskedArray([1, 2, 3])], "int8", (1, 3)) == b"\1\2\3"


def test_an_image_edited_before_its_pixels_were_read_is_not_its_file() -> None:
    file = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 10, 10)).quantize(4).save(file, "PNG")
    colours = Image.open(io.BytesIO(file.getvalue()))
    colours.putpalette([9, 8, 7] * 256)
    with Image.open(io.BytesIO(image_bytes(colours))) as again:
        assert again.convert("RGB").getpixel((0, 0)) == (9, 8, 7)

    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, "JPEG")
    small = Image.open(io.BytesIO(file.getvalue()))
    small.draft("L", (16, 16))
    with Image.open(io.BytesIO(image_bytes(small))) as again:
        assert (again.mode, again.size) == (small.mode, small.size)


@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "GIF", "TIFF", "WEBP", "BMP", "PPM", "ICO"])
def test_an_image_that_nobody_touched_is_its_file(fmt: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (1, 2, 3)).save(file, fmt)
    assert image_bytes(Image.open(io.BytesIO(file.getvalue()))) == file.getvalue()


@pytest.mark.parametrize("by_path", [True, False])
def test_a_film_of_webp_that_was_only_opened_is_its_file(by_path: bool, tmp_path: Path) -> None:
    """Pillow has no tiles of it before its pixels are read."""
    frames = [Image.fromarray(pixels(8, 8, 3) // (i + 1)) for i in range(3)]
    path = tmp_path / "a.webp"
    frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
    data = path.read_bytes()
    with Image.open(path if by_path else io.BytesIO(data)) as image:
        assert image_bytes(image) == data
        image.seek(1)
        assert image_bytes(image) != data
    with Image.open(path if by_path else io.BytesIO(data)) as image:
        image.load()
        assert (image_bytes(image) == data) is by_path
        image.putpixel((0, 0), (1, 2, 3))
        assert image_bytes(image) != data
    with Image.open(io.BytesIO(data)) as image:
        image.putpixel((0, 0), (1, 2, 3))
        assert image_bytes(image) != data


def test_a_picture_with_values_left_out_is_refused() -> None:
    with pytest.raises(Unrepresentable, match="left out"):
        image_bytes(np.ma.array(np.full((2, 2), 7, np.uint8), mask=True))


def test_the_widest_whole_numbers_are_kept_where_the_type_holds_them() -> None:
    widest = [2**64 - 1, 0]
    assert np.frombuffer(array_bytes(widest, "uint64", (2,)), "<u8").tolist() == widest
    assert np.load(io.BytesIO(npy_bytes(widest, "uint64"))).tolist() == widest
    mixed = [np.uint64(2**63 + 1), np.int64(5)]
    assert np.frombuffer(array_bytes(mixed, "uint64", (2,)), "<u8").tolist() == [2**63 + 1, 5]
    for value, dtype in (([2**64, 0], "uint64"), ([2**64 - 1, -1], "uint64"), (widest, "int64")):
        with pytest.raises(Unrepresentable):
            array_bytes(value, dtype, (2,))


def test_texts_and_numbers_make_no_array() -> None:
    with pytest.raises(Unrepresentable, match="texts and other values"):
        npy_bytes([1, "a"])
    assert np.load(io.BytesIO(npy_bytes(["b", np.str_("c")]))).tolist() == ["b", "c"]
