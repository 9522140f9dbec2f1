"""Which part of a job this process is: its rank, how many ranks there are, and its part of the machine's cores.

Nothing is initialised, and no package is imported: `torch.distributed` is asked only where the program has set it up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from lading._core.processes.cores import usable_cores
from lading.errors import UsageError

__all__ = ["cores_of_rank", "rank_and_world_size"]

_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpirun of Open MPI, which may start one task of Slurm a machine
    ("PMI_RANK", "PMI_SIZE"),  # mpirun of MPICH
    # `srun`. SLURM_NTASKS is of the allocation, in a batch script and in the shell that `salloc` opens.
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def rank_and_world_size(
    rank: int | None = None, world_size: int | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """The rank of this process and the number of ranks.

    From the arguments, else from `torch.distributed` where it is initialised, else from the variables of torchrun
    (`RANK`, `WORLD_SIZE`), of `mpirun`, or of a step of Slurm, else 0 and 1.

    Args:
        rank: of this process, from 0; with `world_size`.
        world_size: number of ranks.
        environment: variables to look at; by default those of the process.

    Raises:
        UsageError: only one of the two is given, they are no such numbers, or the rank is not below the world size.
    """
    if rank is world_size is None:
        found = _of_torch() or _of_environment(os.environ if environment is None else environment)
        return found or (0, 1)
    if type(rank) is not int or type(world_size) is not int:
        given = f"rank={rank!r}, world_size={world_size!r}"
        raise UsageError("give both rank and world_size, or neither", expected="two whole numbers", found=given)
    if not 0 <= rank < world_size:
        raise UsageError("no such rank", expected=f"0 to {world_size - 1}", found=str(rank))
    return rank, world_size


def cores_of_rank(environment: Mapping[str, str] | None = None) -> int:
    """The cores for this process: those that it may use, shared by the ranks that torchrun started on this machine.

    `OMP_NUM_THREADS` is not asked, and so neither is pyarrow: torchrun sets it to 1 in every rank.

    Args:
        environment: variables to look at; by default those of the process.

    Raises:
        UsageError: `LOCAL_WORLD_SIZE` is no number.
    """
    text = (os.environ if environment is None else environment).get("LOCAL_WORLD_SIZE") or "1"
    return max(usable_cores() // max(_whole_number("LOCAL_WORLD_SIZE", text), 1), 1)


def _of_torch() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _of_environment(environment: Mapping[str, str]) -> tuple[int, int] | None:
    for names in _VARIABLES:
        texts = [environment.get(name, "") for name in names]
        if not all(texts):
            continue
        rank, world_size = map(_whole_number, names, texts)
        if rank >= world_size:
            raise UsageError(
                f"the variable {names[0]} is no rank", expected=f"less than {names[1]}={world_size}", found=rank,
                advice=f"Unset {names[0]} and {names[1]}, or give rank= and world_size=.",
            )  # fmt: skip
        return rank, world_size
    return None


def _whole_number(name: str, text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"the variable {name} must be a whole number", found=repr(text))
    return int(text)
