"""Random crops and mirrors: torchvision's laws, and the same of a sample whatever ranks, threads and stops there are.

Laws of draws are read from the pixels of images that say where they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image as Pillow

import lading
from lading._core.train.columns import ColumnMaker, Recipe
from lading._core.train.images import as_pixels
from lading.errors import UsageError
from lading.train import images

_COUNT = 23
_SIDE = 256


def _ramp(height: int, width: int, blue: int = 0) -> Pillow.Image:
    """Red grows from left to right and green from top to bottom: pixels say where they were."""
    across = np.broadcast_to(np.arange(width) * 256 // width, (height, width))
    down = np.broadcast_to((np.arange(height) * 256 // height)[:, None], (height, width))
    return Pillow.fromarray(np.stack([across, down, np.full((height, width), blue)], axis=2).astype(np.uint8))


def _file(image: Pillow.Image, kind: str = "PNG", **options: Any) -> bytes:
    data = io.BytesIO()
    image.save(data, kind, **options)
    return data.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of different sizes, with a mask of half the size."""
    path = tmp_path_factory.mktemp("images") / "tars"
    with lading.writer(path, format="webdataset") as writer:
        for number in range(_COUNT):
            height, width = 60 + 4 * number, 140 - 2 * number
            mask = _ramp(height // 2, width // 2, number)
            writer.write({"cls": number, "png": _file(_ramp(height, width, number)), "mask.png": _file(mask)})
    return path


_CROPS = images(16, random_crop=(0.08, 1), flip=0.5)


def _loader(source: Any, batch_size: int = 5, **options: Any) -> Any:
    given = {"columns": ["cls", "png"], "decode": {"png": _CROPS}, "shuffle": True, "seed": 3}
    return lading.loader(source, batch_size, **{**given, **options})


def _pixels(*loaders: Any) -> dict[int, bytes]:
    """The pixels of each sample of an epoch, also where it comes again to fill the last step."""
    found: dict[int, bytes] = {}
    for loader in loaders:
        for batch in loader:
            assert batch["png"].shape[1:] == (16, 16, 3)
            for number, pixels in zip(batch["cls"].tolist(), batch["png"], strict=True):
                assert found.setdefault(number, pixels.tobytes()) == pixels.tobytes()
    return found


def test_images_do_not_depend_on_who_makes_the_batches(folder: Path) -> None:
    expected = _pixels(_loader(folder))
    assert len(set(expected.values())) == len(expected) == _COUNT
    assert _pixels(_loader(folder, 7, threads=1)) == expected
    assert _pixels(*(_loader(folder, rank=rank, world_size=3) for rank in range(3))) == expected
    assert _pixels(_loader(folder, transform=lambda sample: sample)) == expected
    after = _loader(folder, 4)
    after.load_state_dict({**after.state_dict(), "position": 11})
    rest = _pixels(after)
    assert len(rest) == _COUNT - 11
    assert rest.items() <= expected.items()


@pytest.mark.soak
def test_images_of_workers(folder: Path) -> None:
    assert _pixels(_loader(folder, workers=2)) == _pixels(_loader(folder))


def test_images_differ_between_epochs_and_seeds(folder: Path) -> None:
    loader = _loader(folder)
    first, second, other = _pixels(loader), _pixels(loader), _pixels(_loader(folder, seed=4))
    assert not {*first.values()} & {*second.values()}
    assert not {*first.values()} & {*other.values()}


def test_a_transform_draws_the_same_beside_random_images(folder: Path) -> None:
    def drawn(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"cls": sample["cls"], "drawn": rng.integers(1 << 62)}

    with_images = next(iter(_loader(folder, _COUNT, transform=drawn)))
    without = next(iter(_loader(folder, _COUNT, transform=drawn, decode=False)))
    assert dict(zip(with_images["cls"].tolist(), with_images["drawn"].tolist(), strict=True)) == dict(
        zip(without["cls"].tolist(), without["drawn"].tolist(), strict=True)
    )


def test_columns_of_a_sample_are_cut_and_mirrored_alike(folder: Path) -> None:
    decode = {"png": _CROPS, "mask.png": _CROPS}
    for batch in _loader(folder, columns=None, decode=decode):
        far = np.abs(batch["png"].astype(int) - batch["mask.png"].astype(int))
        assert far.mean() < 4  # of 255: a pixel of the mask is as large as two


def _boxes(crops: Any, height: int, width: int, count: int = 400) -> Iterator[tuple[float, float, float, float, bool]]:
    """Where crops of an image are, read from their pixels: left, upper, right, lower in pixels; whether mirrored."""
    data, rng = _file(_ramp(height, width)), np.random.default_rng(1)
    for _ in range(count):
        red, green, _ = np.moveaxis(as_pixels(data, "numpy", crops, rng).astype(float), 2, 0)
        (left, right), (upper, lower) = red[0, [0, -1]] / 256 * width, green[[0, -1], 0] / 256 * height
        mirrored = bool(left > right)
        step = abs(right - left) / (red.shape[1] - 1), (lower - upper) / (red.shape[0] - 1)
        left, right = sorted((left, right))
        yield left - step[0] / 2, upper - step[1] / 2, right + step[0] / 2, lower + step[1] / 2, mirrored


@pytest.mark.parametrize("size", [(64, 64), (32, 96)])
def test_crops_have_the_shares_proportions_and_places_of_torchvision(size: tuple[int, int]) -> None:
    """Shares of the area are uniform, proportions uniform by their logarithm, and places uniform where they fit.

    A square image of 256 pixels: a share of at most a sixth fits in each drawn proportion.
    """
    found = np.array([*_boxes(images(size, random_crop=(0.05, 0.16), flip=0.25), _SIDE, _SIDE)])
    left, upper, right, lower, mirrored = found.T
    across, down = right - left, lower - upper
    share = (across * down / _SIDE**2 - 0.05) / 0.11
    proportion = (np.log(across / down / (size[1] / size[0])) - np.log(3 / 4)) / np.log(16 / 9)
    place = left / np.maximum(_SIDE - across, 1), upper / np.maximum(_SIDE - down, 1)
    for uniform in (share, proportion, *place):
        counts = np.histogram(np.clip(uniform, 0, 1 - 1e-9), 5, (0, 1))[0] / len(found)
        assert (np.abs(uniform - 0.5) < 0.56).all()  # read from pixels
        assert np.abs(counts - 0.2).max() < 0.07  # 3.5 standard deviations
    assert abs(mirrored.mean() - 0.25) < 0.08


def test_a_crop_that_does_not_fit_is_the_largest_in_the_middle() -> None:
    """As torchvision's: whole height, and a width of 4/3 of it, in the middle."""
    for box in _boxes(images(32, random_crop=(1, 1)), 40, 160, 3):
        assert np.abs(np.subtract(box, (160 / 2 - 40 * 2 / 3, 0, 160 / 2 + 40 * 2 / 3, 40, 0))).max() < 2
    for box in _boxes(images((20, 40), random_crop=(1, 1), ratio=(1, 1)), 40, 40, 3):
        assert np.abs(np.subtract(box, (0, 10, 40, 30, 0))).max() < 1


@pytest.mark.parametrize("turn", range(1, 9))
def test_crops_of_turned_jpegs_are_those_of_upright_ones(turn: int) -> None:
    """Also where the decoder gives a half or a quarter of the image."""
    exif = Pillow.Exif()
    exif[0x0112] = turn
    back = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}.get(turn)
    upright = _ramp(300, 500)
    stored = upright if back is None else upright.transpose(Pillow.Transpose(back))
    turned, straight = _file(stored, "JPEG", exif=exif, quality=95), _file(upright)
    for seed in range(8):
        crops = images(40, random_crop=(0.1, 1), flip=0.5)
        found, expected = (
            as_pixels(data, "numpy", crops, np.random.default_rng(seed)).astype(int) for data in (turned, straight)
        )
        assert np.abs(found - expected).mean() < 3


