"""Sizes as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lading._core.units import format_seconds, parse_bytes, parse_peer_bytes, parse_sample
from lading.errors import UsageError


@pytest.mark.parametrize(
    "told, size",
    [
        (5, 5), (np.int64(5), 5), (np.uint8(200), 200), ("4096B", 4096), ("0", 0), ("100kb", 102_400),
        ("100k", 102_400), ("1.5 GB", 1_610_612_736), ("1.5GiB", 1_610_612_736), ("3 KiB", 3072),
        ("2Mi", 2 << 20), ("1TiB", 1 << 40),
    ],
)  # fmt: skip
def test_sizes(told: Any, size: int) -> None:
    found = parse_bytes(told)
    assert (found, type(found)) == (size, int)


@pytest.mark.parametrize(
    "told", [True, np.True_, -1, np.int8(-1), 5.0, None, "", "-1", "9" * 5000, "1e3", 1 << 63, "256", "1ib"]
)
def test_what_is_no_size(told: Any) -> None:
    with pytest.raises(UsageError):
        parse_bytes(told)


@pytest.mark.parametrize("text, size", [("4096", 4096), ("100kb", 102_400), (4096, 4096)])
def test_sizes_of_streaming(text: int | str, size: int) -> None:
    """A text without a unit counts bytes, as in streaming's `bytes_to_int`."""
    assert parse_peer_bytes(text) == size


@pytest.mark.parametrize("text, size", [("10%", 0.1), ("0.5 %", 0.005), ("100%", 1.0), ("0.1", 0.1), ("10", 10)])
def test_samples(text: str, size: float) -> None:
    found = parse_sample(text)
    assert (found, type(found)) == (size, type(size))


@pytest.mark.parametrize("text", ["", "-1", "1%%", "x", "9" * 19, "9" * 5000])
def test_what_is_no_sample(text: str) -> None:
    with pytest.raises(UsageError, match="a sample is a fraction or a number"):
        parse_sample(text)


@pytest.mark.parametrize(
    "seconds, text",
    [(0.3, "0.3 seconds"), (119.4, "119 seconds"), (150, "2.5 minutes"), (7200, "2.0 hours"), (1e6, "11.6 days")],
)
def test_times_are_in_the_largest_unit_of_which_there_are_two(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
