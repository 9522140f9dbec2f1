"""Dask as an executor: each call is a task of Dask, on whichever worker of the cluster is free."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from importlib import import_module
from typing import Any, TypeVar

from lading.errors import StoreError, UsageError, missing_extra

__all__ = ["DaskExecutor"]

_Result = TypeVar("_Result")


class DaskExecutor(Executor):
    """Calls functions as tasks of Dask.

    A process that has a client uses that one. Otherwise this executor connects, and disconnects at its end.

    Args:
        address: of the scheduler. None takes the client of this process, or `DASK_SCHEDULER_ADDRESS`.

    Attributes:
        cpus: threads of all workers of the cluster.

    Raises:
        MissingExtra: Dask is not installed.
        StoreError: there is no scheduler at the address.
        UsageError: nothing tells an address.
    """

    def __init__(self, address: str | None = None) -> None:
        try:
            distributed: Any = import_module("distributed")
        except ImportError as error:
            advice = "Run: pip install 'lading[dask]'."
            raise missing_extra(error, "this executor needs Dask", "distributed", advice) from error
        client, self._own = None if address else _current(distributed), None
        if client is None:
            address = address or import_module("dask").config.get("scheduler-address", None)
            if address is None:
                raise UsageError("Dask needs the address of a scheduler",
                                 advice="Add --address tcp://HOST:8786, or set DASK_SCHEDULER_ADDRESS. On one machine, "
                                 "leave out --executor.")  # fmt: skip
            try:
                distributed.comm.get_address_host_port(address, strict=True)  # a client without one waits a minute
                client = self._own = distributed.Client(address, set_as_default=False)
            except (OSError, TimeoutError, ValueError) as error:
                raise StoreError("Dask cannot be reached", found=str(error)[:200],
                                 expected="the address of a scheduler, such as tcp://10.0.0.1:8786"
                                 ) from error  # fmt: skip
        self.cpus = max(1, sum(client.ncores().values()))
        self._tasks: Any = client.get_executor(pure=False)

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        """Call a function on a worker; return its future result. After several deaths of workers, that is an error."""
        future: Future[_Result] = self._tasks.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002 - as of `Executor`
        """Disconnect from the cluster."""
        self._tasks.shutdown(wait=wait)  # what was not waited for is cancelled
        if self._own is not None:
            self._own.close()


def _current(distributed: Any) -> Any:
    """Return the client that this process has; None if it has none."""
    try:
        return distributed.Client.current()
    except ValueError:
        return None
