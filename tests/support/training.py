"""Jobs that train with several ranks: what they are given in the order of the job, stopped and resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Any

import lading
from lading._core.train.loader import Loader

__all__ = ["Job", "given", "keys", "planned", "ranks", "resumed"]

Sample = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """How a job reads.

    Attributes:
        batch_size: samples of a rank in a step.
        world_size: ranks.
        workers: worker processes of each.
    """

    batch_size: int
    world_size: int = 1
    workers: int = 0


def ranks(source: Any, batch_size: int, world_size: int, **options: Any) -> list[Loader]:
    """Return the loaders of all ranks of a job."""
    return [lading.loader(source, batch_size, rank=r, world_size=world_size, **options) for r in range(world_size)]


def given(loops: Sequence[Any], steps: int | None = None) -> Iterator[Sample]:
    """Yield the samples of the next steps of loaders, or of loops over them, in the order of the job.

    A sample says in `__padding__` whether it comes again to fill the last step; loaders that never do so say nothing.
    """
    for batches in islice(zip_longest(*loops), steps):
        for row in zip_longest(*map(_samples, batches)):
            yield from (sample for sample in row if sample is not None)


def _samples(batch: Any) -> list[Sample]:
    """The samples of a batch, whether it is a list of them or has columns."""
    if isinstance(batch, list):
        return batch
    return [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]


def keys(samples: Any) -> list[str]:
    """Return the keys of samples, without padding."""
    return [sample["__key__"] for sample in samples if not sample.get("__padding__")]


def resumed(source: Any, first: Job, steps: int, second: Job, **options: Any) -> tuple[list[Sample], list[Sample]]:
    """Return the samples of some steps of a job, and those that another job is given that goes on from its state.

    The other one goes on to the end of the epoch. The states of all ranks are the same, also as JSON.
    """
    loaders = ranks(source, first.batch_size, first.world_size, workers=first.workers, **options)
    loops = [iter(each) for each in loaders]
    before = [*given(loops, steps)]
    states = [json.dumps(each.state_dict()) for each in loaders]
    assert len({*states}) == 1
    del loops
    again = ranks(source, second.batch_size, second.world_size, workers=second.workers, **options)
    for loader in again:
        loader.load_state_dict(json.loads(states[0]))
    return before, [*given(again)]


def planned(count: int, job: Job, last: str, position: int = 0) -> list[list[tuple[int, bool]]]:
    """Return the steps of a job from a position on: of each sample its position, and whether it comes again.

    As the contract says it, position by position: a step takes the next positions, and ranks take turns.
    """
    steps = []
    while position < count and (last != "drop" or position + job.batch_size * job.world_size <= count):
        step = []
        for place in range(job.batch_size * job.world_size):
            at = position + place
            if at < count or last == "pad" or place < job.world_size:  # no rank lacks a step
                step.append((at % count, at >= count))
        steps.append(step)
        position += job.batch_size * job.world_size
    return steps
