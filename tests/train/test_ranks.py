"""The rank of a process: from arguments, from torch where it is initialised, from the environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from lading.errors import UsageError
from lading.train.ranks import rank_and_world_size


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "3"}, (0, 1)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0"}, (5, 6)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, (0, 1)),  # a batch script, which no srun started
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0"}, (1, 2)),
    ],
)
def test_the_environment_tells(environment: Mapping[str, str], expected: tuple[int, int]) -> None:
    assert rank_and_world_size(environment=environment) == expected


def test_arguments_come_first() -> None:
    assert rank_and_world_size(1, 2, {"RANK": "3", "WORLD_SIZE": "8"}) == (1, 2)


@pytest.mark.parametrize(
    "rank, world, environment, words",
    [
        (1, None, {}, "both rank and world_size"),
        (2, 2, {}, "expected 0 to 1, found 2"),
        (-1, 2, {}, "no such rank"),
        (None, None, {"RANK": "x", "WORLD_SIZE": "2"}, "the variable RANK must be a whole number; found 'x'"),
        (None, None, {"RANK": "2", "WORLD_SIZE": "2"}, "no such rank"),
    ],
)
def test_what_is_no_rank_is_refused(
    rank: int | None, world: int | None, environment: Mapping[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        rank_and_world_size(rank, world, environment)


def test_nothing_is_imported_or_initialised() -> None:
    script = (
        "import sys; from lading.train.ranks import rank_and_world_size as f; f(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
