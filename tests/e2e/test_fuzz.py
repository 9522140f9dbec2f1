"""Every reader, given golden files with damages drawn by chance: `make test` tries 60 a format, `make soak` 10,000.

The first reads each in one of the five ways there are, drawn by chance too, the second in all. What is told names seed
and number of a damage; `fuzz(…, start=number, count=1)` with the same seed makes it again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fuzz import fuzz
from fuzz_targets import TARGETS, find_readings
from golden_cases import Golden

_COUNT = int(os.environ.get("LADING_FUZZ", "60"))
_WAYS = 1 if _COUNT <= 1000 else 5
_SEED = os.environ.get("LADING_FUZZ_SEED", "0")
_MOST_TOLD = 10


@pytest.mark.mechanism("damaged files, read by a watched process")
@pytest.mark.cases(2)
@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_end_in_data_or_in_an_error_of_lading(golden: Golden, target: str, tmp_path: Path) -> None:
    faults = fuzz(find_readings(golden, target), f"{target} {_SEED}", _COUNT, tmp_path, ways=_WAYS)
    assert not faults, f"{len(faults)} faults:\n" + "\n".join(faults[:_MOST_TOLD])
