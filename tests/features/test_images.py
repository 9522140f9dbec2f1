"""Pictures that functions change: as their file was, in the format that their field names, upright or with the tag."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms, ImageOps

import lading
from lading._core.content.media_files import open_image
from lading._core.features.images import encoded_source, image_bytes, orientation_of
from lading._core.features.mds_values import decode_mds, encode_mds
from lading.errors import LadingError, Unrepresentable, WrongType

_SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def picture(mode: str = "RGB", size: tuple[int, int] = (48, 32)) -> Any:
    pixels = np.random.default_rng(3).integers(0, 255, (size[1], size[0], 3), np.uint8)
    return Image.fromarray(pixels).convert(mode) if mode != "P" else Image.fromarray(pixels).quantize(16)


def file_of(image: Any, kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def photo(orientation: int, kind: str = "JPEG", **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return file_of(picture(), kind, exif=exif, **options)


def opened(data: bytes) -> Any:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def mapped(tmp_path: Path, fields: dict[str, Any], function: Any, fmt: str = "webdataset", **decode: Any) -> Any:
    """The fields of a sample, as bytes, behind a function."""
    with lading.writer(tmp_path / "in", format=fmt) as writer:
        writer.write({"__key__": "a", **fields})
    lading.open(tmp_path / "in").with_decode(**decode).map(function).write(tmp_path / "out", fmt)
    return lading.open(tmp_path / "out").with_decode(False)[0]


@pytest.mark.parametrize(
    "name, data, mode",
    [
        ("jpg", file_of(picture(), "JPEG", quality=80), "RGB"),
        ("jpeg", file_of(picture("L"), "JPEG"), "L"),
        ("jpg", file_of(picture("CMYK"), "JPEG"), "CMYK"),
        ("png", file_of(picture("RGBA"), "PNG"), "RGBA"),
        ("png", file_of(picture("P"), "PNG"), "P"),
        ("seg.png", file_of(Image.fromarray(np.full((32, 48), 4000, np.uint16)), "PNG"), "I;16"),
        ("webp", file_of(picture(), "WEBP", quality=80), "RGB"),
        ("tiff", file_of(picture(), "TIFF"), "RGB"),
        ("bmp", file_of(picture(), "BMP"), "RGB"),
        ("gif", file_of(picture("P"), "GIF"), "P"),
    ],
)
def test_a_changed_picture_keeps_format_and_mode(tmp_path: Path, name: str, data: bytes, mode: str) -> None:
    found = opened(mapped(tmp_path, {name: data}, lambda s: {name: s[name].crop((0, 0, 20, 10))})[name])
    assert (found.format, found.mode, found.size) == (opened(data).format, mode, (20, 10))


@pytest.mark.parametrize("name, kind, options", [("png", "PNG", {}), ("webp", "WEBP", {"lossless": True})])
def test_lossless_files_stay_lossless(tmp_path: Path, name: str, kind: str, options: dict[str, Any]) -> None:
    data = file_of(picture(), kind, **options)
    found = opened(mapped(tmp_path, {name: data}, lambda s: {name: s[name].crop((0, 0, 20, 10))})[name])
    assert found.convert("RGB").tobytes() == picture().crop((0, 0, 20, 10)).tobytes()


@pytest.mark.parametrize("colours", ["L", "RGB"])
def test_a_changed_gif_shows_its_colours(tmp_path: Path, colours: str) -> None:
    data = file_of(picture(colours), "GIF")
    wanted = opened(data).crop((0, 0, 16, 16)).convert("RGB")
    found = opened(mapped(tmp_path, {"gif": data}, lambda s: {"gif": s["gif"].crop((0, 0, 16, 16))})["gif"])
    assert (found.format, found.convert("RGB").tobytes()) == ("GIF", wanted.tobytes())


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_a_changed_animation_warns_that_one_frame_is_written(tmp_path: Path, kind: str) -> None:
    name = kind.lower()
    frames = [picture().crop((at, 0, at + 16, 16)) for at in range(3)]
    data = file_of(frames[0], kind, save_all=True, append_images=frames[1:])
    with pytest.warns(UserWarning, match=f"{name}: .* several frames, and one frame is written"):
        mapped(tmp_path / "changed", {name: data}, lambda s: {name: s[name].crop((0, 0, 8, 8))})
    assert mapped(tmp_path / "kept", {name: data}, lambda s: {name: s[name].copy()})[name] == data


def test_jpeg_has_quality_95_without_subsampling(tmp_path: Path) -> None:
    data = file_of(picture(), "JPEG", quality=60)
    found = mapped(tmp_path, {"jpg": data}, lambda s: {"jpg": s["jpg"].crop((0, 0, 20, 10))})["jpg"]
    assert found == file_of(opened(data).crop((0, 0, 20, 10)), "JPEG", quality=95, subsampling=0)


@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds"])
def test_a_picture_that_shows_the_same_keeps_its_bytes(tmp_path: Path, fmt: str) -> None:
    """The object that was given, or equal pixels; of a photo that was turned too."""
    for number, data in enumerate((file_of(picture(), "JPEG", quality=60), photo(6), photo(3, "PNG"))):
        for other, function in enumerate((lambda s: {"jpg": s["jpg"]}, lambda s: {"jpg": s["jpg"].copy()},
                                          lambda s: {"jpg": Image.fromarray(np.asarray(s["jpg"]))})):  # fmt: skip
            folder = tmp_path / f"{number}{other}"
            folder.mkdir()
            assert mapped(folder, {"jpg": data}, function, fmt)["jpg"] == data


def test_the_profile_is_kept_where_it_is_of_the_mode() -> None:
    data = file_of(picture(), "JPEG", icc_profile=_SRGB)
    for kind in ("a.jpg", "a.png", "a.webp"):
        assert opened(image_bytes(open_image(data).resize((9, 9)), None, kind)).info["icc_profile"] == _SRGB
    assert "icc_profile" not in opened(image_bytes(open_image(data).convert("L"), None, "a.jpg")).info


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA"])
def test_a_mode_that_the_ending_cannot_hold_says_what_to_return(tmp_path: Path, mode: str) -> None:
    with pytest.raises(Unrepresentable, match=r'sample \'a\' column \'jpg\'.*Return {"jpg": image.convert\("RGB"\)}'):
        mapped(tmp_path, {"jpg": file_of(picture(), "JPEG")}, lambda _: {"jpg": picture(mode)})


def test_another_field_is_in_the_format_of_its_own_ending(tmp_path: Path) -> None:
    def thumbs(sample: Any) -> dict[str, Any]:
        return {"png": sample["jpg"], "thumb.webp": sample["jpg"].resize((8, 8)), "thumb": sample["jpg"].resize((8, 8))}

    found = mapped(tmp_path, {"jpg": file_of(picture(), "JPEG")}, thumbs)
    assert [opened(found[name]).format for name in ("jpg", "png", "thumb.webp", "thumb")] == [
        "JPEG", "PNG", "WEBP", "JPEG"
    ]  # fmt: skip


def test_a_declared_format_wins(tmp_path: Path) -> None:
    with lading.writer(tmp_path / "in", format="parquet") as writer:
        writer.write({"image": Image.open(io.BytesIO(file_of(picture(), "JPEG")))})
    ds = lading.open(tmp_path / "in").map(
        lambda s: {"image": s["image"].resize((8, 8)), "pixels": np.zeros((4, 4, 3), np.uint8)},
        columns={"image": lading.features.Image("WEBP"), "pixels": lading.features.Image("JPEG")},
    )
    assert [opened(ds.with_decode(False)[0][name]).format for name in ("image", "pixels")] == ["WEBP", "JPEG"]
    assert opened(image_bytes(open_image(file_of(picture(), "JPEG")).resize((8, 8)), "PNG", "a.jpg")).format == "PNG"


@pytest.mark.cases(6)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_upright(tmp_path: Path, orientation: int, kind: str) -> None:
    name = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp"}[kind]
    data = photo(orientation, kind, **({"lossless": True} if kind == "WEBP" else {}))
    upright = ImageOps.exif_transpose(opened(data))
    seen = []

    def crop(sample: Any) -> dict[str, Any]:
        seen.append((sample[name].size, sample[name].tobytes()))
        return {name: sample[name].crop((0, 0, 20, 10))}

    made = opened(mapped(tmp_path, {name: data}, crop)[name])
    assert seen[0] == (upright.size, upright.tobytes())
    ds = lading.open(tmp_path / "in")
    assert (ds[0][name].size, ds[0][name].tobytes()) == seen[0]
    assert ds.head(1)[0][name].size == upright.size
    assert (made.size, orientation_of(made)) == ((20, 10), 1)
    if kind != "JPEG":
        assert made.convert("RGB").tobytes() == upright.convert("RGB").crop((0, 0, 20, 10)).tobytes()


@pytest.mark.parametrize("orientation", [1, 6, 8])
def test_stored_pixels_keep_the_tag(tmp_path: Path, orientation: int) -> None:
    def crop(sample: Any) -> dict[str, Any]:
        assert sample["png"].size == (48, 32)
        return {"png": sample["png"].crop((0, 0, 20, 10))}

    found = mapped(tmp_path, {"png": photo(orientation, "PNG")}, crop, upright=False)["png"]
    assert (opened(found).size, orientation_of(opened(found))) == ((20, 10), orientation)
    ds = lading.open(tmp_path / "in").with_decode(upright=False)
    assert ds[0]["png"].size == pickle.loads(pickle.dumps(ds))[0]["png"].size == (48, 32)


@pytest.mark.parametrize("made", [np.asarray, lambda image: Image.fromarray(np.asarray(image))])
def test_a_picture_made_anew_of_stored_pixels_needs_the_tag(tmp_path: Path, made: Any) -> None:
    def anew(sample: Any) -> dict[str, Any]:
        return {"png": made(sample["png"])}

    with pytest.raises(LadingError, match=r"does not say how it is to be turned.* Keep the tag"):
        mapped(tmp_path / "6", {"png": photo(6, "PNG")}, anew, upright=False)
    assert opened(mapped(tmp_path / "1", {"png": photo(1, "PNG")}, anew, upright=False)["png"]).size == (48, 32)
    assert open_image(mapped(tmp_path / "upright", {"png": photo(6, "PNG")}, anew)["png"]).size == (32, 48)

    def with_tag(sample: Any) -> dict[str, Any]:
        image = Image.fromarray(np.asarray(sample["png"]))
        image.info["exif"] = sample["png"].info["exif"]
        return {"png": image}

    found = opened(mapped(tmp_path / "tag", {"png": photo(6, "PNG")}, with_tag, upright=False)["png"])
    assert (found.size, orientation_of(found)) == ((48, 32), 6)


def test_a_photo_whose_pixels_are_cut_is_an_error_of_whoever_looks() -> None:
    image = open_image(photo(6, quality=95)[:-600])
    with pytest.raises(OSError, match="truncated"):
        image.load()


def test_images_travel_to_other_processes() -> None:
    image = pickle.loads(pickle.dumps(open_image(file_of(picture(), "JPEG")).resize((8, 8))))
    assert opened(image_bytes(image)).format == "JPEG"


# Values of an ending


@pytest.mark.parametrize("fmt", ["webdataset", "parquet", "mds", "arrow"])
def test_values_become_files_of_their_ending(tmp_path: Path, fmt: str) -> None:
    pixels = np.asarray(picture())
    (tmp_path / "a.jpg").write_bytes(file_of(picture(), "JPEG"))
    fields = {"jpg": pixels, "png": pixels, "json": np.arange(3), "npy": [1, 2], "x.jpg": tmp_path / "a.jpg",
              "x.json": "text", "cls": np.int64(3), "id": np.array([4])}  # fmt: skip
    with lading.writer(tmp_path / "out", format=fmt) as writer:
        writer.write({"__key__": "a", **fields})
    with lading.open(tmp_path / "out") as ds:
        row, stored = ds[0], ds.with_decode(False)[0]
    assert [opened(stored[name]).format for name in ("jpg", "png", "x.jpg")] == ["JPEG", "PNG", "JPEG"]
    assert opened(stored["png"]).tobytes() == pixels.tobytes()
    assert (row["json"], row["npy"].tolist(), row["x.json"], row["cls"], row["id"]) == ([0, 1, 2], [1, 2], "text", 3, 4)


@pytest.mark.parametrize(
    "name, value, error",
    [
        ("jpg", "photos/1.jpg", r"a text is no image.*pathlib\.Path"),
        ("wav", "a.wav", "a text is no sound"),
        ("mp4", "a.mp4", "a text is no video"),
        ("jpg", {"bytes": None, "path": "/etc/passwd"}, "a text is no image"),
        ("jpg", {"a": 1}, "not media"),
        ("jpg", np.zeros(3), "an array that is not an image"),
        ("jpg", np.zeros((4, 4, 4), np.uint8), r'image.convert\("RGB"\)'),
        ("wav", np.zeros(8, np.int16), r"need a rate.*sampling_rate"),
        ("mp4", np.zeros((2, 4, 4, 3), np.uint8), "no video"),
        ("pth", np.zeros(3), "an array is no pth"),
        ("txt", picture(), "an image is no txt"),
        ("heic", np.zeros((4, 4, 3), np.uint8), "images cannot be encoded as heic"),
    ],
)
def test_values_that_are_nothing_of_their_ending(tmp_path: Path, name: str, value: Any, error: str) -> None:
    with pytest.raises((Unrepresentable, WrongType), match=error), lading.writer(tmp_path / "out") as writer:
        writer.write({"__key__": "a", name: value})
    with lading.writer(tmp_path / "in", format="parquet") as writer:
        writer.write({"__key__": "a", "n": 1})
    with pytest.raises(LadingError, match=error):
        list(lading.open(tmp_path / "in").map(lambda _: {name: value}))


@pytest.mark.parametrize("ending, dtype", [("wav", "int16"), ("wav", "float32"), ("flac", "int16")])
def test_sound_from_samples(tmp_path: Path, ending: str, dtype: str) -> None:
    samples = (np.sin(np.arange(800) / 5) * (0.5 if dtype == "float32" else 9000)).astype(dtype)
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write({"__key__": "a", ending: {"array": np.stack([samples, -samples]), "sampling_rate": 16_000}})
    clip = lading.open(tmp_path / "out")[0][ending]
    assert (clip.sample_rate, clip.channels) == (16_000, 2)
    assert np.allclose(clip.array[0], samples / (1 if dtype == "float32" else 32768))
    with pytest.raises(Unrepresentable, match="would round"), lading.writer(tmp_path / "x") as writer:
        writer.write({"__key__": "a", "flac": {"array": np.zeros(4), "sampling_rate": 8000}})


@pytest.mark.parametrize("ending", ["ogg", "mp3"])
def test_a_long_sound_from_samples(tmp_path: Path, ending: str) -> None:
    """A minute at once overflows the stack of libvorbis."""
    time = np.arange(60 * 44_100) / 44_100
    noise = np.random.default_rng(0).normal(0, 0.01, len(time))
    samples = (0.5 * np.sin(2 * np.pi * (300 + 5 * time) * time) + noise).astype(np.float32)
    with lading.writer(tmp_path / "out", format="webdataset") as writer:
        writer.write({"__key__": "a", ending: {"array": samples, "sampling_rate": 44_100}})
    found = lading.open(tmp_path / "out")[0][ending].array
    assert found.shape == samples.shape
    assert np.corrcoef(found, samples)[0, 1] > 0.999


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(2, 9))
def test_pictures_are_turned_when_their_pixels_are_read(kind: str, orientation: int) -> None:
    stored = photo(orientation, kind)
    want = ImageOps.exif_transpose(opened(stored))
    shown = open_image(stored)
    assert shown.size == want.size
    assert encoded_source(shown) == stored
    assert kind == "WEBP" or shown.tile, "no pixel was read for that"
    for change in (
        lambda image: image.copy(), copy.copy, ImageOps.exif_transpose, lambda image: image.crop((1, 2, 9, 8)),
        lambda image: pickle.loads(pickle.dumps(image)), lambda image: image.convert("L"),
    ):  # fmt: skip
        assert change(open_image(stored)).tobytes() == change(want).tobytes()
    assert shown == open_image(stored)
    assert type(shown) is type(opened(stored)), "of Pillow's own class once it was read"
    assert shown.getexif().get(0x0112) is None


def test_exif_data_behind_the_pixels_turn_them_too() -> None:
    stored = photo(6, "PNG")
    at = stored.index(b"eXIf") - 4
    chunk = stored[at : at + 12 + int.from_bytes(stored[at : at + 4], "big")]
    moved = stored.replace(chunk, b"").replace(b"\0\0\0\0IEND", chunk + b"\0\0\0\0IEND")
    assert (opened(moved).size, open_image(moved).size) == ((48, 32), (32, 48))


def test_raw_pixels_of_mds_are_upright() -> None:
    found = decode_mds("pil", encode_mds("pil", opened(photo(6))))
    assert found.size == (32, 48)
