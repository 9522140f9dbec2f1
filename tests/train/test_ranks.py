"""The rank of a process: from arguments, from torch where it is initialised, from the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lading
from lading._core.train.ranks import cores_of_rank, rank_and_world_size
from lading._core.train.reading import Reading
from lading.errors import UsageError


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "8"}, (3, 8)),
        ({"RANK": "3"}, (0, 1)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, (5, 6)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6"}, (0, 1)),  # a batch script, which no srun started
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "6", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1)),  # a shell of salloc -n 6
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, (1, 2)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}, (3, 8)),
        ({"PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8)),
        # mpirun starts a task of Slurm on each machine, and that one the ranks
        (
            {
                "OMPI_COMM_WORLD_RANK": "3",
                "OMPI_COMM_WORLD_SIZE": "8",
                "SLURM_PROCID": "0",
                "SLURM_STEP_NUM_TASKS": "2",
            },
            (3, 8),
        ),
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
        ("0", 2, {}, "expected two whole numbers, found rank='0', world_size=2"),
        (0, 2.0, {}, "expected two whole numbers, found rank=0, world_size=2.0"),
        (-1, 2, {}, "no such rank"),
        (None, None, {"RANK": "x", "WORLD_SIZE": "2"}, "the variable RANK must be a whole number; found 'x'"),
        (
            None,
            None,
            {"RANK": "2", "WORLD_SIZE": "2"},
            "RANK is no rank; expected less than WORLD_SIZE=2, found 2. Unset",
        ),
    ],
)
def test_what_is_no_rank_is_refused(rank: Any, world: Any, environment: Mapping[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        rank_and_world_size(rank, world, environment)


@pytest.mark.soak
def test_nothing_is_imported_or_initialised() -> None:
    script = (
        "import sys; from lading._core.train import ranks; ranks.rank_and_world_size(); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.soak
def test_users_of_other_frameworks_need_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; from lading.train import Loader, Packer, frames; frames(count=8)"
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "environment, cores",
    [
        ({}, 16),
        ({"OMP_NUM_THREADS": "1"}, 16),  # torchrun sets it in every rank
        ({"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "8"}, 2),
        ({"LOCAL_WORLD_SIZE": "3"}, 5),
        ({"LOCAL_WORLD_SIZE": "32"}, 1),
        ({"LOCAL_WORLD_SIZE": ""}, 16),
    ],
)
def test_ranks_of_torchrun_share_the_cores(
    environment: Mapping[str, str], cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(16)}, raising=False)
    assert cores_of_rank(environment) == cores


def test_workers_share_the_cores_of_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(16)}, raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # as in a worker
    assert [Reading().shared_by(workers).threads for workers in (1, 4, 100)] == [8, 2, 1]
    assert [Reading(threads=3).shared_by(workers).threads for workers in (1, 4)] == [3, 3]


def test_a_local_world_size_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="the variable LOCAL_WORLD_SIZE must be a whole number; found 'x'"):
        cores_of_rank({"LOCAL_WORLD_SIZE": "x"})


@pytest.mark.soak
def test_ranks_of_torchrun_decode_in_several_threads(tmp_path: Path) -> None:
    """torchrun gives each rank one thread of OpenMP, by which pyarrow counts cores."""
    with lading.writer(tmp_path / "samples", format="webdataset") as writer:
        for number in range(63):
            writer.write({"__key__": f"{number:02}", "cls": number})
    script = (
        "import os, sys, threading, lading; os.sched_getaffinity = lambda _: {0, 1, 2}; both = threading.Barrier(3)\n"
        "def meet(sample): both.wait(60); return sample\n"
        "print(sum(len(batch) for batch in lading.loader(sys.argv[1], 1, collate='list', transform=meet, timeout=90)))"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "samples")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    assert subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout == "63\n"
