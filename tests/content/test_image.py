"""Image headers against Pillow; frames of TIFF files."""

import hashlib
import io
import json
import struct
import tarfile
from typing import Any

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin, features

from lading._core.content.image import ImageInfo, extract_frame, image_info, is_one_frame, usual_sizes
from lading.errors import BadReference


def _noise(mode: str, size: tuple[int, int], seed: int = 0) -> Image.Image:
    bands = len(Image.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], bands), np.uint8)
    return Image.fromarray(pixels[:, :, 0], "L") if bands == 1 else Image.fromarray(pixels, mode)


def _saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


ENCODINGS: list[tuple[str, str, dict[str, Any], str]] = [
    ("PNG", "RGBA", {}, "image/png"),
    ("JPEG", "RGB", {}, "image/jpeg"),
    ("JPEG", "L", {"progressive": True}, "image/jpeg"),
    ("JPEG", "CMYK", {"comment": b"x" * 60_000, "exif": b"Exif\0\0" + b"y" * 3000}, "image/jpeg"),
    ("GIF", "L", {}, "image/gif"),
    ("WEBP", "RGB", {"lossless": False}, "image/webp"),
    ("WEBP", "RGBA", {"lossless": True}, "image/webp"),
    ("WEBP", "RGB", {"exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"}, "image/webp"),
    ("BMP", "RGB", {}, "image/bmp"),
    ("TIFF", "RGB", {}, "image/tiff"),
    ("TIFF", "L", {"big_tiff": True}, "image/tiff"),
    ("AVIF", "RGB", {}, "image/avif"),
    ("AVIF", "RGBA", {"lossless": True}, "image/avif"),
]


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind, mode, options, mime", ENCODINGS)
@pytest.mark.parametrize("size", [(1, 1), (37, 19), (300, 700)])
def test_sizes_are_pillows(kind: str, mode: str, options: dict[str, Any], mime: str, size: tuple[int, int]) -> None:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    data = _saved(_noise(mode, size), kind, **options)
    info = image_info(data)
    assert info is not None
    assert (info.mime, info.width, info.height) == (mime, *size)
    assert info.frames in (1, None)
    assert image_info(memoryview(bytearray(data))) == info


@pytest.mark.parametrize("head_bytes", [8, 23, 24, 64, 512])
def test_sizes_of_many_are_those_of_each_or_left_open(head_bytes: int) -> None:
    """Whole images, and images with bytes changed at random: never another size than `image_info` gives."""
    random = np.random.default_rng(head_bytes)
    heads = []
    for kind, mode, options, _ in ENCODINGS[:6]:
        head = _saved(_noise(mode, (300, 170)), kind, **options)[:head_bytes].ljust(head_bytes, b"\0")
        heads.append(head)
        for _ in range(300):
            changed = bytearray(head)
            for at in random.integers(0, min(head_bytes, 40), random.integers(1, 4)).tolist():
                changed[at] = random.choice([0, 1, 2, 0xC0, 0xC4, 0xD8, 0xD9, 0xDA, 0xFF])
            heads.append(bytes(changed))
    found = usual_sizes(np.frombuffer(b"".join(heads), np.uint8).reshape(-1, head_bytes))
    infos = [image_info(head) for head in heads]
    told = [(width, height) for width, height in found.T.tolist()]
    assert all(size in ((-1, -1), info and (info.width, info.height)) for size, info in zip(told, infos, strict=True))
    if head_bytes == 512:
        assert told[0] == told[301] == told[602] == (300, 170)


def test_old_and_upside_down_bitmaps() -> None:
    core = b"BM" + bytes(12) + struct.pack("<IHHHH", 12, 7, 9, 1, 24)
    down = b"BM" + bytes(12) + struct.pack("<Iii", 40, 7, -9)
    assert image_info(core) == image_info(down) == ImageInfo("image/bmp", 7, 9, 1)


def test_bytes_that_are_no_image() -> None:
    for data in (b"", b"BM", b"BMW drives", b"\xff\xd8\xff", b"GIF89a", b"RIFF1234WEBPVP8 ", b"%PDF", bytes(100)):
        assert image_info(data) is None
    assert image_info(b"\x89PNG\r\n\x1a\n" + bytes(16)) is None


@pytest.mark.parametrize("kind, mode, options, _mime", ENCODINGS)
def test_a_cut_image_has_its_size_or_none(kind: str, mode: str, options: dict[str, Any], _mime: str) -> None:
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow has no AVIF")
    data = _saved(_noise(mode, (37, 19)), kind, **options)
    known = {image_info(data[:stop]) for stop in range(min(len(data), 700))} - {None}
    assert {(info.width, info.height) for info in known if info is not None} <= {(37, 19)}


def test_a_jpeg_of_countless_segments_ends() -> None:
    assert image_info(b"\xff\xd8" + b"\xff\xe0\0\2" * 100_000) is None
    assert image_info(b"\xff\xd8\xff" + b"\xff" * 400_000) is None


