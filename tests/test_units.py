"""Sizes as people write them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lading._core.units import parse_bytes
from lading.errors import UsageError


@pytest.mark.parametrize(
    "told, size",
    [(5, 5), (np.int64(5), 5), (np.uint8(200), 200), ("4096", 4096), ("100kb", 102_400), ("1.5 GB", 1_610_612_736)],
)
def test_sizes(told: Any, size: int) -> None:
    found = parse_bytes(told)
    assert (found, type(found)) == (size, int)


@pytest.mark.parametrize("told", [True, np.True_, -1, np.int8(-1), 5.0, None, "", "-1", "9" * 5000, "1e3", 1 << 63])
def test_what_is_no_size(told: Any) -> None:
    with pytest.raises(UsageError):
        parse_bytes(told)
