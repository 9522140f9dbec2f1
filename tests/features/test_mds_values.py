"""Values in MDS's encodings; those that a peer wrote are in `tests/formats/test_mds_golden.py`."""

from __future__ import annotations

import pickle
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from lading._core.features.mds_values import DTYPES, decode_mds, is_encoding, parse_array
from lading.errors import DataError

_CODES = {name: code for code, name in DTYPES.items()}
_WIDTHS = {1: 0, 2: 1, 4: 2, 8: 3}


@pytest.mark.soak
@given(
    st.sampled_from(sorted(_CODES)),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(["all", "dtype", "none"]),
)
def test_arrays_as_the_format_has_them(dtype: str, shape: list[int], width: int, told: str) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    extents = bytes([len(shape) << 2 | _WIDTHS[width]]) + np.array(shape, f"<u{width}").tobytes()
    encoding, head = {
        "all": ("ndarray:" + dtype + ":" + ",".join(map(str, shape)), b""),
        "dtype": ("ndarray:" + dtype, extents),
        "none": ("ndarray", bytes([_CODES[dtype]]) + extents),
    }[told]
    data = head + array.astype(np.dtype(dtype).newbyteorder("<")).tobytes()
    found = decode_mds(encoding, data)
    assert (found.dtype.name, found.shape) == (dtype, tuple(shape))
    assert found.tobytes() == array.tobytes()
    for cut in range(len(data)):
        with pytest.raises(DataError):
            decode_mds(encoding, data[:cut])
    with pytest.raises(DataError):
        decode_mds(encoding, data + b"\0")


@pytest.mark.parametrize("encoding, data", [
    ("ndarray", b""),
    ("ndarray", b"\x07\x04\x01\0"),  # no such type
    ("ndarray", b"\x08\x04\0"),  # an extent of 0
    ("ndarray", b"\x08\0"),  # no extents
    ("ndarray", b"\x08" + bytes([2 << 2 | 3]) + struct.pack("<QQ", 2**40, 2**40)),
    ("ndarray", b"\x08" + bytes([63 << 2 | 3])),
    ("pil", b""),
    ("pil", struct.pack("<III", 2, 2, 1) + b"L" + bytes(3)),
    ("pil", struct.pack("<III", 2**31, 2**31, 1) + b"L"),
    ("pil", struct.pack("<III", 2**32 - 1, 0, 3) + b"RGB"),  # no pixels, whatever the other extent
    ("pil", struct.pack("<III", 0, 2**32 - 1, 3) + b"RGB"),
    ("pil", struct.pack("<III", 0, 2**31 - 1, 3) + b"RGB"),  # 16 GiB of pointers to rows
    ("pil", struct.pack("<III", 2**31, 0, 1) + b"1"),
    ("pil", struct.pack("<III", 1, 1, 3) + b"ZZZ" + bytes(3)),
    ("pil", struct.pack("<III", 1, 1, 2**31) + b"L"),
    ("list[jpeg]", b""),
    ("list[jpeg]", struct.pack("<II", 0, 2**31)),
    ("list[png]", struct.pack("<III", 0, 1, 5) + b"four"),
    ("list[png]", struct.pack("<III", 0, 1, 3) + b"four"),
    ("jpeg_array", struct.pack("<I", 2**32 - 1)),
    ("str_int", b"x"),
    ("str_int", "9" * 5000),
    ("str_float", "1,5"),
    ("str_decimal", "one"),
    ("str_decimal", b"\xff"),
    ("quux", b""),
])  # fmt: skip
def test_what_an_encoding_does_not_allow(encoding: str, data: Any) -> None:
    with pytest.raises(DataError):
        decode_mds(encoding, data)


def test_lists_numbers_and_pixels() -> None:
    assert decode_mds("list[jpeg]", struct.pack("<IIII", 0, 2, 1, 2) + b"abb") == [b"a", b"bb"]
    assert decode_mds("jpeg_array", struct.pack("<III", 2, 1, 2) + b"abb") == [b"a", b"bb"]
    assert decode_mds("jpegarray", struct.pack("<I", 0)) == []
    assert decode_mds("str_int", "-" + "9" * 40) == -(10**40 - 1)
    assert decode_mds("str_float", b"1e-3") == 0.001
    assert str(decode_mds("str_decimal", "1.50")) == str(Decimal("1.50"))
    image = Image.new("RGB", (3, 2), (1, 2, 3))
    pixels = struct.pack("<III", 3, 2, 3) + b"RGB" + image.tobytes()
    assert decode_mds("pil", pixels).tobytes() == image.tobytes()
    [found] = decode_mds("list[pil]", struct.pack("<III", 0, 1, len(pixels)) + pixels)
    assert (found.mode, found.size) == ("RGB", (3, 2))


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_pillow_has_images_without_pixels(size: tuple[int, int]) -> None:
    assert Image.new("RGB", size).tobytes() == b""
    assert decode_mds("pil", struct.pack("<III", *size, 3) + b"RGB").size == size


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return (pytest.fail, ("code of a pickle ran",))


def test_pickles_are_bytes_unless_they_are_allowed() -> None:
    data = pickle.dumps(_Trap())
    assert decode_mds("pkl", data) == data
    assert decode_mds("pkl", pickle.dumps({"a": 1}), allow_pickle=True) == {"a": 1}
    with pytest.raises(DataError, match="pickle"):
        decode_mds("pkl", b"no pickle", allow_pickle=True)


def test_which_encodings_there_are() -> None:
    assert parse_array("ndarray:float32:2,3") == ("float32", (2, 3))
    assert parse_array("ndarray") == (None, None)
    for wrong in ("ndarray:floaty", "ndarray:uint8:", "ndarray:uint8:0", "ndarray:uint8:2:3", "array", "ndarray:"):
        assert parse_array(wrong) is None
        assert not is_encoding(wrong)
    assert all(is_encoding(name) for name in ("pkl", "pil", "ndarray:int8", "list[png]", "str_int"))


@pytest.mark.parametrize("encoding", ["pil", "ndarray:uint8", "list[jpeg]", "str_int", "str_decimal"])
@pytest.mark.parametrize("value", [True, 1.5, ["a"], {"a": 1}])
def test_values_that_are_not_bytes_although_their_feature_says_so(encoding: str, value: Any) -> None:
    with pytest.raises(DataError, match="not a value of MDS"):
        decode_mds(encoding, value)