# TIFF: several frames


def _pixels(data: bytes, index: int = 0) -> tuple[str, tuple[int, int], bytes]:
    with Image.open(io.BytesIO(data)) as image:
        image.seek(index)
        return image.mode, image.size, image.tobytes()


def _frames(data: bytes) -> int:
    with Image.open(io.BytesIO(data)) as image:
        return int(getattr(image, "n_frames", 1))


TIFFS: list[tuple[str, str, dict[str, Any]]] = [
    ("RGB", "raw", {}),
    ("RGBA", "tiff_lzw", {}),
    ("L", "tiff_adobe_deflate", {}),
    ("RGB", "jpeg", {"quality": 50}),
    ("CMYK", "packbits", {}),
    ("1", "group4", {}),
    ("P", "raw", {}),
    ("I;16", "raw", {}),
    ("I;16B", "raw", {}),
    ("F", "raw", {}),
    ("RGB", "raw", {"big_tiff": True}),
    ("LA", "tiff_lzw", {"big_tiff": True}),
]


SIZES = [(20, 30), (33, 7), (1, 1)]


@pytest.mark.parametrize("mode, compression, options", TIFFS)
def test_frames_keep_their_pixels(mode: str, compression: str, options: dict[str, Any]) -> None:
    noise = [_noise(mode if len(mode) > 1 and ";" not in mode else "L", s, i) for i, s in enumerate(SIZES)]
    pictures = [picture.convert(mode) for picture in noise]
    data = _saved(pictures[0], "TIFF", save_all=True, append_images=pictures[1:], compression=compression, **options)
    assert image_info(data) == ImageInfo("image/tiff", 20, 30, 3)
    for index in range(3):
        frame = extract_frame(data, index)
        assert _frames(frame) == 1
        assert _pixels(frame) == _pixels(data, index)
        assert extract_frame(memoryview(data), index) == frame
        assert extract_frame(frame, 0) == frame
        size = _pixels(data, index)[1]
        assert image_info(frame) == ImageInfo("image/tiff", *size, frames=1)


def test_golden_frames(golden: Any) -> None:
    case = golden("interleaved") / "mint-tiff"
    with tarfile.open(case / "mint.tar") as tar:
        for key, frames in json.loads((case / "expected.json").read_text())["frame_pixels"].items():
            member = tar.extractfile(f"{key}.tiff")
            assert member is not None
            data = member.read()
            for index, expected in enumerate(frames):
                mode, size, pixels = _pixels(extract_frame(data, index))
                assert (mode, list(size)) == (expected["mode"], expected["size"])
                assert hashlib.sha256(pixels).hexdigest() == expected["pixels_sha256"]


def _tiff(order: str, *, big: bool, tiled: bool, frames: list[np.ndarray[Any, Any]]) -> bytes:
    """A TIFF of grey pictures of 16 × 16, by hand: in strips of 4 rows, or one tile."""
    word, count, entry = ("Q", "Q", order + "HHQ") if big else ("I", "H", order + "HHI")
    mark = b"II" if order == "<" else b"MM"
    out = bytearray(mark + (struct.pack(order + "HHH", 43, 8, 0) if big else struct.pack(order + "H", 42)))
    patch = len(out)
    out += bytes(struct.calcsize(word))
    for pixels in frames:
        parts = [pixels.tobytes()] if tiled else [rows.tobytes() for rows in pixels.reshape(4, 4, 16)]
        places = []
        for part in parts:
            places.append(len(out))
            out += part
        sizes_at = len(out)
        out += struct.pack(f"{order}{len(parts)}H", *(len(part) for part in parts))
        places_at = len(out)
        out += struct.pack(f"{order}{len(parts)}{word}", *places)
        out += bytes(len(out) % 2)

        def one(tag: int, value: int) -> bytes:
            return struct.pack(entry, tag, 3, 1) + struct.pack(order + "H", value).ljust(struct.calcsize(word), b"\0")

        def many(tag: int, kind: int, at: int, single: bytes, total: int) -> bytes:
            held = single.ljust(struct.calcsize(word), b"\0")
            return struct.pack(entry, tag, kind, total) + (held if total == 1 else struct.pack(order + word, at))

        offsets = many(
            324 if tiled else 273, 16 if big else 4, places_at, struct.pack(order + word, places[0]), len(parts)
        )
        lengths = many(325 if tiled else 279, 3, sizes_at, struct.pack(order + "H", len(parts[0])), len(parts))
        entries = [one(256, 16), one(257, 16), one(258, 8), one(259, 1), one(262, 1)]
        if tiled:
            entries += [one(322, 16), one(323, 16), offsets, lengths]
        else:
            entries += [offsets, one(277, 1), one(278, 4), lengths]
        if big and not tiled:  # four short lengths fit into the entry
            entries[-1] = struct.pack(entry, 279, 3, 4) + struct.pack(order + "4H", *(len(part) for part in parts))
        struct.pack_into(order + word, out, patch, len(out))
        out += struct.pack(order + count, len(entries)) + b"".join(entries)
        patch = len(out)
        out += bytes(struct.calcsize(word))
    return bytes(out)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("tiled", [False, True])