def test_images_of_a_list_are_cut_by_themselves(tmp_path: Path) -> None:
    image = _file(_ramp(50, 50))
    items = {"modality": ["image", "text", "image"], "text_content": [None, "and", None]}
    columns = {"sample_id": ["a"] * 3, "position": pa.array(range(3), pa.int32()), **items}
    (tmp_path / "docs").mkdir()
    pq.write_table(pa.table({**columns, "binary_content": [image, None, image]}), tmp_path / "docs" / "0.parquet")
    crops = images(16, random_crop=(0.1, 0.3))
    [batch] = lading.loader(tmp_path / "docs", 1, decode={"binary_content": crops})
    of_documents = [batch["items"][0][i]["binary_content"] for i in (0, 2)]
    assert batch["items"][0][1]["text_content"] == "and"
    with lading.writer(tmp_path / "lists", format="parquet") as writer:
        writer.write({"x": [_ramp(50, 50), _ramp(50, 50)]})
    [batch] = lading.loader(tmp_path / "lists", 1, decode={"x": crops})
    for first, second in (of_documents, batch["x"][0]):
        assert first.shape == second.shape == (16, 16, 3)
        assert not np.array_equal(first, second)


def test_the_size_and_the_fit_of_the_loader_hold_where_a_column_has_none(folder: Path) -> None:
    def shapes(**options: Any) -> tuple[int, ...]:
        batch = next(iter(_loader(folder, 2, shuffle=False, **options)))
        return tuple(batch["png"].shape)

    assert shapes(decode={"png": images(flip=1)}, image_size=(8, 12)) == (2, 8, 12, 3)
    plain = next(iter(_loader(folder, 2, shuffle=False, decode=None, image_size=8, fit="crop")))["png"]
    flipped = next(iter(_loader(folder, 2, shuffle=False, decode={"png": images(flip=1)}, image_size=8, fit="crop")))
    assert np.array_equal(flipped["png"], plain[:, :, ::-1])
    own = next(iter(_loader(folder, 2, shuffle=False, decode={"png": images(flip=1)})))["png"]
    assert [image.shape for image in own] == [(60, 140, 3), (64, 138, 3)]


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"random_crop": (0, 1)}, "random_crop is the least and the most share"),
        ({"random_crop": (0.5, 1.5)}, "random_crop is the least and the most share"),
        ({"random_crop": 0.5}, "random_crop is the least and the most share"),
        ({"random_crop": (0.5, 1), "ratio": (2, 1)}, "ratio is the least and the most proportion"),
        ({"ratio": (1, 1)}, "ratio is the least and the most proportion"),
        ({"flip": 1.5}, "flip is a probability"),
        ({"flip": True}, "flip is a probability"),
        ({"random_crop": (0.5, 1), "fit": "crop"}, "a random crop is stretched to the size"),
        ({"fit": "cover"}, "no such fit"),
        ({"size": (4, 8), "fit": "shortest"}, "the shortest side is one number"),
        ({"size": None, "fit": "cover"}, "no such fit"),
        ({"size": 0}, "size is a number of at least 1"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        images(**{"size": 4, **options})


_OWN_SIZE, _CUT = images(4, fit="crop"), images(random_crop=(0.5, 1))


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"decode": {"png": _OWN_SIZE}}, "image_size changes no image"),
        ({"decode": {"png": None}}, "image_size changes no image"),
        ({"decode": {"png": len}}, "image_size changes no image"),
        ({"decode": {"png": _OWN_SIZE}, "image_size": [(4, 8), (8, 4)]}, "image_size changes no image"),
        ({"decode": {"png": _CUT}, "fit": "pad"}, "fit changes no image"),
        ({"decode": {"cls": None}, "columns": ["cls"]}, "no column holds images"),
    ],
)
def test_a_size_and_a_fit_of_the_loader_that_change_no_image_are_refused(
    folder: Path, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        _loader(folder, **{"image_size": 8, **options})


def test_images_are_shown_as_they_are_written() -> None:
    assert repr(images(224, random_crop=(0.08, 1))) == "lading.train.images(size=(224, 224), random_crop=(0.08, 1))"


def test_images_without_a_size_are_refused_where_they_need_one(folder: Path) -> None:
    with pytest.raises(UsageError, match="a random crop is stretched to a size, and there is none"):
        ColumnMaker(Recipe(decode={"png": images(random_crop=(0.5, 1))}))
    with pytest.raises(UsageError, match="fit says how images come to a size, and there is none"):
        ColumnMaker(Recipe(decode={"png": images(fit="pad")}))
    both: list[dict[str, Any]] = [
        {"decode": {"png": images((4, 8))}, "image_size": 8, "fit": "shortest"},
        {"decode": {"png": images(fit="shortest")}, "image_size": (4, 8)},
    ]
    for recipe in both:
        with pytest.raises(UsageError, match="the shortest side is one number"):
            ColumnMaker(Recipe(**recipe))
    with pytest.raises(UsageError, match=r"lading\.train\.images is for images and bytes"):
        next(iter(_loader(folder, decode={"cls": images(4)})))
