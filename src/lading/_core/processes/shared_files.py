"""Values on their way between processes, in files without a name.

A value is pickled into a file of its own, arrays and tensors of at least 64 KB as they lie in memory. The descriptor of
the file is sent through a socket. The other process maps the file, and its arrays are views of the map. The memory is
free when nothing holds the map: no name in `/dev/shm`, no semaphore and no lock can stay behind.

Where the system has no files without a name (macOS), the same bytes go through the socket, and the sender waits until
they are taken.

A file holds the pickle, then buffers at multiples of 64 bytes, then the places of both, then their number.
"""

from __future__ import annotations

import io
import os
import pickle
import socket
import struct
import sys
from collections.abc import Callable
from typing import IO, Any, Final

import cloudpickle
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lading._core.arrow.views import child_fields, is_view, plain_type

__all__ = ["receive_value", "send_value"]

_ALIGNED: Final = 64
_LEAST_BYTES: Final = 64 << 10
"""Smaller buffers are copied: an array that the user keeps would keep the whole map in memory."""
_FILE, _BYTES = b"v", b"b"
_COUNT: Final = struct.Struct("<q")
_FOLDER: Final = "/proc/self/fd"


def send_value(sender: socket.socket, value: object) -> None:
    """Send a value, which must be picklable by cloudpickle.

    Raises:
        OSError: the other process has ended.
        Exception: whatever pickling raises; then nothing was sent.
    """
    new_file = getattr(os, "memfd_create", None)
    if new_file is None:
        memory = io.BytesIO()
        _write(memory, value)
        sender.sendall(_BYTES + _COUNT.pack(memory.tell()))
        sender.sendall(memory.getbuffer())
        return
    fd = new_file("lading")
    try:
        with open(fd, "wb", closefd=False) as file:
            _write(file, value)
        socket.send_fds(sender, [_FILE], [fd])
    finally:
        os.close(fd)


def receive_value(receiver: socket.socket) -> Any:
    """Wait for the next value. Its arrays may be written to; they are views of one map, which lives as long as they.

    Raises:
        EOFError: the other process has ended.
    """
    try:
        mark, fds, _, _ = socket.recv_fds(receiver, len(_FILE), 1)
        if mark == _BYTES:
            (size,) = _COUNT.unpack(_received(receiver, _COUNT.size))
            return _value(_received(receiver, size))
    except ConnectionResetError:
        mark, fds = b"", []
    if not mark:
        raise EOFError("the other process has ended")
    if not fds:
        raise OSError("no descriptor was left for a value of another process (ulimit -n)")
    try:
        return _read(fds[0])
    finally:
        os.close(fds[0])


def _received(receiver: socket.socket, size: int) -> memoryview:
    """Return the next bytes; they may be written to. EOFError if the other process ends before."""
    whole = left = np.empty(size, np.uint8).data
    while left:
        count = receiver.recv_into(left)
        if not count:
            raise EOFError("the other process has ended")
        left = left[count:]
    return whole


def _write(file: IO[bytes], value: object) -> None:
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        """Take a large buffer; say that a small one belongs into the pickle."""
        view = buffer.raw()
        if view.nbytes < _LEAST_BYTES:
            return True
        buffers.append(view)
        return False

    _Pickler(file, 5, buffer_callback=keep).dump(value)
    places = [(0, file.tell())]
    for view in buffers:
        begin = file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)
        file.write(view)
        places.append((begin, begin + view.nbytes))
    file.write(np.array(places, np.int64).tobytes() + _COUNT.pack(len(places)))


def _read(fd: int) -> Any:
    # Arrow keeps no descriptor of a map, as Python's does before 3.13: a loop that keeps many batches would need many.
    with pa.memory_map(f"{_FOLDER}/{fd}", "r+") as file:
        return _value(np.asarray(_Map(file.read_buffer())).data)


def _value(whole: memoryview) -> Any:
    end = len(whole) - _COUNT.size
    (count,) = _COUNT.unpack(whole[end:])
    places = np.frombuffer(whole[end - 16 * count : end], np.int64).reshape(count, 2).tolist()
    pickled, *buffers = (whole[begin:stop] for begin, stop in places)
    return pickle.loads(pickled, buffers=buffers)  # noqa: S301 - another process of this program wrote it


class _Map:
    """A map as an array that may be written to: nobody else has the file."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"version": 3, "typestr": "|u1", "shape": (self._buffer.size,), "data": (self._buffer.address, False)}


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # cloudpickle has no types
    """Pickles tensors by their bytes, and of Arrow tables the values alone."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(value) is getattr(torch, "Tensor", None) and _is_plain(torch, value):
            values = value.contiguous().reshape(-1).view(torch.uint8).numpy()
            return _tensor, (values, value.dtype, tuple(value.shape))
        if type(value) is pa.Table:
            return _reduced(value)
        return super().reducer_override(value)


def _is_plain(torch: Any, tensor: Any) -> bool:
    on_cpu = tensor.layout is torch.strided and tensor.device.type == "cpu" and not tensor.is_quantized
    return bool(on_cpu and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg()))


def _tensor(values: NDArray[np.uint8], dtype: Any, shape: tuple[int, ...]) -> Any:
    import torch

    return torch.from_numpy(values).view(dtype).reshape(shape)


def _reduced(table: pa.Table) -> tuple[Callable[..., pa.Table], tuple[Any, ...]]:
    """A table as an IPC stream without views: those would take all that they are views of along."""
    schema = pa.schema([field.with_type(_sent_type(field.type)) for field in table.schema], table.schema.metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_table(_cast(table, schema))
    return _table, (sink.getvalue(), table.schema)


def _table(stream: pa.Buffer, schema: pa.Schema) -> pa.Table:
    return _cast(pa.ipc.open_stream(stream).read_all(), schema)


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    pairs = zip(table.columns, schema.types, strict=True)
    columns = [column if column.type == kind else column.cast(kind) for column, kind in pairs]
    return pa.Table.from_arrays(columns, schema=schema)


def _sent_type(kind: pa.DataType) -> pa.DataType:
    return plain_type(kind) if _holds_view(kind) else kind


def _holds_view(kind: pa.DataType) -> bool:
    return is_view(kind) or any(_holds_view(child.type) for child in child_fields(kind))