def test_byte_orders_widths_strips_and_tiles(order: str, big: bool, tiled: bool) -> None:
    pictures = [np.random.default_rng(seed).integers(0, 256, (16, 16), np.uint8) for seed in range(3)]
    data = _tiff(order, big=big, tiled=tiled, frames=pictures)
    assert image_info(data) == ImageInfo("image/tiff", 16, 16, 3)
    for index, picture in enumerate(pictures):
        frame = extract_frame(data, index)
        assert frame[:4] == data[:4]
        if big and order == ">":  # Pillow 13 takes it for a small one
            assert picture[:4].tobytes() in frame
        else:
            assert _pixels(frame) == ("L", (16, 16), picture.tobytes())


def test_exif_is_kept() -> None:
    pictures = [_noise("L", (5, 5), seed) for seed in range(2)]
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[0x010E] = "a description"
    tags[0x8769] = {0x9286: b"a comment that is longer than a word"}
    data = _saved(pictures[0], "TIFF", save_all=True, append_images=pictures[1:], tiffinfo=tags)
    with Image.open(io.BytesIO(extract_frame(data, 0))) as image:
        assert image.getexif()[0x010E] == "a description"
        assert image.getexif().get_ifd(0x8769)[0x9286] == b"a comment that is longer than a word"


def test_single_frames_and_other_images_are_given_as_they_are() -> None:
    for kind, index in (("TIFF", 0), ("PNG", 0), ("PNG", 5), ("JPEG", -1)):
        data = _saved(_noise("RGB", (4, 4)), kind)
        assert extract_frame(data, index) == data
    assert extract_frame(b"not an image", 3) == b"not an image"


def test_files_that_are_what_their_first_frame_is() -> None:
    one, two = (_tiff("<", big=False, tiled=False, frames=[np.zeros((16, 16), np.uint8)] * n) for n in (1, 2))
    single = [one, _tiff(">", big=True, tiled=True, frames=[np.zeros((16, 16), np.uint8)]), b"", b"not an image", b"II"]
    single.append(_saved(_noise("RGB", (4, 4)), "PNG"))
    assert [is_one_frame(data) for data in single] == [True] * len(single)
    assert [extract_frame(data, 0) for data in single] == single
    for broken in (two, b"II*\0", b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\0", one[:-10]):
        assert not is_one_frame(broken)


def test_frames_that_are_not_there() -> None:
    data = _tiff("<", big=False, tiled=False, frames=[np.zeros((16, 16), np.uint8)] * 2)
    for index in (2, -1, 1 << 40):
        with pytest.raises(BadReference, match=r"no such frame.*0 to 1"):
            extract_frame(data, index)
    with pytest.raises(BadReference):
        extract_frame(_tiff("<", big=False, tiled=False, frames=[]), 0)


def test_directories_that_bite_their_tail() -> None:
    loop = b"II*\0\x08\0\0\0\x01\0\0\x01\x04\0\x01\0\0\0\x01\0\0\0\x08\0\0\0"
    assert image_info(loop) is None  # no height
    assert extract_frame(loop, 0) == loop
    with pytest.raises(BadReference, match="no such frame"):
        extract_frame(loop, 1)


def test_a_picture_of_any_declared_size_costs_nothing() -> None:
    data = bytearray(_tiff("<", big=False, tiled=False, frames=[np.zeros((16, 16), np.uint8)] * 2))
    entry = struct.pack("<HHIHH", 257, 3, 1, 16, 0)
    data = data.replace(entry, struct.pack("<HHII", 257, 4, 1, 60_000_000))
    assert image_info(data) == ImageInfo("image/tiff", 16, 60_000_000, 2)
    assert len(extract_frame(data, 1)) < len(data)


def test_strips_that_would_fill_memory() -> None:
    body = bytes(1 << 16)
    count = 4000
    places, sizes = struct.pack(f"<{count}I", *[8] * count), struct.pack(f"<{count}I", *[1 << 16] * count)
    at = 8 + len(body)
    entries = struct.pack("<HHII", 273, 4, count, at) + struct.pack("<HHII", 279, 4, count, at + len(places))
    directory = at + len(places) + len(sizes)
    one = struct.pack("<H", 2) + entries
    data = b"II*\0" + struct.pack("<I", directory) + body + places + sizes
    data += one + struct.pack("<I", directory + len(one) + 4) + one + bytes(4)
    with pytest.raises(BadReference, match="strips"):
        extract_frame(data, 0)
