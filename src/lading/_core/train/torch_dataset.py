"""The batches of a loader as a `torch.utils.data.IterableDataset`, whose worker processes take turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from lading.errors import UsageError

if TYPE_CHECKING:
    from lading._core.train.loader import Loader

__all__ = ["Loops", "TorchBatches", "loop_of_worker"]

_MOST_WORKERS: Final = 1024
_KEPT_LOOPS: Final = 8
_NO_EPOCH: Final = -1
_EPOCH_BITS: Final = 31
_NO_WORKER: Final = 1 << 31


class TorchBatches(IterableDataset[Any]):
    """The batches of a loader, for `torch.utils.data.DataLoader`; made by `Loader.to_torch`.

    Each worker process makes every n-th batch, so the batches come in the order of the loader with any number of
    workers. Each loop gives the next epoch.

    Args:
        loader: gives the batches, from where it stands.
    """

    def __init__(self, loader: Loader) -> None:
        state = loader.state_dict()
        self._loader, self._loops = loader, Loops(state["epoch"], state["position"])

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        return _Turn(self._loader, self._loops, *loop_of_worker())

    def set_epoch(self, epoch: int) -> None:
        """Make the next loop give this epoch; an epoch that was resumed, and no loop has given, goes on."""
        self._loops.set_epoch(epoch)

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state for `Loader.load_state_dict` when the loop that began last has given so many batches.

        Example: `torch.save(dataset.state_after(step), path)`
        """
        epoch, position = self._loops.last()
        return self._loader.state_at(epoch, self._loader.position_after(epoch, position, batches))


def loop_of_worker() -> tuple[int, int, int]:
    """The number of this worker process, the number of workers, and the mark of their loop, for `Loops.begin`."""
    info = get_worker_info()
    if info is None:
        return 0, 1, _NO_WORKER
    return info.id, info.num_workers, (_MOST_WORKERS * (info.seed - info.id) + info.num_workers) % _NO_WORKER or 1


class _Turn(Iterator[Any]):
    """The batches of a loop that one worker makes. Its state is that of a loader at the worker's next batch."""

    def __init__(self, loader: Loader, loops: Loops, worker: int, workers: int, mark: int) -> None:
        self._loader, self._loops, self._worker, self._workers = loader, loops, worker, workers
        self._epoch, position = loops.begin(worker, mark)
        self._position = loader.position_after(self._epoch, position, worker)
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._loader.batches(self._epoch, self._position, self._workers)
        batch = next(self._batches)
        self._position = self._loader.position_after(self._epoch, self._position, self._workers)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """The state of a loader whose next batch is the next one of this worker."""
        return {**self._loader.state_at(self._epoch, self._position), **self._loader.share_of(self._epoch).step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on at the next batch of the worker that made the state."""
        self._loader.refuse_other_state(state)
        self._epoch, self._position, self._batches = state["epoch"], state["position"], None
        self._loops.restore(self._worker, self._epoch)


class Loops:
    """Which epoch each loop gives. Worker processes agree on it through memory that they share.

    A `DataLoader` tells its dataset nothing when a loop begins. But the workers of a loop have one seed, another loop
    has another, and persistent workers keep theirs. So a worker that finds the seed of its loop takes the epoch that
    stands there; else it takes the next one.

    Args:
        epoch: of the first loop.
        position: where the first loop begins.
    """

    def __init__(self, epoch: int, position: int) -> None:
        self._first = torch.tensor([epoch, position]).share_memory_()  # type: ignore[no-untyped-call] # torch has no type for it
        # Of each worker, its last loops: the mark of the seed, and below it the epoch of the next loop. A worker sees a
        # number of another one whole or not at all.
        self._table = torch.full((_MOST_WORKERS, _KEPT_LOOPS), epoch)
        self._table.share_memory_()  # type: ignore[no-untyped-call] # the same

    def begin(self, worker: int, mark: int) -> tuple[int, int]:
        """Enter a loop: its epoch and the position where it begins."""
        if worker >= _MOST_WORKERS:
            raise UsageError("too many workers", expected=f"{_MOST_WORKERS} at most", found=f"worker {worker}")
        marks, nexts = self._marks_and_nexts()
        mine, all_ours = nexts[worker][marks[worker] == mark], nexts[marks == mark]
        # A worker that is late to its first loop may find others in the next one already.
        epoch = int(mine.max() if len(mine) else all_ours.min() - 1 if len(all_ours) else nexts.max())
        self._table[worker, int(nexts[worker].argmin())] = (mark << _EPOCH_BITS) + epoch + 1
        marks, nexts = self._marks_and_nexts()
        firsts = np.where(marks == mark, nexts, 1 << _EPOCH_BITS).min(axis=1)  # of each worker
        if not len(mine) and len(np.unique(firsts[(marks == mark).any(axis=1)])) > 1:
            raise UsageError("two loops over one dataset began at once, and their workers do not know which is theirs",
                             advice="Give each DataLoader a dataset of its own: loader.to_torch().")  # fmt: skip
        first, position = self._first.tolist()
        return epoch, position if epoch == first else 0

    def last(self) -> tuple[int, int]:
        """The epoch of the loop that began last, and the position where it began."""
        first, position = self._first.tolist()
        epoch = max(int(self._marks_and_nexts()[1].max()) - 1, first)
        return epoch, position if epoch == first else 0

    def set_epoch(self, epoch: int) -> None:
        """Make this the epoch of the next loop."""
        first, _ = self._first.tolist()
        if epoch != first or int(self._marks_and_nexts()[1].max()) > epoch:
            self._first[0], self._first[1] = epoch, 0
        self._table.fill_(epoch)

    def resume(self, epoch: int, position: int) -> None:
        """Make the next loop begin at a position of an epoch."""
        self._first[0], self._first[1] = epoch, position
        self._table.fill_(epoch)

    def restore(self, worker: int, epoch: int) -> None:
        """Make the loop that a worker has entered give another epoch."""
        self._first[0] = _NO_EPOCH
        self._table[worker] = epoch + 1

    def _marks_and_nexts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        table = self._table.numpy().copy()
        return table >> _EPOCH_BITS, table & ((1 << _EPOCH_BITS) - 1)
