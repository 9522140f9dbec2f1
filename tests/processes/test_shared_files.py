"""Values between processes: whole, without copies of large arrays, and with nothing left behind."""

from __future__ import annotations

import gc
import os
import pickle
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading._core.processes.shared_files import receive_value, send_value


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def _sent(ends: tuple[socket.socket, socket.socket], value: Any) -> Any:
    with ThreadPoolExecutor(1) as pool:  # without files, a sender waits for the receiver
        sending = pool.submit(send_value, ends[0], value)
        found = receive_value(ends[1])
        sending.result()
    return found


def _descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.fixture(params=["file", "socket"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How bytes go: as a file without a name, or through the socket where the system has no such files."""
    if request.param == "socket":
        monkeypatch.delattr(os, "memfd_create", raising=False)


@pytest.mark.usefixtures("way")
def test_arrays_arrive_in_memory_of_their_own(ends: tuple[socket.socket, socket.socket]) -> None:
    gc.collect()  # files that earlier tests left open would be closed meanwhile
    before = _descriptors()
    large = {"f": np.arange(50_000.0), "c": np.asfortranarray(np.ones((300, 400), np.int16)), "s": np.arange(9)[::3]}
    found = [_sent(ends, {**large, "text": ["é", b"x" * 100_000, None]}) for _ in range(20)]
    assert _descriptors() == before
    for one in found:
        assert one["text"] == ["é", b"x" * 100_000, None]
        for name, array in large.items():
            assert np.array_equal(one[name], array)
            assert one[name].flags.writeable
    found[0]["f"][:] = 0
    assert found[1]["f"][1] == 1


def _owner(array: Any) -> Any:
    return _owner(array.base) if isinstance(array, np.ndarray) and array.base is not None else array


def test_small_arrays_do_not_keep_the_map(ends: tuple[socket.socket, socket.socket]) -> None:
    found = _sent(ends, [np.zeros(1 << 20, np.uint8), np.arange(10)])
    assert [type(_owner(array).obj) for array in found] == [np.ndarray, bytearray]


@pytest.mark.usefixtures("way")
def test_tensors_arrive_as_they_are(ends: tuple[socket.socket, socket.socket]) -> None:
    torch = pytest.importorskip("torch")
    kinds = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64]
    sent = [torch.arange(n).to(kind).reshape(-1, 2) for kind in kinds for n in (0, 6, 200_000)]
    sent += [torch.ones(3, 4).T, torch.tensor(5), torch.ones(2, requires_grad=True), torch.eye(3).to_sparse()]
    for one, found in zip(sent, _sent(ends, sent), strict=True):
        assert (found.dtype, found.shape, found.requires_grad) == (one.dtype, one.shape, one.requires_grad)
        assert torch.equal(found.detach().to_dense(), one.detach().to_dense())


def test_tables_arrive_without_what_they_are_a_part_of(ends: tuple[socket.socket, socket.socket]) -> None:
    payload = pa.array([bytes([i]) * 10_000 for i in range(200)], pa.binary_view())
    nested = pa.StructArray.from_arrays([payload], ["bytes"])
    fields = [pa.field("b", payload.type, metadata={"a": "b"}), pa.field("s", nested.type), pa.field("n", pa.int8())]
    table = pa.table([payload, nested, pa.array(range(200), pa.uint8()).view(pa.int8())], schema=pa.schema(fields))
    found = _sent(ends, table.slice(7, 3))
    assert found.equals(table.slice(7, 3), check_metadata=True)
    assert found.get_total_buffer_size() < 10 * 10_000


@pytest.mark.usefixtures("way")
def test_a_value_that_cannot_be_pickled_is_not_sent(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises((TypeError, pickle.PicklingError)):
        send_value(ends[0], (i for i in "generator"))
    assert _sent(ends, 7) == 7


@pytest.mark.usefixtures("way")
def test_the_end_of_the_other_process(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        receive_value(ends[1])
    with pytest.raises(BrokenPipeError):
        send_value(ends[1], 7)


def test_the_end_of_the_other_process_in_the_middle_of_a_value(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    send_value(ends[0], "value")
    whole = ends[1].recv(1 << 16)
    for size in range(1, len(whole)):
        one, other = socket.socketpair()
        with one, other:
            one.sendall(whole[:size])
            one.close()
            with pytest.raises(EOFError, match="has ended"):
                receive_value(other)
