"""Ray as an executor: each call is a task of Ray, on whichever node of the cluster has a free core."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from lading.errors import StoreError, UsageError, missing_extra

__all__ = ["RayExecutor"]

_Result = TypeVar("_Result")
_FUNCTIONS = 16
"""Functions that are known to the cluster, and not sent again."""


class _RayFuture(Future[_Result]):
    """The result of a task of Ray. Cancelling ends the task, whether it has begun or not."""

    end: Callable[[], None]

    def cancel(self) -> bool:
        """End the task."""
        if not self.done():
            self.end()
        return super().cancel()


class RayExecutor(Executor):
    """Calls functions as tasks of Ray, spread over the nodes. Ray does not repeat them: their sender does.

    A process that is connected to Ray stays so. Otherwise this executor connects, and disconnects at its end.

    Args:
        address: of the cluster. None takes `RAY_ADDRESS`, or the cluster of this machine, or starts one.

    Attributes:
        cpus: cores of the cluster.

    Raises:
        MissingExtra: Ray is not installed.
        StoreError: there is no cluster at the address.
        UsageError: the process is connected, and an address is given.
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise missing_extra(error, "this executor needs Ray", "ray", "Run: pip install 'lading[ray]'.") from error
        self._ray, self._connected = ray, not ray.is_initialized()
        if not self._connected and address is not None:
            raise UsageError("this process is connected to a cluster of Ray already", found=f"address={address!r}",
                             advice="Leave out the address.")  # fmt: skip
        if self._connected:
            try:
                ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
            except (OSError, RuntimeError, ValueError) as error:
                raise StoreError("Ray cannot be reached", found=str(error)[:200],
                                 expected="the address of a cluster, such as 10.0.0.1:6379 or ray://10.0.0.1:10001",
                                 advice="'ray status' shows whether the cluster runs.") from error  # fmt: skip
        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        remote = ray.remote(max_retries=0, scheduling_strategy="SPREAD")
        self._remote = lru_cache(maxsize=_FUNCTIONS)(remote)  # each new one is sent to all nodes

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call a function on a node; return its future result. A task whose process dies raises Ray's own error."""
        reference = self._remote(fn).remote(*args, **kwargs)
        result: _RayFuture[_Result] = _RayFuture()
        result.end = lambda: self._ray.cancel(reference, force=True)

        def hand_on(inner: Future[_Result]) -> None:
            error = inner.exception()
            with suppress(InvalidStateError):  # it was cancelled
                if error is None:
                    result.set_result(inner.result())
                else:
                    result.set_exception(error)

        reference.future().add_done_callback(hand_on)
        return result

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as of `Executor`
        """Disconnect from the cluster, which ends its tasks."""
        if self._connected:
            self._connected = False
            self._ray.shutdown()
