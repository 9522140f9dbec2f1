"""Which part of a job this process is: its rank, and how many ranks there are.

Nothing is initialised, and no package is imported: `torch.distributed` is asked only where the program has set it up.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from lading.errors import UsageError

__all__ = ["rank_and_world_size"]

_VARIABLES: Final[tuple[tuple[str, str], ...]] = (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS"))


def rank_and_world_size(
    rank: int | None = None, world_size: int | None = None, environment: Mapping[str, str] | None = None
) -> tuple[int, int]:
    """The rank of this process and the number of ranks.

    From the arguments, else from `torch.distributed` where it is initialised, else from `RANK` and `WORLD_SIZE`
    (torchrun), else from `SLURM_PROCID` and `SLURM_NTASKS` (a step of `srun`), else 0 and 1.

    Args:
        rank: of this process, from 0; with `world_size`.
        world_size: number of ranks.
        environment: variables to look at; by default those of the process.

    Raises:
        UsageError: only one of the two is given, they are no such numbers, or the rank is not below the world size.
    """
    if (rank is None) != (world_size is None):
        given = f"rank={rank}, world_size={world_size}"
        raise UsageError("give both rank and world_size, or neither", found=given)
    if rank is None or world_size is None:
        found = _of_torch() or _of_environment(os.environ if environment is None else environment)
        rank, world_size = found or (0, 1)
    if not 0 <= rank < world_size:
        raise UsageError("no such rank", expected=f"0 to {world_size - 1}", found=str(rank))
    return rank, world_size


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
        if names[0] == "SLURM_PROCID" and "SLURM_STEP_ID" not in environment:
            continue  # a batch script itself is no rank of its allocation
        for name, text in zip(names, texts, strict=True):
            if not text.isdecimal():
                raise UsageError(f"the variable {name} must be a whole number", found=repr(text))
        return int(texts[0]), int(texts[1])
    return None
